//! The page that a counter in shared memory lies in, byte by byte.
//!
//! | bytes | what | written by |
//! |---|---|---|
//! | 0..8 | magic, the letters `SYNCLCTR` | who makes the page, once and last |
//! | 8..12 | version of this layout, 3 | who makes it, once |
//! | 12..16 | quiet: not 0 once somebody may signal who rings no bell (a stream of a GPU) | who lets such a one in |
//! | 128..136 | reached: the counter itself, which devices wait for and write | each signaller |
//! | 136..144 | announced: no signal above this has been given to anybody | each signaller, before he gives it away |
//! | 144..152 | pending: signals up to this need nothing more of any host; what is reached is pending, too | each signaller, once a driver has it |
//! | 384..388 | sleepers: not 0 if threads may sleep, or be about to | a thread that is to sleep; each ring sets it to 0 first |
//! | 388..392 | bell: a futex, one more with each ring | who signals, says that a signal is pending, or fails it, while somebody sleeps |
//! | 392..396 | released: how many have a turn to let go whoever waits for signals of a process that is dead | who takes one |
//! | 396..400 | lost: 1 if what was said to be pending does not come any more, as its device or its process is gone | who fails it for that, before |
//! | 512..516 | failed: 0; odd while somebody writes why it has failed, even once that is there; above the lowest bit the number of the turn, from 1 on, one more with each who takes over from one who does not come to an end | who fails it first |
//! | 640..3200 | four records of 640 bytes, the turns' one after the other: nobody writes to that of who has taken over from him | who has the turn |
//!
//! | bytes of a record | what |
//! |---|---|
//! | 0..4 | length of the cause, in bytes |
//! | 4..8 | how a process was lost, if that is the cause: see [`Loss`]; 0 otherwise |
//! | 8..16 | code of the cause, signed |
//! | 16..24 | frozen: what is above this does not count, although devices may still write it |
//! | 24..28 | the id of that process |
//! | 32..544 | the cause, UTF-8 |
//!
//! Numbers are in the byte order of the machine. What is not listed is 0, and belongs to later versions. What several
//! processors write at different times lies 128 bytes apart, as they fetch two cache lines together; what a signaller writes
//! one after the other, and who waits then reads, lies in one.
//!
//! Any process that has the page can write anything to it at any time. So it is reached through atomics only, and whatever is read is judged
//! where it is read ([`Counter`](super::Counter)).

use std::mem::offset_of;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::base::peer::{PeerExit, PeerLoss};
use crate::memory::Atomic;

/// `SYNCLCTR`.
const MAGIC: u64 = u64::from_ne_bytes(*b"SYNCLCTR");

/// Of this layout.
const VERSION: u32 = 3;

/// The size of the page's file.
pub(super) const BYTES: usize = 4096;

/// Where the counter itself lies.
pub(super) const REACHED: usize = offset_of!(Page, reached);

/// How much of a cause there is room for.
const CAUSE: usize = 512;

/// What the first bytes of a page say.
pub(super) const HEADER: usize = 12;

/// Bytes of no meaning, which others may change all the same.
type Gap<const BYTES: usize> = [AtomicU8; BYTES];

/// See the head of this file.
#[repr(C, align(128))]
pub(super) struct Page {
    magic: AtomicU64,
    version: AtomicU32,
    pub(super) quiet: AtomicU32,
    _behind_head: Gap<112>,
    pub(super) reached: AtomicU64,
    pub(super) announced: AtomicU64,
    pub(super) pending: AtomicU64,
    _behind_pending: Gap<232>,
    pub(super) sleepers: AtomicU32,
    pub(super) bell: AtomicU32,
    pub(super) released: AtomicU32,
    pub(super) lost: AtomicU32,
    _behind_lost: Gap<112>,
    failed: AtomicU32,
    _behind_failed: Gap<124>,
    records: [Record; RECORDS],
    _rest: Gap<896>,
}

/// Why it has failed, as one has written it.
#[repr(C, align(128))]
struct Record {
    length: AtomicU32,
    loss: AtomicU32,
    code: AtomicI64,
    frozen: AtomicU64,
    process: AtomicU32,
    _behind_process: Gap<4>,
    cause: [AtomicU8; CAUSE],
    _rest: Gap<96>,
}

#[allow(unsafe_code, reason = "says what a page is made of")]
// SAFETY: 4096 bytes, aligned to 128 of them, all of which are atomics.
unsafe impl Atomic for Page {}

