//! The page of a counter in shared memory, byte by byte.
//!
//! | bytes | field | written by |
//! |---|---|---|
//! | 0..8 | magic: the letters `SYNCLCTR` | the maker of the page, once and last |
//! | 8..12 | version of this layout: 3 | the maker, once |
//! | 12..16 | quiet: not 0 if a signaller may not wake sleeping threads (a stream of a GPU) | the process that admits such a signaller |
//! | 128..136 | reached: the counter itself, which devices wait for and write | each signaller |
//! | 136..144 | announced: no signal above this value has been given to a driver or made | each signaller, before it gives a signal to a driver |
//! | 144..152 | pending: signals up to this value need no further action of a host; reached values are pending, too | each signaller, once a driver has the signal |
//! | 384..388 | sleepers: not 0 if threads may sleep here or may be about to | a thread that is about to sleep; each wake first sets it to 0 |
//! | 388..392 | wakes: the futex word, incremented by each wake | a signaller that signals, reports a pending signal or fails the page while threads sleep |
//! | 392..396 | recovery turns: the number of processes that have taken a turn to make the missing signals of a dead process | each process that takes a turn |
//! | 396..400 | lost: 1 if the pending signals will never complete, because their device or process is gone | the process that fails the page for this reason, before it does |
//! | 512..516 | failed: 0 if the page has not failed. Else the number of the attempt to write the failure, from 1 on, shifted left by 1. The lowest bit is 1 while the record is being written | each process that begins or completes an attempt |
//! | 640..3200 | four records of 640 bytes. Attempt `n` writes record `(n - 1) % 4`, so it does not write to the record of the attempt that replaced it | the process that makes the attempt |
//!
//! | bytes of a record | field |
//! |---|---|
//! | 0..4 | length of the cause in bytes |
//! | 4..8 | how a process was lost, if that is the cause (see [`Loss`]); else 0 |
//! | 8..16 | code of the cause, signed |
//! | 16..24 | frozen: values above this do not count, although devices may still write them |
//! | 24..28 | id of the lost process |
//! | 32..544 | the cause, UTF-8 |
//!
//! Numbers are in the byte order of the machine. Bytes that are not listed are 0 and are reserved
//! for later versions. Fields that different processors write at different times lie 128 bytes
//! apart, because processors fetch two cache lines together. Fields that a signaller writes one
//! after the other, and that a waiter then reads together, share a line.
//!
//! Any process that has the page can write anything to it at any time. So the page is accessed
//! through atomics only, and each value is checked where it is read ([`Counter`](super::Counter)).

use std::mem::offset_of;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::base::peer::{PeerExit, PeerLoss};
use crate::memory::Atomic;

const MAGIC: u64 = u64::from_ne_bytes(*b"SYNCLCTR");

/// The version of this layout.
const VERSION: u32 = 3;

/// The size of the page's file in bytes.
pub(super) const BYTES: usize = 4096;

/// The offset of the counter itself in the page, in bytes.
pub(super) const REACHED: usize = offset_of!(PageLayout, reached);

/// The largest size of a stored cause in bytes. A longer cause is cut.
const CAUSE: usize = 512;

/// The size of the magic and the version in bytes.
pub(super) const HEADER: usize = 12;

/// Reserved bytes. Other processes may still change them.
type Reserved<const BYTES: usize> = [AtomicU8; BYTES];

/// The layout that the head of this file describes.
#[repr(C, align(128))]
pub(super) struct PageLayout {
    magic: AtomicU64,
    version: AtomicU32,
    pub(super) quiet: AtomicU32,
    _after_head: Reserved<112>,
    pub(super) reached: AtomicU64,
    pub(super) announced: AtomicU64,
    pub(super) pending: AtomicU64,
    _after_pending: Reserved<232>,
    pub(super) sleepers: AtomicU32,
    pub(super) wakes: AtomicU32,
    pub(super) recovery_turns: AtomicU32,
    pub(super) lost: AtomicU32,
    _after_lost: Reserved<112>,
    failed: AtomicU32,
    _after_failed: Reserved<124>,
    records: [Record; RECORDS],
    _rest: Reserved<896>,
}

/// One record of a failure.
#[repr(C, align(128))]
struct Record {
    length: AtomicU32,
    loss: AtomicU32,
    code: AtomicI64,
    frozen: AtomicU64,
    process: AtomicU32,
    _after_process: Reserved<4>,
    cause: [AtomicU8; CAUSE],
    _rest: Reserved<96>,
}

#[allow(unsafe_code, reason = "states that a page consists of atomics")]
// SAFETY: a page has 4096 bytes and an alignment of 128. All its bytes belong to atomics, so any
// bytes are a valid page.
unsafe impl Atomic for PageLayout {}

