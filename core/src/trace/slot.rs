//! Where timelines and lanes know who follows them: mostly nobody, which a look at a flag tells.
//!
//! The flags are not of the engine's own atomics: nothing is ordered by them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::{Follower, Inner, lock};
use crate::clock::HostClock;
use crate::error::Result;
use crate::state::Shared;

/// A lane's: who follows it.
#[derive(Default)]
pub(crate) struct Followed {
    taken: AtomicBool,
    by: Mutex<Option<Arc<Follower>>>,
}

impl Followed {
    /// Takes it with what `make` returns; `None` if somebody has it.
    pub(crate) fn take(&self, make: impl FnOnce() -> Arc<Follower>) -> Option<Arc<Follower>> {
        let mut slot = lock(&self.by);
        if slot.is_some() {
            return None;
        }
        let by = slot.insert(make()).clone();
        self.taken.store(true, Ordering::Relaxed);
        Some(by)
    }

    /// Free for the next.
    pub(crate) fn leave(&self) {
        self.taken.store(false, Ordering::Relaxed);
        let before = lock(&self.by).take();
        // Outside the lock: it may be the last who has some timeline.
        drop(before);
    }

    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn by(&self) -> Option<Arc<Follower>> {
        lock(&self.by).clone()
    }
}

/// A timeline's: who is told of the host's signals. At most one trace.
#[derive(Default)]
pub(crate) struct Slot {
    taken: AtomicBool,
    by: Mutex<Weak<Inner>>,
}

impl Slot {
    /// False if it was taken already.
    pub(super) fn take(&self, by: &Arc<Inner>) -> bool {
        let mut slot = lock(&self.by);
        if slot.strong_count() > 0 {
            return false;
        }
        *slot = Arc::downgrade(by);
        self.taken.store(true, Ordering::Relaxed);
        true
    }

    /// Free for the next, if `by` has it.
    pub(super) fn leave(&self, by: &Arc<Inner>) {
        let mut slot = lock(&self.by);
        if Weak::as_ptr(&slot) == Arc::as_ptr(by) {
            *slot = Weak::new();
            self.taken.store(false, Ordering::Relaxed);
        }
    }

    /// True if somebody has it.
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// Makes a signal of the host, and tells who has this: before, as what it releases may end the trace.
    ///
    /// # Errors
    /// That of `make`; nobody is told then.
    #[cold]
    pub(crate) fn note_signal(
        &self,
        timeline: &Shared,
        value: u64,
        make: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let at = HostClock::Monotonic.now();
        let by = lock(&self.by).upgrade();
        if let Some(by) = &by {
            by.note_signal(timeline, value, at);
        }
        make().inspect_err(|_| {
            if let Some(by) = &by {
                by.forget_signal(timeline, value, at);
            }
        })
    }
}
