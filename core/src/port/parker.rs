//! Threads of the host that can be woken while they wait.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crate::base::run::Wake;
use crate::base::sync::{
    AtomicBool, Mutex, Ordering, Thread, current, park, park_timeout, per_thread,
};
use crate::port::Watch;

/// Allocates what this thread needs to wait, to wake others, and to send what they have held. Called by each thread of the
/// engine when it starts, because the first of these may come long after set-up (H1).
pub(crate) fn prepare_thread() {
    drop(Parker::current());
    crate::base::stored_closure::prepare_thread();
    crate::base::run::prepare_thread();
}

/// A thread that can be woken by a timeline. One per thread, made on its first parking wait at the latest.
pub(crate) struct Parker {
    thread: Thread,
    woken: AtomicBool,
    /// The device that it watches itself, at present, in place of being parked.
    watches: Mutex<Option<Arc<dyn Watch>>>,
}

impl Parker {
    /// Forgets earlier wakes. Call before this thread registers to wait.
    pub(crate) fn begin(&self) {
        self.woken.store(false, Ordering::Relaxed);
    }

    pub(crate) fn current() -> Arc<Self> {
        per_thread! { static PARKER: RefCell<Option<Arc<Parker>>> = RefCell::new(None) }
        let new = || {
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

    /// Parks until woken or `left` is over. Others may unpark this thread for their own reasons.
    pub(crate) fn park(&self, left: Option<Duration>) {
        if !self.woken.swap(false, Ordering::Acquire) {
            match left {
                Some(left) => park_timeout(left),
                None => park(),
            }
        }
        self.woken.store(false, Ordering::Release);
    }

    /// In place of [`Parker::park`], where this thread watches itself: a wake nudges the device
    /// meanwhile. `None`, without a watch, if this thread has been woken.
    pub(crate) fn watch<T>(&self, device: &Arc<dyn Watch>, watch: impl FnOnce() -> T) -> Option<T> {
        {
            let mut watches = self.watches.lock();
            if self.woken.swap(false, Ordering::Acquire) {
                return None;
            }
            *watches = Some(device.clone());
        }
        let watched = watch();
        // What comes of it may wake this thread, which needs no nudge for that.
        let device = self.watches.lock().take();
        drop(device);
        // What the waker did comes before the next look.
        self.woken.swap(false, Ordering::AcqRel);
        Some(watched)
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        let watches = self.watches.lock();
        self.woken.store(true, Ordering::Release);
        match &*watches {
            Some(device) => device.nudge(),
            None => self.thread.unpark(),
        }
    }

    fn is_prompt(&self) -> bool {
        true
    }
}
