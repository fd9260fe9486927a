//! The room that a submission has taken, put aside by who drives.

use crate::sync::{AtomicU64, Ordering};

/// One submission's number and the room that it has taken. The thread that drives the lane leaves them here and takes no
/// lock for that; whoever has the lock next takes them up.
#[derive(Debug)]
pub(super) struct Aside {
    number: AtomicU64,
    /// 0 if there is nothing. Written last by who leaves something, and back to 0 under the lock.
    units: AtomicU64,
}

impl Aside {
    pub(super) fn new() -> Self {
        Self {
            number: AtomicU64::new(0),
            units: AtomicU64::new(0),
        }
    }

    /// Leaves what the submission `number` has taken, which is not 0. False if something is still here. Only for the
    /// thread that drives.
    #[inline]
    pub(super) fn put(&self, number: u64, units: u64) -> bool {
        if self.units.load(Ordering::Acquire) != 0 {
            return false;
        }
        self.number.store(number, Ordering::Relaxed);
        self.units.store(units, Ordering::Release);
        true
    }

    /// What is here. With the lock.
    #[inline]
    pub(super) fn take(&self) -> Option<(u64, u64)> {
        let units = self.units.load(Ordering::Acquire);
        if units == 0 {
            return None;
        }
        let number = self.number.load(Ordering::Relaxed);
        self.units.store(0, Ordering::Release);
        Some((number, units))
    }
}
