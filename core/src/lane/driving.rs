//! Who hands a lane's submissions to the driver.

use crate::sync::{AtomicU64, Ordering, ThreadId};

/// The thread that drives a lane, and whether somebody has left it a note to look again. One word, so that a thread
/// whose submission went straight to the driver gives the lane up without the lock of its state.
///
/// Except for that, all of this is called with the lock.
#[derive(Debug)]
pub(super) struct Driving(AtomicU64);

/// Nobody drives.
const NOBODY: u64 = 0;

/// The lowest bit is the note, the others are the thread.
const NOTE: u64 = 1;

#[inline]
const fn by(thread: ThreadId) -> u64 {
    thread.number() << 1
}

impl Driving {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(NOBODY))
    }

    /// True if `thread` drives.
    #[inline]
    pub(super) fn is_by(&self, thread: ThreadId) -> bool {
        self.0.load(Ordering::Acquire) & !NOTE == by(thread)
    }

    /// True if nobody drives.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.0.load(Ordering::Acquire) == NOBODY
    }

    /// `thread` drives from now on, or goes on to: what it was left notes of it is about to see.
    #[inline]
    pub(super) fn take(&self, thread: ThreadId) {
        self.0.store(by(thread), Ordering::Release);
    }

    /// Leaves a note. False if nobody drives.
    pub(super) fn note(&self) -> bool {
        let now = self.0.load(Ordering::Acquire);
        // The only other change is to nobody, and then it is that.
        now != NOBODY && (now & NOTE != 0 || self.change(now, now | NOTE))
    }

    /// True if there is a note for the thread that drives.
    pub(super) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Acquire) & NOTE != 0
    }

    /// Nobody drives any more.
    #[inline]
    pub(super) fn give_up(&self) {
        self.0.store(NOBODY, Ordering::Release);
    }

    /// As [`Driving::give_up`] by `thread`, but false if there is a note. Needs no lock.
    #[inline]
    pub(super) fn give_up_unless_noted(&self, thread: ThreadId) -> bool {
        self.change(by(thread), NOBODY)
    }

    #[inline]
    fn change(&self, from: u64, to: u64) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}