const _: () = {
    assert!(size_of::<PageLayout>() == BYTES);
    assert!(offset_of!(PageLayout, magic) == 0 && offset_of!(PageLayout, version) == 8);
    assert!(offset_of!(PageLayout, quiet) == 12 && offset_of!(PageLayout, reached) == 128);
    assert!(offset_of!(PageLayout, announced) == 136 && offset_of!(PageLayout, pending) == 144);
    assert!(offset_of!(PageLayout, sleepers) == 384 && offset_of!(PageLayout, wakes) == 388);
    assert!(offset_of!(PageLayout, recovery_turns) == 392 && offset_of!(PageLayout, lost) == 396);
    assert!(offset_of!(PageLayout, failed) == 512 && offset_of!(PageLayout, records) == 640);
    assert!(size_of::<Record>() == 640);
    assert!(offset_of!(Record, length) == 0 && offset_of!(Record, loss) == 4);
    assert!(offset_of!(Record, code) == 8 && offset_of!(Record, frozen) == 16);
    assert!(offset_of!(Record, process) == 24 && offset_of!(Record, cause) == 32);
};

/// The value of `failed` while the page has not failed.
const NOT_FAILED: u32 = 0;

/// The number of records. Successive attempts use them round-robin.
///
/// A writer that is stopped while four later attempts begin writes into the record of the fourth.
const RECORDS: usize = 4;

/// One attempt to write the failure. A later attempt replaces one whose writer has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attempt(u32);

impl Attempt {
    /// The attempt after the one in `failed`, for any value of `failed`.
    const fn after(failed: u32) -> Self {
        match ((failed >> 1) + 1) & (u32::MAX >> 1) {
            // 0 would mean that the page has not failed.
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

/// True if the record of the failure is complete.
const fn is_written(failed: u32) -> bool {
    failed != NOT_FAILED && failed & 1 == 0
}

/// How often a thread polls, spinning, while another thread writes the failure.
///
/// Writing takes less than 1 µs, and this many polls take some 10 µs. After them the writer counts
/// as dead. If it was only descheduled, its record is not read.
const WRITER_POLLS: u32 = 1000;

/// How often a reader starts again because the failure was completed meanwhile.
const READ_ATTEMPTS: u32 = 4;

/// Whether a page has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageState {
    NotFailed,
    /// A process has begun to write the failure, and has not completed it. It is dead or stopped.
    Failing,
    /// The page has failed, and no value above this one counts.
    Failed(u64),
}

/// The cause of a failure, as a record holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) code: i64,
    pub(super) text: String,
    pub(super) lost: Option<Loss>,
}

/// The loss of a process, which a record stores as a number and the field `code`.
///
/// | number | [`PeerLoss`] |
/// |---|---|
/// | 1 | the process has ended |
/// | 2 | it has ended with the exit code in `code` |
/// | 3 | it was killed by the signal whose number is in `code` |
/// | 4 | its end of the socket is closed, and it is not known whether the process lives |
/// | 5 | its end is closed, and the process lives |
/// | 6 | it was shut out |
/// | 7 | it was given up |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) process: u32,
    pub(super) how: PeerLoss,
}

impl Loss {
    /// The kind of the loss as a number, and the exit code or signal.
    fn to_fields(self) -> (u32, i64) {
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
            PeerLoss::GivenUp => (7, 0),
        }
    }

    /// Reads the fields of a record. `None` for an unknown number.
    fn from_fields(process: u32, how: u32, code: i64) -> Option<Self> {
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
            7 => PeerLoss::GivenUp,
            _ => return None,
        };
        Some(Self { process, how })
    }
}

impl PageLayout {
    /// Makes a page of zeroes a counter at `initial`. No other process may have the page yet.
    pub(super) fn format(&self, initial: u64) {
        self.reached.store(initial, Ordering::Relaxed);
        self.announced.store(initial, Ordering::Relaxed);
        self.pending.store(initial, Ordering::Relaxed);
        self.version.store(VERSION, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// True if the page has failed or is failing. A load.
    #[inline]
    pub(super) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire) != NOT_FAILED
    }

    /// Fails the page. No value above `frozen` counts from then on. False if it has failed already.
    ///
    /// Replaces the attempt of a writer that does not complete it.
    pub(super) fn fail(&self, frozen: u64, cause: &Cause) -> bool {
        let attempt = self.begin_failure();
        attempt.is_some_and(|attempt| self.complete_failure(attempt, frozen, cause))
    }

