//! The page that publishes the times of a timeline to other processes, and its layout.
//!
//! | words | contents | written |
//! |---|---|---|
//! | 0 | magic, the letters `SYNCLTIM` | once and last, by the maker of the page |
//! | 1 | version of this layout, 1 | once, by the maker of the page |
//! | 16 | count: the number of published signals | after each signal |
//! | 17 | upto: all that is known about values up to this is here | last |
//! | 18 | forgotten: times of values up to this are not kept | before an entry is overwritten |
//! | 32.. | 257 entries of 8 words; the n-th signal, from 0, is in entry n mod 257 | |
//!
//! The signalling process writes the words from 16 on.
//!
//! | words of an entry | contents |
//! |---|---|
//! | 0 | 2 n + 2 while the n-th signal is there, odd while it is being written |
//! | 1, 2 | the values of the signal: above the first, up to the second |
//! | 3 | its time, in nanoseconds of the host's `CLOCK_MONOTONIC`, signed |
//! | 4 | the error bound of the time, in nanoseconds |
//!
//! Words have 64 bits, in the byte order of the machine. All other words are 0 and reserved for
//! later versions.
//!
//! One process writes the page and reads nothing from it. Any process that has the page can write
//! anything to it at any time. So it is accessed only through atomics. A reader takes a bounded
//! number of steps for any contents, and finds a time, which may be wrong, or none.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::base::error::{Error, Object, Result};
use crate::base::handle::Rejected;
use crate::clock::Estimate;
use crate::memory::{Mapping, Sealed, WordsFd, make};
use crate::timeline::Timeline;
use crate::timeline::state::Interval;

/// `SYNCLTIM`.
const MAGIC: u64 = u64::from_ne_bytes(*b"SYNCLTIM");

/// The version of this layout.
const VERSION: u64 = 1;

const COUNT: usize = 16;
const UPTO: usize = 17;
const FORGOTTEN: usize = 18;

/// The index of the first entry.
const FIRST_ENTRY: usize = 32;

/// The number of entries: one more than are promised, because one may be overwritten.
pub(super) const ENTRIES: usize = Timeline::TIMES + 1;

/// The words of an entry, so that it spans at most two cache lines.
const ENTRY_WORDS: usize = 8;

/// The size of the page's file.
const BYTES: u64 = ((FIRST_ENTRY + ENTRIES * ENTRY_WORDS) * size_of::<u64>()) as u64;

/// The bytes of magic and version.
const HEADER: usize = 16;

/// How often a reader tries again after a concurrent write.
///
/// An honest writer has then published hundreds of signals.
const ATTEMPTS: u32 = 8;

/// Shared memory that publishes the times of a timeline to other processes. Cheap to clone.
///
/// The signalling process writes it ([`Timeline::tell_times`]); the others read it
/// ([`Timeline::clocked_elsewhere`]). Its contents are not trusted: a hostile process can only
/// cause a wrong time or none. For the layout see `core/src/timeline/times/page.rs`.
#[derive(Clone)]
pub struct SharedTimes(Arc<Inner>);

struct Inner {
    object: Object,
    file: OwnedFd,
    words: Mapping<AtomicU64>,
    /// Returned for an index that is out of range, which the check of the size excludes.
    none: AtomicU64,
}

/// What the page says about a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    At(Estimate),
    /// Its signal has been overwritten. `oldest` is the value of the oldest signal that is kept.
    Forgotten {
        oldest: u64,
    },
    /// It is reached, and no time was written.
    Untimed,
    /// Not published yet.
    NotYet,
}

/// A signal as its entry has it.
#[derive(Debug, Clone, Copy)]
struct Entry {
    values: Interval,
    at: Estimate,
}

impl SharedTimes {
    /// Makes a new page without times.
    ///
    /// # Errors
    /// [`Error::Native`] if the system gives no memory or no descriptor.
    pub fn new() -> Result<Self> {
        let object = Object::new("times", "");
        let native = |(call, errno)| Error::system(&object, call, errno);
        let file = make("syncline-times", BYTES).map_err(native)?;
        let words = Mapping::of(Sealed::new_unchecked(&file, BYTES));
        let words = words.map_err(|errno| native(("mmap", errno)))?;
        let times = Self(Arc::new(Inner {
            object,
            file,
            words,
            none: AtomicU64::new(0),
        }));
        times.word(1).store(VERSION, Ordering::Relaxed);
        times.word(0).store(MAGIC, Ordering::Release);
        Ok(times)
    }

