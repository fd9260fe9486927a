//! The interface between queues and traces.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::base::error::{Error, Object, Result};
use crate::base::info::Info;
use crate::base::sync::Mutex;
use crate::clock::Clock;
use crate::port::Stamp;
use crate::timeline::point::{Point, Signal};
use crate::timeline::state::Shared;

/// Observes the submissions of one queue. A trace implements it.
pub(crate) trait Follow: Send + Sync {
    /// Called before a submission is made. `None` if the follower does not record it.
    ///
    /// `stamps` makes the stamps for its beginning and its end.
    fn begin(
        self: Arc<Self>,
        waits: &[Point<'_>],
        signals: &[Signal<'_>],
        stamps: &mut dyn FnMut() -> Result<[Arc<dyn Stamp>; 2]>,
    ) -> Option<Arc<dyn FollowSubmission>>;
}

/// Observes one submission.
pub(crate) trait FollowSubmission: Send + Sync {
    /// The queue has accepted the submission.
    fn accepted(self: Arc<Self>, number: u64, is_held: bool);

    /// The work is about to be recorded.
    fn released(&self);

    /// All of the work has been recorded.
    fn recorded(&self);

    /// The work could not be recorded.
    fn failed(&self, cause: &dyn Display);
}

/// The follower of a queue. Usually there is none; that check is one load.
#[derive(Default)]
pub(super) struct FollowerSlot {
    /// Not modelled by loom, because it orders nothing.
    is_set: AtomicBool,
    follower: Mutex<Option<Arc<dyn Follow>>>,
}

impl FollowerSlot {
    /// Sets the follower that `make` returns. `None` without calling `make` if there is a follower.
    fn set<F: Follow + 'static>(&self, make: impl FnOnce() -> Arc<F>) -> Option<Arc<F>> {
        let mut follower = self.follower.lock();
        if follower.is_some() {
            return None;
        }
        let made = make();
        *follower = Some(made.clone());
        self.is_set.store(true, Ordering::Relaxed);
        Some(made)
    }

    fn remove(&self) {
        self.is_set.store(false, Ordering::Relaxed);
        let before = self.follower.lock().take();
        // Without the lock, because this may drop the last handle of a timeline.
        drop(before);
    }

    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    pub(super) fn get(&self) -> Option<Arc<dyn Follow>> {
        self.follower.lock().clone()
    }
}

/// A queue that can have a follower.
pub(super) trait Traced: Send + Sync {
    fn follower(&self) -> &FollowerSlot;
}

/// A queue as a [`Trace`](crate::trace::Trace) follows it.
///
/// Made by [`SubmissionQueue::traceable`](crate::backend::SubmissionQueue::traceable).
pub struct Traceable {
    queue: Weak<dyn Traced>,
    object: Object,
    device: Info,
    own: Arc<Shared>,
    /// The device's clock, or the reason why there is none.
    clock: std::result::Result<Clock, String>,
}

impl Traceable {
    pub(super) fn new(
        queue: Weak<dyn Traced>,
        object: &Object,
        own: &Arc<Shared>,
        device: &Info,
        clock: Result<Clock>,
    ) -> Self {
        Self {
            queue,
            object: object.clone(),
            device: device.clone(),
            own: own.clone(),
            clock: clock.map_err(|error| error.to_string()),
        }
    }

    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }

    /// The queue's device.
    pub(crate) const fn device(&self) -> &Info {
        &self.device
    }

    /// The queue's position.
    pub(crate) const fn own(&self) -> &Arc<Shared> {
        &self.own
    }

    /// The device's clock, or the reason why there is none.
    pub(crate) fn clock(&self) -> std::result::Result<&Clock, &str> {
        self.clock.as_ref().map_err(String::as_str)
    }

    /// Makes the follower that `make` returns observe the queue.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the queue has a follower. `make` is not called then.
    pub(crate) fn follow<F: Follow + 'static>(
        self,
        make: impl FnOnce(Self) -> Arc<F>,
    ) -> Result<Arc<F>> {
        let object = self.object.clone();
        let queue = self.queue.upgrade();
        let made = queue.and_then(|queue| queue.follower().set(|| make(self)));
        made.ok_or_else(|| Error::Unsupported {
            object,
            asked: "be traced".into(),
            reason: "a trace follows it already".into(),
        })
    }

    /// Removes the queue's follower.
    pub(crate) fn remove_follower(&self) {
        if let Some(queue) = self.queue.upgrade() {
            queue.follower().remove();
        }
    }
}

impl std::fmt::Debug for Traceable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Traceable({})", self.object)
    }
}
