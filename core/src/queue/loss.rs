//! The loss of a queue's device: what the queue holds fails (E3).
//!
//! A driver reports a loss only in a call, and a held submission makes no call. So the watching
//! thread of the device checks the device while the queue holds submissions.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::submission_queue::SubmissionQueue;
use super::work::Work;
use crate::base::error::{Error, Failure};
use crate::base::info::DeviceId;
use crate::base::run::{Wake, run_contained, wake_all};
use crate::driver::enqueue::Enqueue;
use crate::held::Holder;
use crate::port::watch::{Guarded, Health, ROUND};

/// The watching thread does not check the device for the queue.
const UNGUARDED: u8 = 0;
/// The queue holds nothing. The next check ends the guard.
const EMPTY: u8 = 1;
/// The queue holds submissions, and the watching thread checks the device.
const HOLDS: u8 = 2;

/// The guard over what a queue holds against the loss of its device.
///
/// A part of its own, so that a check of a queue that holds nothing does not keep the queue.
pub(super) struct HeldGuard<E: Enqueue> {
    queue: Weak<SubmissionQueue<E>>,
    /// [`UNGUARDED`], [`EMPTY`] or [`HOLDS`]. Written under the queue's lock, except by a check.
    ///
    /// Loom does not model it, because no model loses a device.
    state: AtomicU8,
    /// Why the device is lost, once that is known.
    lost: OnceLock<Failure>,
}

impl<E: Enqueue> HeldGuard<E> {
    pub(super) fn new(queue: Weak<SubmissionQueue<E>>) -> Arc<Self> {
        Arc::new(Self {
            queue,
            state: AtomicU8::new(UNGUARDED),
            lost: OnceLock::new(),
        })
    }

    /// Notes that the queue holds nothing any more. Call it with the queue's lock.
    #[inline]
    pub(super) fn note_empty(&self) {
        if self.state.load(Ordering::Relaxed) == HOLDS {
            self.state.store(EMPTY, Ordering::Relaxed);
        }
    }
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Notes that a submission is held. Call it with the queue's lock, after adding it to the list.
    ///
    /// The watching thread checks the device while submissions are held. A device without a watch
    /// cannot be lost.
    #[inline]
    pub(super) fn note_held(&self) {
        let state = &self.held_guard.state;
        if state.load(Ordering::Relaxed) == HOLDS
            || state.swap(HOLDS, Ordering::Relaxed) != UNGUARDED
        {
            return;
        }
        let watch = self.own_shared().watch();
        // A model would start the watching thread.
        if let Some(watch) = watch.filter(|_| !cfg!(syncline_loom)) {
            let guarded: Weak<dyn Guarded> = Arc::downgrade(&self.held_guard) as _;
            watch.watcher().guard(guarded, self.device);
        }
    }

    /// Why the device is lost, once a check has found it while submissions were held.
    #[inline]
    pub(super) fn loss(&self) -> Option<&Failure> {
        self.held_guard.lost.get()
    }

    /// Fails everything that is held, because the device is lost.
    ///
    /// The position fails first, so nothing waits for it any more.
    fn fail_held(self: Arc<Self>, cause: Failure) {
        self.own_shared().fail(cause.clone());
        let _ = self.held_guard.lost.set(cause.clone());
        let (first, count, recorded) = {
            let mut state = self.lock();
            // So the wake below judges the first submission, whatever it lacks.
            state.missing = 0;
            let first = state.held.first();
            let recorded = first.filter(|(_, first)| matches!(first.work, Work::Recorded(_)));
            let recorded = recorded.and_then(|(_, first)| first.edges.clone());
            let number = first.map_or(0, |(number, _)| number);
            (number, state.held.len(), recorded)
        };
        // The driver may never take a recorded submission, because the application may keep the
        // lock of its `VkQueue`.
        if let Some(edges) = recorded {
            edges.fail(&cause);
            run_contained(|| drop(edges));
        }
        for number in (first..).take(count) {
            self.clone().reconsider(number);
        }
        wake_all([self as Arc<dyn Wake>]);
    }
}

impl<E: Enqueue> Guarded for HeldGuard<E> {
    fn check_device(&self, _: DeviceId) -> Health {
        let order = Ordering::Relaxed;
        let ended = self
            .state
            .compare_exchange(EMPTY, UNGUARDED, order, order)
            .is_ok();
        if ended {
            return Health::OwesNothing;
        }
        let Some(queue) = self.queue.upgrade() else {
            return Health::OwesNothing;
        };
        let checked = queue.own_shared().watch().map(|watch| watch.check());
        match checked {
            Some(Err(lost @ Error::DeviceLost { .. })) => queue.fail_held(lost.into_cause()),
            // Another error does not mean that the device has stopped. The queue may be the last
            // handle of objects of the application.
            _ => run_contained(|| drop(queue)),
        }
        Health::Works
    }

    fn recover_from_loss(&self, _: DeviceId) -> Duration {
        ROUND
    }
}