    /// Opens the page that `handle` refers to.
    ///
    /// # Errors
    /// Each error returns the handle. [`Error::Import`] if the memory is not such a page;
    /// [`Error::Native`] if it cannot be mapped.
    pub fn open(handle: WordsFd) -> Result<Self, Rejected<WordsFd>> {
        let object = Object::new("times", "");
        let opened = judge(&handle)
            .map_err(|reason| Error::Import {
                object: object.clone(),
                what: "the times of a timeline".into(),
                reason,
            })
            .and_then(|file| {
                Mapping::of(file).map_err(|errno| Error::system(&object, "mmap", errno))
            });
        match opened {
            Ok(words) => Ok(Self(Arc::new(Inner {
                object,
                file: handle.into(),
                words,
                none: AtomicU64::new(0),
            }))),
            Err(error) => Err(Rejected { handle, error }),
        }
    }

    /// A new handle, with a descriptor of its own.
    ///
    /// # Errors
    /// [`Error::Native`] if the system gives no descriptor.
    pub fn export(&self) -> Result<WordsFd> {
        let twin = rustix::io::fcntl_dupfd_cloexec(&self.0.file, 0);
        let twin =
            twin.map_err(|errno| Error::system(&self.0.object, "fcntl(F_DUPFD_CLOEXEC)", errno))?;
        Ok(WordsFd::from_checked(twin, BYTES))
    }

    /// The word at index `at`.
    fn word(&self, at: usize) -> &AtomicU64 {
        self.0.words.all().get(at).unwrap_or(&self.0.none)
    }

    /// A word of the entry of the `nth` signal.
    fn entry_word(&self, nth: u64, word: usize) -> &AtomicU64 {
        let place = (nth % ENTRIES as u64) as usize;
        self.word(FIRST_ENTRY + place * ENTRY_WORDS + word)
    }

    /// Writes the `nth` signal. Called by one thread at a time, once per signal and in order.
    pub(super) fn write(&self, nth: u64, values: Interval, at: Estimate) {
        let state = self.entry_word(nth, 0);
        let standing = nth.wrapping_mul(2).wrapping_add(2);
        state.store(standing.wrapping_sub(1), Ordering::Relaxed);
        // A reader that sees one of the words below also sees the odd state.
        fence(Ordering::Release);
        let words = [
            values.above,
            values.upto,
            at.nanoseconds.cast_unsigned(),
            at.error,
        ];
        for (word, value) in (1..).zip(words) {
            self.entry_word(nth, word).store(value, Ordering::Relaxed);
        }
        state.store(standing, Ordering::Release);
        self.word(COUNT)
            .store(nth.wrapping_add(1), Ordering::Release);
    }

    /// Says that everything known about values up to `upto` is on the page.
    pub(super) fn set_upto(&self, upto: u64) {
        self.word(UPTO).store(upto, Ordering::Release);
    }

    /// Says that values up to `upto` are forgotten. Call it before their entry is overwritten.
    pub(super) fn forget(&self, upto: u64) {
        self.word(FORGOTTEN).store(upto, Ordering::Release);
    }

    /// The `nth` signal, if its entry is complete.
    fn signal(&self, nth: u64) -> Option<Entry> {
        let standing = nth.wrapping_mul(2).wrapping_add(2);
        if self.entry_word(nth, 0).load(Ordering::Acquire) != standing {
            return None;
        }
        let [above, upto, nanoseconds, error] =
            [1, 2, 3, 4].map(|word| self.entry_word(nth, word).load(Ordering::Relaxed));
        // Orders the reads of the words before the second read of the state.
        fence(Ordering::Acquire);
        let still = self.entry_word(nth, 0).load(Ordering::Relaxed) == standing;
        still.then_some(Entry {
            values: Interval { above, upto },
            at: Estimate {
                nanoseconds: nanoseconds.cast_signed(),
                error,
            },
        })
    }

