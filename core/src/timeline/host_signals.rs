//! Observers of the host signals of a timeline.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::base::error::Result;
use crate::base::sync::Mutex;
use crate::clock::HostClock;
use crate::timeline::state::Shared;

/// Observes host signals of timelines. A trace implements it.
pub(crate) trait ObserveHostSignals: Send + Sync {
    /// The host is about to signal `value`. `at` is the time on the host's monotonic clock in ns.
    fn note(&self, timeline: &Shared, value: u64, at: i64);

    /// The signal that was noted with the same arguments was refused.
    fn forget(&self, timeline: &Shared, value: u64, at: i64);
}

/// The observers of one timeline. Usually empty; that check is one load.
#[derive(Default)]
pub(crate) struct HostSignalObservers {
    /// Not modelled by loom, because it orders nothing.
    any: AtomicBool,
    observers: Mutex<Vec<Weak<dyn ObserveHostSignals>>>,
}

impl HostSignalObservers {
    /// Adds an observer. Returns false if it is already present.
    pub(crate) fn add(&self, observer: &Arc<dyn ObserveHostSignals>) -> bool {
        let mut observers = self.observers.lock();
        if observers.iter().any(|known| is_same(known, observer)) {
            return false;
        }
        observers.push(Arc::downgrade(observer));
        self.any.store(true, Ordering::Relaxed);
        true
    }

    /// Removes `observer`, and the observers that have been dropped.
    pub(crate) fn remove(&self, observer: &Arc<dyn ObserveHostSignals>) {
        let mut observers = self.observers.lock();
        observers.retain(|known| known.strong_count() > 0 && !is_same(known, observer));
        self.any.store(!observers.is_empty(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Notes the signal of `value` with the observers, then calls `signal`, which makes it.
    ///
    /// The order matters: a waiter that the signal wakes may end a trace.
    ///
    /// # Errors
    /// The error of `signal`. The observers then forget the signal.
    #[cold]
    pub(crate) fn observe(
        &self,
        timeline: &Shared,
        value: u64,
        signal: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let at = HostClock::Monotonic.now();
        let mut observers: SmallVec<[Arc<dyn ObserveHostSignals>; 2]> = SmallVec::new();
        {
            let mut known = self.observers.lock();
            // A trace may have ended while one of its threads added it here.
            known.retain(|known| known.upgrade().map(|one| observers.push(one)).is_some());
            self.any.store(!known.is_empty(), Ordering::Relaxed);
        }
        for observer in &observers {
            observer.note(timeline, value, at);
        }
        signal().inspect_err(|_| {
            for observer in &observers {
                observer.forget(timeline, value, at);
            }
        })
    }
}

fn is_same(known: &Weak<dyn ObserveHostSignals>, observer: &Arc<dyn ObserveHostSignals>) -> bool {
    std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(observer))
}