const _: () = {
    assert!(size_of::<Page>() == BYTES);
    assert!(offset_of!(Page, magic) == 0 && offset_of!(Page, version) == 8);
    assert!(offset_of!(Page, quiet) == 12 && offset_of!(Page, reached) == 128);
    assert!(offset_of!(Page, announced) == 136 && offset_of!(Page, pending) == 144);
    assert!(offset_of!(Page, sleepers) == 384 && offset_of!(Page, bell) == 388);
    assert!(offset_of!(Page, released) == 392 && offset_of!(Page, lost) == 396);
    assert!(offset_of!(Page, failed) == 512 && offset_of!(Page, records) == 640);
    assert!(size_of::<Record>() == 640);
    assert!(offset_of!(Record, length) == 0 && offset_of!(Record, loss) == 4);
    assert!(offset_of!(Record, code) == 8 && offset_of!(Record, frozen) == 16);
    assert!(offset_of!(Record, process) == 24 && offset_of!(Record, cause) == 32);
};

/// Nobody has failed it.
const SOUND: u32 = 0;

/// How many write to records of their own, each overtaken by the next. Who is stopped for longer than all of them take writes to that of the fourth behind him.
const RECORDS: usize = 4;

/// In which turn somebody says why it has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn(u32);

impl Turn {
    /// Behind that in which `failed` was found, whatever stands there.
    const fn behind(failed: u32) -> Self {
        match ((failed >> 1) + 1) & (u32::MAX >> 1) {
            // Which would be sound.
            0 => Self(1),
            next => Self(next),
        }
    }

    const fn writing(self) -> u32 {
        self.0 << 1 | 1
    }

    const fn written(self) -> u32 {
        self.0 << 1
    }
}

/// True if the cause is there.
const fn is_written(failed: u32) -> bool {
    failed != SOUND && failed & 1 == 0
}

/// How often a thread looks, spinning, for a failure that another thread is writing. Writing takes less than a microsecond and these looks
/// some ten. After them the writer counts as dead: if it only lost its processor, what it writes then goes into a record that is not read.
const PATIENCE: u32 = 1000;

/// How often one looks anew because somebody has come to an end with that meanwhile, who does so once.
const LOOKS: u32 = 4;

/// How a page stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Sound,
    /// Somebody has begun to say why it has failed, and has not come to an end: he has died, or was stopped.
    Failing,
    /// It has failed, and no value above this counts.
    Failed(u64),
}

/// Why a page that failed did: as another process has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) code: i64,
    pub(super) words: String,
    pub(super) lost: Option<Loss>,
}

/// That a process was lost: 1 if it has ended, 2 with the code that the page has, 3 by the signal of that number, 4 if its end is closed, 5 where it lives, 6 if it was
/// shut out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) process: u32,
    pub(super) how: PeerLoss,
}

impl Loss {
    /// How, and the code.
    fn words(self) -> (u32, i64) {
        match self.how {
            PeerLoss::Died { exit: None } => (1, 0),
            PeerLoss::Died {
                exit: Some(PeerExit::Code(code)),
            } => (2, code.into()),
            PeerLoss::Died {
                exit: Some(PeerExit::Signal(signal)),
            } => (3, signal.into()),
            PeerLoss::HungUp => (4, 0),
            PeerLoss::Left => (5, 0),
            PeerLoss::ShutOut => (6, 0),
        }
    }

    /// As they stand in a page, whatever that is.
    fn of_words(process: u32, how: u32, code: i64) -> Option<Self> {
        let code = i32::try_from(code).ok();
        let how = match how {
            1 => PeerLoss::Died { exit: None },
            2 => PeerLoss::Died {
                exit: code.map(PeerExit::Code),
            },
            3 => PeerLoss::Died {
                exit: code.map(PeerExit::Signal),
            },
            4 => PeerLoss::HungUp,
            5 => PeerLoss::Left,
            6 => PeerLoss::ShutOut,
            _ => return None,
        };
        Some(Self { process, how })
    }
}

impl Page {
    /// Makes a page of zeroes, which nobody else has yet, a counter at `initial`.
    pub(super) fn format(&self, initial: u64) {
        self.reached.store(initial, Ordering::Relaxed);
        self.announced.store(initial, Ordering::Relaxed);
        self.pending.store(initial, Ordering::Relaxed);
        self.version.store(VERSION, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// True if somebody has failed it: a load.
    #[inline]
    pub(super) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire) != SOUND
    }

    /// Notes the first failure, behind which no value above `frozen` counts. False if there was one. Takes over from one who has begun to and does not come to an end.
    pub(super) fn fail(&self, frozen: u64, cause: &Cause) -> bool {
        let turn = self.begin_to_fail();
        turn.is_some_and(|turn| self.finish(turn, frozen, cause))
    }

