//! The page that tells other processes when values of a timeline were reached, word by word.
//!
//! | words | what | written by |
//! |---|---|---|
//! | 0 | magic, the letters `SYNCLTIM` | who makes the page, once and last |
//! | 1 | version of this layout, 1 | who makes it, once |
//! | 16 | count: how many signals have been told of, ever | who signals, after each |
//! | 17 | upto: of every value up to this it is told when it was reached, or that nobody wrote it | the same, last |
//! | 18 | forgotten: values up to this are not told of any more | the same, before it writes over one |
//! | 32.. | 257 places of 8 words; the n-th signal, from 0 on, is at place n mod 257 | the same |
//!
//! | words of a place | what |
//! |---|---|
//! | 0 | 2 n + 2 while the n-th signal stands there, odd while it is being written |
//! | 1, 2 | the signal's values, above the one and up to the other |
//! | 3 | when it was made, in nanoseconds of the host's `CLOCK_MONOTONIC`, signed |
//! | 4 | the truth lies no further than this from it, in nanoseconds |
//!
//! Words have 64 bits, in the byte order of the machine. What is not listed is 0, and belongs to later versions.
//!
//! One process writes it, and reads nothing of it. Any that has it can write anything to it at any time: so it is reached through atomics only, and who
//! reads goes a bounded way whatever stands there, and finds a time, which may be a lie, or none.

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

/// Of this layout.
const VERSION: u64 = 1;

const COUNT: usize = 16;
const UPTO: usize = 17;
const FORGOTTEN: usize = 18;

/// Where the places begin.
const PLACES: usize = 32;

/// One more than are promised, as one may be being written over.
pub(super) const ROOM: usize = Timeline::TIMES + 1;

/// The words of a place, so that two lie on one cache line at most.
const PLACE: usize = 8;

/// The size of the page's file.
const BYTES: u64 = ((PLACES + ROOM * PLACE) * size_of::<u64>()) as u64;

/// What its first bytes say.
const HEADER: usize = 16;

/// So often one looks again where others write meanwhile: each time they have told of some hundred signals, or they lie.
const LOOKS: u32 = 8;

/// Memory of several processes in which the one that signals a timeline with timestamps tells the others when its values were
/// reached ([`Timeline::tell_times`], [`Timeline::clocked_elsewhere`]). Cheap to clone.
///
/// Nothing that stands there is believed further than that it is a time: see the head of `core/src/timeline/times/page.rs`.
#[derive(Clone)]
pub struct SharedTimes(Arc<Inner>);

struct Inner {
    object: Object,
    file: OwnedFd,
    words: Mapping<AtomicU64>,
    /// For a word that is not there, of which there is none: the size has been judged.
    none: AtomicU64,
}

/// What is told of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    At(Estimate),
    /// All up to the value of the signal that is the oldest now has been forgotten.
    Forgotten {
        oldest: u64,
    },
    /// Nobody wrote it.
    Nobody,
    /// Not yet.
    NotYet,
}

/// A signal as it stands in its place.
#[derive(Debug, Clone, Copy)]
struct Signalled {
    values: Interval,
    at: Estimate,
}

impl SharedTimes {
    /// Fresh memory, in which nothing is told yet.
    ///
    /// # Errors
    /// [`Error::Native`] if the system gives no memory, or no descriptor.
    pub fn new() -> Result<Self> {
        let object = Object::new("times", "");
        let native = |(call, errno)| Error::system(&object, call, errno);
        let file = make("syncline-times", BYTES).map_err(native)?;
        let words = Mapping::of(Sealed::fresh(&file, BYTES));
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

    /// The memory that `handle` carries.
    ///
    /// # Errors
    /// The handle, and: [`Error::Import`] if that is memory for something else; [`Error::Native`] if it cannot be mapped.
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
        Ok(WordsFd::known(twin, BYTES))
    }

    /// One of the words.
    fn word(&self, at: usize) -> &AtomicU64 {
        self.0.words.all().get(at).unwrap_or(&self.0.none)
    }

    /// A word of the place that the `nth` signal has.
    fn of_place(&self, nth: u64, word: usize) -> &AtomicU64 {
        let place = (nth % ROOM as u64) as usize;
        self.word(PLACES + place * PLACE + word)
    }