    /// Looks `value` up. Takes a few dozen loads, and a bounded number for any contents.
    pub(super) fn of(&self, value: u64) -> Lookup {
        let mut found_nothing = Lookup::NotYet;
        for _ in 0..ATTEMPTS {
            // In this order: the signal of a settled value is in its entry or has been forgotten
            // since.
            let settled = self.word(UPTO).load(Ordering::Acquire) >= value;
            let count = self.word(COUNT).load(Ordering::Acquire);
            let first = count.saturating_sub(ENTRIES as u64);
            let (mut low, mut high) = (first, count);
            while low < high {
                let middle = low + (high - low) / 2;
                match self.signal(middle) {
                    Some(signal) if signal.values.upto >= value => high = middle,
                    // An entry that is being overwritten is among the oldest.
                    _ => low = middle + 1,
                }
            }
            let found = (low < count).then(|| self.signal(low)).flatten();
            if let Some(found) = found
                && found.values.covers(value)
            {
                return Lookup::At(found.at);
            }
            let forgotten = self.word(FORGOTTEN).load(Ordering::Acquire);
            found_nothing = if value <= forgotten {
                Lookup::Forgotten {
                    oldest: self.oldest(first, count).unwrap_or(forgotten),
                }
            } else if settled {
                Lookup::Untimed
            } else {
                Lookup::NotYet
            };
            if self.word(COUNT).load(Ordering::Acquire) == count {
                break;
            }
        }
        found_nothing
    }

    /// The value of the oldest signal that is on the page.
    fn oldest(&self, first: u64, count: u64) -> Option<u64> {
        let oldest = (first..count).find_map(|nth| self.signal(nth));
        oldest.map(|oldest| oldest.values.upto)
    }
}

/// Checks the size of the file behind a handle, its magic and its version.
///
/// # Errors
/// A description of what was found instead.
fn judge(handle: &WordsFd) -> Result<Sealed<'_>, String> {
    let file = Sealed::check(handle.as_fd())?;
    if file.size() != BYTES {
        return Err(format!(
            "it has {} bytes, and a page of times has {BYTES}",
            file.size()
        ));
    }
    let [m0, m1, m2, m3, m4, m5, m6, m7, version @ ..] = file.read_header::<HEADER>()?;
    let magic = u64::from_ne_bytes([m0, m1, m2, m3, m4, m5, m6, m7]);
    let version = u64::from_ne_bytes(version);
    if (magic, version) != (MAGIC, VERSION) {
        return Err(format!(
            "it begins with {magic:#018x} and version {version}, and a page of times with {MAGIC:#018x} and version {VERSION}"
        ));
    }
    Ok(file)
}