    /// Writes why it has failed, in the turn that [`Page::begin_to_fail`] gave. False if somebody has taken over since.
    pub(super) fn finish(&self, turn: Turn, frozen: u64, cause: &Cause) -> bool {
        let record = self.record(turn.writing());
        let words = &*cause.words;
        let mut length = words.len().min(CAUSE);
        while !words.is_char_boundary(length) {
            length -= 1;
        }
        for (to, byte) in record.cause.iter().zip(words[..length].bytes()) {
            to.store(byte, Ordering::Relaxed);
        }
        record.length.store(length as u32, Ordering::Relaxed);
        let loss = cause.lost.map_or((0, cause.code), Loss::words);
        record.loss.store(loss.0, Ordering::Relaxed);
        record.code.store(loss.1, Ordering::Relaxed);
        let process = cause.lost.map_or(0, |lost| lost.process);
        record.process.store(process, Ordering::Relaxed);
        record.frozen.store(frozen, Ordering::Relaxed);
        let (writing, written) = (turn.writing(), turn.written());
        // Sequentially consistent, against a thread that marks the page and then looks.
        self.failed
            .compare_exchange(writing, written, SeqCst, Relaxed)
            .is_ok()
    }

    /// That of the turn which `failed` tells.
    fn record(&self, failed: u32) -> &Record {
        let [first, second, third, fourth] = &self.records;
        match (failed >> 1) % RECORDS as u32 {
            1 => first,
            2 => second,
            3 => third,
            _ => fourth,
        }
    }

    /// The turn of the caller, who is to write why; `None` if somebody has, or the page never stands still.
    pub(super) fn begin_to_fail(&self) -> Option<Turn> {
        let (mut before, mut looks) = (SOUND, 0);
        for _ in 0..4 * PATIENCE {
            let found = self.failed.load(Ordering::Acquire);
            if is_written(found) {
                return None;
            }
            if found != SOUND && (found != before || looks < PATIENCE) {
                // Each who writes has his time.
                looks = if found == before { looks + 1 } else { 0 };
                before = found;
                std::hint::spin_loop();
                continue;
            }
            let own = Turn::behind(found);
            let taken = self
                .failed
                .compare_exchange(found, own.writing(), AcqRel, Relaxed);
            if taken.is_ok() {
                return Some(own);
            }
        }
        None
    }

    /// How it stands. Waits for a moment for whoever is writing why it failed, unless he is known `not_to_come` to an end.
    pub(super) fn standing(&self, not_to_come: bool) -> Standing {
        for _ in 0..if not_to_come { 1 } else { PATIENCE } {
            match self.failed.load(Ordering::Acquire) {
                SOUND => return Standing::Sound,
                written if is_written(written) => {
                    let frozen = &self.record(written).frozen;
                    return Standing::Failed(frozen.load(Ordering::Relaxed));
                }
                _ => std::hint::spin_loop(),
            }
        }
        Standing::Failing
    }

    /// As [`Page::standing`], and what was reached as it stood so, read by `reached`: once it has failed, others raise that, to let go who waits natively. As long as
    /// somebody writes why, he may come to an end in between; if that goes on, it is `before`, which was there already.
    pub(super) fn standing_with(
        &self,
        not_to_come: bool,
        before: u64,
        mut reached: impl FnMut() -> u64,
    ) -> (Standing, u64) {
        for _ in 0..LOOKS {
            let standing = self.standing(not_to_come);
            let value = match standing {
                Standing::Sound => before,
                // Bounded by where it froze.
                Standing::Failed(_) => reached(),
                Standing::Failing => {
                    let value = reached();
                    if is_written(self.failed.load(Ordering::SeqCst)) {
                        continue;
                    }
                    value
                }
            };
            return (standing, value);
        }
        (Standing::Failing, before)
    }

    /// Why it failed, as far as that can be read: bounded, and whatever bytes there are.
    pub(super) fn cause(&self) -> Cause {
        let failed = self.failed.load(Ordering::Acquire);
        if !is_written(failed) {
            return Cause {
                code: 0,
                words: "it has not said why, or not yet".into(),
                lost: None,
            };
        }
        let record = self.record(failed);
        let length = record.length.load(Ordering::Relaxed) as usize;
        let bytes: Vec<u8> = record.cause[..length.min(CAUSE)]
            .iter()
            .map(|byte| byte.load(Ordering::Relaxed))
            .collect();
        let shown = String::from_utf8_lossy(&bytes);
        let code = record.code.load(Ordering::Relaxed);
        let process = record.process.load(Ordering::Relaxed);
        Cause {
            code,
            lost: Loss::of_words(process, record.loss.load(Ordering::Relaxed), code),
            // One line, whatever stands there.
            words: shown.replace(char::is_control, "\u{fffd}"),
        }
    }
}

/// Judges the first bytes of a page.
///
/// # Errors
/// What is wrong with them, in words.
pub(super) fn judge(header: [u8; HEADER]) -> Result<(), String> {
    let [m0, m1, m2, m3, m4, m5, m6, m7, version @ ..] = header;
    let magic = u64::from_ne_bytes([m0, m1, m2, m3, m4, m5, m6, m7]);
    let version = u32::from_ne_bytes(version);
    if magic != MAGIC {
        return Err(format!(
            "it begins with {magic:#018x}, and a counter with {MAGIC:#018x}"
        ));
    }
    if version != VERSION {
        return Err(format!(
            "its layout is of version {version}, and this library knows version {VERSION}"
        ));
    }
    Ok(())
}