    /// Tells of the `nth` signal. By one thread at a time, and each once, in order.
    pub(super) fn write(&self, nth: u64, values: Interval, at: Estimate) {
        let state = self.of_place(nth, 0);
        let standing = nth.wrapping_mul(2).wrapping_add(2);
        state.store(standing.wrapping_sub(1), Ordering::Relaxed);
        // Who sees one of the words below sees that they are being written.
        fence(Ordering::Release);
        let words = [
            values.above,
            values.upto,
            at.nanoseconds.cast_unsigned(),
            at.error,
        ];
        for (word, value) in (1..).zip(words) {
            self.of_place(nth, word).store(value, Ordering::Relaxed);
        }
        state.store(standing, Ordering::Release);
        self.word(COUNT)
            .store(nth.wrapping_add(1), Ordering::Release);
    }

    /// Says that it is known of every value up to this, what there is to be known.
    pub(super) fn settle(&self, upto: u64) {
        self.word(UPTO).store(upto, Ordering::Release);
    }

    /// Says that values up to this are not told of any more: to be called before one is written over.
    pub(super) fn forget(&self, upto: u64) {
        self.word(FORGOTTEN).store(upto, Ordering::Release);
    }

    /// The `nth` signal, if it stands there whole.
    fn signal(&self, nth: u64) -> Option<Signalled> {
        let standing = nth.wrapping_mul(2).wrapping_add(2);
        if self.of_place(nth, 0).load(Ordering::Acquire) != standing {
            return None;
        }
        let [above, upto, nanoseconds, error] =
            [1, 2, 3, 4].map(|word| self.of_place(nth, word).load(Ordering::Relaxed));
        // Whatever was read came before this second look at the state.
        fence(Ordering::Acquire);
        let still = self.of_place(nth, 0).load(Ordering::Relaxed) == standing;
        still.then_some(Signalled {
            values: Interval { above, upto },
            at: Estimate {
                nanoseconds: nanoseconds.cast_signed(),
                error,
            },
        })
    }

    /// What is told of `value`. A few dozen loads as a rule, and a bounded number whatever stands there.
    pub(super) fn of(&self, value: u64) -> Told {
        let mut told = Told::NotYet;
        for _ in 0..LOOKS {
            // In this order: what is settled stands in its place, or has been forgotten since.
            let settled = self.word(UPTO).load(Ordering::Acquire) >= value;
            let count = self.word(COUNT).load(Ordering::Acquire);
            let first = count.saturating_sub(ROOM as u64);
            let (mut low, mut high) = (first, count);
            while low < high {
                let middle = low + (high - low) / 2;
                match self.signal(middle) {
                    Some(signal) if signal.values.upto >= value => high = middle,
                    // One that is being written over is among the oldest.
                    _ => low = middle + 1,
                }
            }
            let found = (low < count).then(|| self.signal(low)).flatten();
            if let Some(found) = found
                && found.values.above < value
                && value <= found.values.upto
            {
                return Told::At(found.at);
            }
            let forgotten = self.word(FORGOTTEN).load(Ordering::Acquire);
            told = if value <= forgotten {
                Told::Forgotten {
                    oldest: self.oldest(first, count).unwrap_or(forgotten),
                }
            } else if settled {
                Told::Nobody
            } else {
                Told::NotYet
            };
            if self.word(COUNT).load(Ordering::Acquire) == count {
                break;
            }
        }
        told
    }

    /// The value of the oldest signal that stands there.
    fn oldest(&self, first: u64, count: u64) -> Option<u64> {
        let oldest = (first..count).find_map(|nth| self.signal(nth));
        oldest.map(|oldest| oldest.values.upto)
    }
}

/// Judges the file behind a handle, and what it begins with.
///
/// # Errors
/// What was found instead, in words.
fn judge(handle: &WordsFd) -> Result<Sealed<'_>, String> {
    let file = Sealed::judge(handle.as_fd())?;
    if file.bytes() != BYTES {
        return Err(format!(
            "it has {} bytes, and what tells times has {BYTES}",
            file.bytes()
        ));
    }
    let [m0, m1, m2, m3, m4, m5, m6, m7, version @ ..] = file.begins::<HEADER>()?;
    let magic = u64::from_ne_bytes([m0, m1, m2, m3, m4, m5, m6, m7]);
    let version = u64::from_ne_bytes(version);
    if (magic, version) != (MAGIC, VERSION) {
        return Err(format!(
            "it begins with {magic:#018x} and version {version}, and what tells times with {MAGIC:#018x} and version {VERSION}"
        ));
    }
    Ok(file)
}