impl fmt::Debug for SharedTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.word(COUNT).load(Ordering::Relaxed);
        write!(f, "{} ({count} signals)", self.0.object)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const KEPT: u64 = Timeline::TIMES as u64;

    /// The values of the n-th signal: above 10 n and up to 10 n + 10. Its time follows from n.
    fn values(nth: u64) -> Interval {
        Interval {
            above: 10 * nth,
            upto: 10 * nth + 10,
        }
    }

    fn at(nth: u64) -> Estimate {
        Estimate {
            nanoseconds: 1_000 * nth.cast_signed() - 7,
            error: nth ^ 0x5555,
        }
    }

    fn write(times: &SharedTimes, nth: u64) {
        if let Some(over) = nth.checked_sub(ENTRIES as u64) {
            times.forget(values(over).upto);
        }
        times.write(nth, values(nth), at(nth));
        times.set_upto(values(nth).upto);
    }

    fn other(times: &SharedTimes) -> SharedTimes {
        SharedTimes::open(times.export().unwrap()).unwrap()
    }

    #[test]
    fn the_last_signals_are_found_through_another_mapping() {
        let ours = SharedTimes::new().unwrap();
        let theirs = other(&ours);
        assert_eq!(theirs.of(1), Lookup::NotYet);
        let count = 3 * ENTRIES as u64 + 11;
        for nth in 0..count {
            write(&ours, nth);
            let first = (nth + 1).saturating_sub(KEPT);
            for known in [first, u64::midpoint(first, nth), nth] {
                for value in values(known).above + 1..=values(known).upto {
                    assert_eq!(theirs.of(value), Lookup::At(at(known)), "{value} of {nth}");
                }
            }
            assert_eq!(theirs.of(values(nth).upto + 1), Lookup::NotYet);
        }
        let oldest = values(count - ENTRIES as u64).upto;
        for value in [1, 10, oldest - 10] {
            assert_eq!(theirs.of(value), Lookup::Forgotten { oldest }, "{value}");
        }
        // The values of an unknown signal are between those of two known ones.
        let upto = values(count).upto;
        ours.set_upto(upto);
        assert_eq!(theirs.of(upto), Lookup::Untimed);
    }

    /// A reader of overwritten entries finds the time of the value, or that it is forgotten.
    #[test]
    fn no_reader_finds_a_torn_entry() {
        let ours = SharedTimes::new().unwrap();
        let theirs = other(&ours);
        let over = AtomicBool::new(false);
        let found = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    let upto = theirs.word(UPTO).load(Ordering::Acquire);
                    let newest = upto / 10;
                    // The newest, and those that are about to be overwritten.
                    for nth in [newest.saturating_sub(1), newest.saturating_sub(KEPT)] {
                        match theirs.of(values(nth).upto) {
                            Lookup::At(time) => {
                                assert_eq!(time, at(nth));
                                found.fetch_add(1, Ordering::Relaxed);
                            }
                            Lookup::Forgotten { .. } => {}
                            other => assert!(newest == 0, "{other:?} of {nth} at {newest}"),
                        }
                    }
                }
            });
            // On a busy machine the reader may start late. Write until it has found enough.
            let mut nth = 0;
            let enough = || found.load(Ordering::Relaxed) >= 100 || reading.is_finished();
            while nth < 400_000 || !enough() {
                write(&ours, nth);
                nth += 1;
            }
            over.store(true, Ordering::Release);
        });
    }

    proptest! {
        /// For any contents a look-up ends, and its result is on the page.
        #[test]
        fn a_look_up_ends_for_any_words(
            words in prop::collection::vec((0..FIRST_ENTRY + ENTRIES * ENTRY_WORDS, prop_oneof![any::<u64>(), 0_u64..600]), 0..400),
            head in prop::collection::vec(prop_oneof![any::<u64>(), 0_u64..3_000, Just(u64::MAX)], 3),
            honest in 0_u64..600,
            asked in prop::collection::vec(prop_oneof![any::<u64>(), 0_u64..6_000], 1..20),
        ) {
            let times = SharedTimes::new().unwrap();
            (0..honest).for_each(|nth| write(&times, nth));
            for (at, word) in words {
                times.word(at).store(word, Ordering::Relaxed);
            }
            for (at, word) in [COUNT, UPTO, FORGOTTEN].into_iter().zip(head) {
                times.word(at).store(word, Ordering::Relaxed);
            }
            for value in asked {
                match times.of(value) {
                    Lookup::At(found) => {
                        let stands = (0..ENTRIES as u64).any(|place| {
                            let word = |at| times.entry_word(place, at).load(Ordering::Relaxed);
                            word(1) < value && value <= word(2)
                                && (word(3).cast_signed(), word(4)) == (found.nanoseconds, found.error)
                        });
                        prop_assert!(stands, "{found:?} of {value}");
                    }
                    Lookup::Forgotten { .. } => {
                        prop_assert!(value <= times.word(FORGOTTEN).load(Ordering::Relaxed));
                    }
                    Lookup::Untimed | Lookup::NotYet => {}
                }
            }
        }
    }

    /// A handle of zeroed words.
    fn words(bytes: u64) -> WordsFd {
        crate::handle::SharedWords::new(bytes)
            .unwrap()
            .export()
            .unwrap()
    }

    /// A handle of a page with a version.
    fn page_of_version(version: u64) -> WordsFd {
        let times = SharedTimes::new().unwrap();
        times.word(1).store(version, Ordering::Relaxed);
        times.export().unwrap()
    }

    #[rstest]
    #[case::no_magic(words(BYTES), "begins with")]
    #[case::too_short(words(BYTES - 8), "bytes")]
    #[case::a_later_version(page_of_version(VERSION + 1), "version 2")]
    fn an_import_of_other_memory_returns_the_handle(
        #[case] handle: WordsFd,
        #[case] expected: &str,
    ) {
        let rejected = SharedTimes::open(handle).unwrap_err();
        let found = rejected.error.to_string();
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn a_page_of_this_version_is_imported() {
        SharedTimes::open(page_of_version(VERSION)).unwrap();
    }
}
