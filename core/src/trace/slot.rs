//! Where timelines and lanes know who follows them: mostly nobody, which a look at a flag tells.
//!
//! The flags are not of the engine's own atomics: nothing is ordered by them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use smallvec::SmallVec;

use super::{Follower, Inner, lock};
use crate::base::error::Result;
use crate::clock::HostClock;
use crate::timeline::state::Shared;

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

/// A timeline's: the traces that are told of the host's signals.
#[derive(Default)]
pub(crate) struct Slot {
    taken: AtomicBool,
    by: Mutex<Vec<Weak<Inner>>>,
}

impl Slot {
    /// Tells `by`, too, from now on; false if it was told already.
    pub(super) fn take(&self, by: &Arc<Inner>) -> bool {
        let mut all = lock(&self.by);
        if all.iter().any(|one| one.as_ptr() == Arc::as_ptr(by)) {
            return false;
        }
        all.push(Arc::downgrade(by));
        self.taken.store(true, Ordering::Relaxed);
        true
    }

    /// Tells `by` no more, nor those that are gone.
    pub(super) fn leave(&self, by: &Arc<Inner>) {
        let mut all = lock(&self.by);
        all.retain(|one| one.strong_count() > 0 && one.as_ptr() != Arc::as_ptr(by));
        self.taken.store(!all.is_empty(), Ordering::Relaxed);
    }

    /// True if somebody is told.
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// Makes a signal of the host, and tells who is to be told: before, as what it releases may end a trace.
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
        let told: SmallVec<[Arc<Inner>; 2]> =
            lock(&self.by).iter().filter_map(Weak::upgrade).collect();
        for by in &told {
            by.note_signal(timeline, value, at);
        }
        make().inspect_err(|_| {
            for by in &told {
                by.forget_signal(timeline, value, at);
            }
        })
    }
}