impl fmt::Debug for SharedTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.word(COUNT).load(Ordering::Relaxed);
        write!(f, "{} ({count} told)", self.0.object)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    use super::*;

    const KEPT: u64 = Timeline::TIMES as u64;

    /// The n-th signal takes the values above 10 n up to 10 n + 10, and its time can be told from that.
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
        if let Some(over) = nth.checked_sub(ROOM as u64) {
            times.forget(values(over).upto);
        }
        times.write(nth, values(nth), at(nth));
        times.settle(values(nth).upto);
    }

    fn other(times: &SharedTimes) -> SharedTimes {
        SharedTimes::open(times.export().unwrap()).unwrap()
    }

    #[test]
    fn the_last_signals_are_told_to_who_has_it() {
        let ours = SharedTimes::new().unwrap();
        let theirs = other(&ours);
        assert_eq!(theirs.of(1), Told::NotYet);
        let count = 3 * ROOM as u64 + 11;
        for nth in 0..count {
            write(&ours, nth);
            let first = (nth + 1).saturating_sub(KEPT);
            for known in [first, u64::midpoint(first, nth), nth] {
                for value in values(known).above + 1..=values(known).upto {
                    assert_eq!(theirs.of(value), Told::At(at(known)), "{value} of {nth}");
                }
            }
            assert_eq!(theirs.of(values(nth).upto + 1), Told::NotYet);
        }
        let oldest = values(count - ROOM as u64).upto;
        for value in [1, 10, oldest - 10] {
            assert_eq!(theirs.of(value), Told::Forgotten { oldest }, "{value}");
        }
        // What was signalled by somebody who is not known is between two that are.
        let upto = values(count).upto;
        ours.settle(upto);
        assert_eq!(theirs.of(upto), Told::Nobody);
    }

    /// Who reads while places are written over finds a time that belongs to the value, or that it is forgotten.
    #[test]
    fn nobody_reads_half_of_one() {
        let ours = SharedTimes::new().unwrap();
        let theirs = other(&ours);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let (mut known, mut asked) = (0_u64, 0_u64);
                while !over.load(Ordering::Acquire) {
                    let upto = theirs.word(UPTO).load(Ordering::Acquire);
                    let newest = upto / 10;
                    // The newest, and those that are about to go.
                    for nth in [newest.saturating_sub(1), newest.saturating_sub(KEPT)] {
                        asked += 1;
                        match theirs.of(values(nth).upto) {
                            Told::At(told) => {
                                known += 1;
                                assert_eq!(told, at(nth));
                            }
                            Told::Forgotten { .. } => {}
                            other => assert!(newest == 0, "{other:?} of {nth} at {newest}"),
                        }
                    }
                }
                (known, asked)
            });
            for nth in 0..400_000 {
                write(&ours, nth);
            }
            over.store(true, Ordering::Release);
            let (known, asked) = reading.join().unwrap();
            assert!(known > 0 && asked >= known, "{known} of {asked}");
        });
    }

    proptest! {
        /// Whatever stands there, the way through it ends, and nothing is told that it does not say.
        #[test]
        fn any_words_are_read_to_an_end(
            words in prop::collection::vec((0..PLACES + ROOM * PLACE, prop_oneof![any::<u64>(), 0_u64..600]), 0..400),
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
                    Told::At(told) => {
                        let stands = (0..ROOM as u64).any(|place| {
                            let word = |at| times.of_place(place, at).load(Ordering::Relaxed);
                            word(1) < value && value <= word(2)
                                && (word(3).cast_signed(), word(4)) == (told.nanoseconds, told.error)
                        });
                        prop_assert!(stands, "{told:?} of {value}");
                    }
                    Told::Forgotten { .. } => {
                        prop_assert!(value <= times.word(FORGOTTEN).load(Ordering::Relaxed));
                    }
                    Told::Nobody | Told::NotYet => {}
                }
            }
        }
    }

    #[test]
    fn memory_for_something_else_comes_back() {
        let data = crate::SharedWords::new(BYTES).unwrap();
        let short = crate::SharedWords::new(BYTES - 8).unwrap();
        let later = SharedTimes::new().unwrap();
        later.word(1).store(VERSION + 1, Ordering::Relaxed);
        for (handle, expected) in [
            (data.export().unwrap(), "begins with"),
            (short.export().unwrap(), "bytes"),
            (later.export().unwrap(), "version 2"),
        ] {
            let rejected = SharedTimes::open(handle).unwrap_err();
            let told = rejected.error.to_string();
            assert!(told.contains(expected), "{told}");
        }
        SharedTimes::open(SharedTimes::new().unwrap().export().unwrap()).unwrap();
    }
}