    /// Writes the record of an attempt from [`PageLayout::begin_failure`], and completes it.
    ///
    /// False if a later attempt has replaced this one.
    pub(super) fn complete_failure(&self, attempt: Attempt, frozen: u64, cause: &Cause) -> bool {
        let record = self.record(attempt.writing());
        let text = &*cause.text;
        let mut length = text.len().min(CAUSE);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        for (to, byte) in record.cause.iter().zip(text[..length].bytes()) {
            to.store(byte, Ordering::Relaxed);
        }
        record.length.store(length as u32, Ordering::Relaxed);
        let loss = cause.lost.map_or((0, cause.code), Loss::to_fields);
        record.loss.store(loss.0, Ordering::Relaxed);
        record.code.store(loss.1, Ordering::Relaxed);
        let process = cause.lost.map_or(0, |lost| lost.process);
        record.process.store(process, Ordering::Relaxed);
        record.frozen.store(frozen, Ordering::Relaxed);
        let (writing, written) = (attempt.writing(), attempt.written());
        // `SeqCst` pairs with a thread that sets `sleepers` and then checks the page.
        self.failed
            .compare_exchange(writing, written, SeqCst, Relaxed)
            .is_ok()
    }

    /// The record of the attempt in `failed`.
    fn record(&self, failed: u32) -> &Record {
        let [first, second, third, fourth] = &self.records;
        match (failed >> 1) % RECORDS as u32 {
            1 => first,
            2 => second,
            3 => third,
            _ => fourth,
        }
    }

    /// Begins an attempt to write the failure.
    ///
    /// `None` if the failure is written already, or if `failed` keeps changing.
    pub(super) fn begin_failure(&self) -> Option<Attempt> {
        let (mut before, mut polls) = (NOT_FAILED, 0);
        for _ in 0..4 * WRITER_POLLS {
            let found = self.failed.load(Ordering::Acquire);
            if is_written(found) {
                return None;
            }
            if found != NOT_FAILED && (found != before || polls < WRITER_POLLS) {
                // Each writer has the full number of polls.
                polls = if found == before { polls + 1 } else { 0 };
                before = found;
                std::hint::spin_loop();
                continue;
            }
            let own = Attempt::after(found);
            let taken = self
                .failed
                .compare_exchange(found, own.writing(), AcqRel, Relaxed);
            if taken.is_ok() {
                return Some(own);
            }
        }
        None
    }

    /// The state of the page. Spins some 10 µs at most while the failure is being written.
    ///
    /// Does not spin if the caller knows that the writer is dead (`is_writer_dead`).
    pub(super) fn state(&self, is_writer_dead: bool) -> PageState {
        for _ in 0..if is_writer_dead { 1 } else { WRITER_POLLS } {
            match self.failed.load(Ordering::Acquire) {
                NOT_FAILED => return PageState::NotFailed,
                written if is_written(written) => {
                    let frozen = &self.record(written).frozen;
                    return PageState::Failed(frozen.load(Ordering::Relaxed));
                }
                _ => std::hint::spin_loop(),
            }
        }
        PageState::Failing
    }

    /// The [state](PageLayout::state), and the reached value that belongs to it.
    ///
    /// `before` is the value that the caller has read. `reached` reads the value again. Once the
    /// page has failed, another process may raise the value to release native waits. So a value
    /// that is read while the failure is being written is discarded if the failure was completed
    /// meanwhile. If that keeps happening, the value is `before`.
    pub(super) fn state_and_reached(
        &self,
        is_writer_dead: bool,
        before: u64,
        mut reached: impl FnMut() -> u64,
    ) -> (PageState, u64) {
        for _ in 0..READ_ATTEMPTS {
            let state = self.state(is_writer_dead);
            let value = match state {
                PageState::NotFailed => before,
                // The caller limits it to the frozen value.
                PageState::Failed(_) => reached(),
                PageState::Failing => {
                    let value = reached();
                    if is_written(self.failed.load(Ordering::SeqCst)) {
                        continue;
                    }
                    value
                }
            };
            return (state, value);
        }
        (PageState::Failing, before)
    }

    /// The cause of the failure. Its length is bounded, whatever the page holds.
    pub(super) fn cause(&self) -> Cause {
        let failed = self.failed.load(Ordering::Acquire);
        if !is_written(failed) {
            return Cause {
                code: 0,
                text: "it has not said why, or not yet".into(),
                lost: None,
            };
        }
        let record = self.record(failed);
        let length = record.length.load(Ordering::Relaxed) as usize;
        let bytes: Vec<u8> = record.cause[..length.min(CAUSE)]
            .iter()
            .map(|byte| byte.load(Ordering::Relaxed))
            .collect();
        let text = String::from_utf8_lossy(&bytes);
        let code = record.code.load(Ordering::Relaxed);
        let process = record.process.load(Ordering::Relaxed);
        Cause {
            code,
            lost: Loss::from_fields(process, record.loss.load(Ordering::Relaxed), code),
            // Keeps the error text on one line.
            text: text.replace(char::is_control, "\u{fffd}"),
        }
    }
}

/// Checks the magic and the version of a page.
///
/// # Errors
/// A description of what is wrong.
pub(super) fn check_header(header: [u8; HEADER]) -> Result<(), String> {
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
