//! Threads that can be woken while they wait.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crate::base::exiting::note_parking;
use crate::base::run::Wake;
use crate::base::sync::{
    AtomicBool, Mutex, Ordering, Thread, current, park, park_timeout, per_thread,
};
use crate::port::watch::{Watch, nudge};

/// Allocates what this thread needs to wait, to wake other threads, and to send held submissions.
///
/// Each thread of the engine calls it when it starts. The first of these events may come long after
/// set-up, when nothing may be allocated (H1).
pub(crate) fn prepare_thread() {
    drop(Parker::current());
    crate::base::stored_closure::prepare_thread();
    crate::base::run::prepare_thread();
}

/// A thread that timelines can wake. One per thread, made at its first parking wait at the latest.
pub(crate) struct Parker {
    thread: Thread,
    woken: AtomicBool,
    /// The device that the thread watches now instead of being parked.
    watches: Mutex<Option<Arc<dyn Watch>>>,
}

impl Parker {
    /// Forgets earlier wakes. Call before this thread registers to wait.
    pub(crate) fn begin(&self) {
        self.woken.store(false, Ordering::Relaxed);
    }

    /// The parker of the calling thread.
    pub(crate) fn current() -> Arc<Self> {
        per_thread! { static PARKER: RefCell<Option<Arc<Parker>>> = RefCell::new(None) }
        let new = || {
            note_parking();
            Arc::new(Self {
                thread: current(),
                woken: AtomicBool::new(false),
                watches: Mutex::default(),
            })
        };
        PARKER
            .try_with(|own| own.borrow_mut().get_or_insert_with(new).clone())
            .unwrap_or_else(|_| new())
    }

    /// Parks until a wake, or for `left` at most. May return early.
    pub(crate) fn park(&self, left: Option<Duration>) {
        if !self.woken.swap(false, Ordering::Acquire) {
            match left {
                Some(left) => park_timeout(left),
                None => park(),
            }
        }
        self.woken.store(false, Ordering::Release);
    }

    /// Calls `watch` instead of parking. A wake meanwhile nudges `device`.
    ///
    /// Returns `None` without a call if this thread has been woken.
    pub(crate) fn watch<T>(&self, device: &Arc<dyn Watch>, watch: impl FnOnce() -> T) -> Option<T> {
        {
            let mut watches = self.watches.lock();
            if self.woken.swap(false, Ordering::Acquire) {
                return None;
            }
            *watches = Some(device.clone());
        }
        let watched = watch();
        // A wake by what the watch has found needs no nudge.
        let device = self.watches.lock().take();
        drop(device);
        // Acquire what the waking thread did, before the caller checks again.
        self.woken.swap(false, Ordering::AcqRel);
        Some(watched)
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        let watches = self.watches.lock();
        self.woken.store(true, Ordering::Release);
        match &*watches {
            // With the lock: a clone could be the device's last handle, which must not be dropped
            // here.
            Some(device) => nudge(&**device),
            None => self.thread.unpark(),
        }
    }

    fn is_prompt(&self) -> bool {
        true
    }
}
