//! How a backend's queue hands submissions to its driver.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::base::error::{Error, Object, Result};
use crate::base::timing::Timing;
use crate::driver::in_flight::InFlightBudget;
use crate::driver::keep::Keep;
use crate::port::Stamp;
use crate::timeline::point::{Completion, NativePoint};

/// What the engine hands to a backend: one whole submission.
#[derive(Debug)]
pub struct Batch<'a> {
    /// To be reached before the work starts. All are pending or reached on a port of this device.
    pub waits: &'a [NativePoint<'a>],
    /// To be reached after the work and before the signals: values of the same timelines that other
    /// queues signal first.
    pub order: &'a [NativePoint<'a>],
    /// To be signalled after the work, each on a port of this device.
    pub signals: &'a [NativePoint<'a>],
    /// Signals without a port on this device: the engine makes them once `end` is reached. A backend
    /// whose work can fail and `end` still come fails them before that; nobody else has to do anything.
    pub relayed: &'a [Completion],
    /// The queue's own timeline, to be signalled last. Its value is the submission's number.
    pub end: NativePoint<'a>,
    /// See [`Batch::stamp`].
    pub(crate) times: Written<'a>,
    /// The work is the engine's own: nothing, or the writing of a [stamp](Enqueue::write_stamp). What a backend does for an application's
    /// work alone, such as making its context current on the thread, it can leave out.
    pub is_bare: bool,
}

/// Where the time of a submission's signals is to be written, if one of them wants it.
#[derive(Clone, Copy)]
pub(crate) struct Written<'a>(pub(crate) Option<&'a Arc<dyn Stamp>>);

impl std::fmt::Debug for Written<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "a time"
        } else {
            "no time"
        })
    }
}

impl Batch<'_> {
    /// A time to be written where the signals stand: behind `order`, and before the first of them. It is one that this queue
    /// [has made](Enqueue::stamp), of its own type `S`, for [`Timing::Clock`]; mostly there is none. A backend keeps it until the submission has
    /// finished.
    #[must_use]
    #[inline]
    pub fn stamp<S: Stamp>(&self) -> Option<Arc<S>> {
        let Written(stamp) = self.times;
        let stamp: Arc<dyn Any + Send + Sync> = stamp?.clone();
        stamp.downcast().ok()
    }

    /// Submissions of the queue up to this number are known to have finished. A load, of what another thread may be writing.
    #[must_use]
    #[inline]
    pub fn finished(&self) -> u64 {
        self.end.of.reached()
    }
}

/// What becomes of a submission that is handed to the driver.
#[derive(Debug)]
pub enum Flush<P> {
    /// The driver has taken it.
    Done,
    /// The driver's queue is locked by somebody else, who wakes the queue when it unlocks.
    Busy(P),
    /// The driver refused it; nothing of it will be signalled.
    Refused(Error),
}

/// How a backend's queue hands submissions to its driver. The [`SubmissionQueue`](crate::backend::SubmissionQueue) calls it, one submission at a time.
pub trait Enqueue: Send + Sync + Sized + 'static {
    /// Records the work of one submission.
    ///
    /// It borrows the state that [`Enqueue::record`] keeps of the submission, and contains an
    /// [`InvariantLifetime`]. Then the recorders of two submissions are of different types, and
    /// none outlives its work. A recorder that owns its state can be exchanged for the recorder of
    /// another submission: safe crates such as `replace_with` move a value out of a `&mut`, and
    /// safe nested work can get it through a thread-local.
    type Recorder<'a>;
    /// A recorded submission that the driver does not have yet; `()` where recording submits.
    type Prepared: Send + 'static;
    /// A time that the device writes; [`NoStamp`] if it writes none.
    type Stamp: Stamp;
    /// How many submissions of one queue, empty ones and records of fences among them, may be in flight before
    /// further ones are held on the host, so that a driver whose queue is full never blocks the thread that must
    /// open a gate.
    const MAX_IN_FLIGHT: u64 = u64::MAX;

    /// What this queue has in flight besides counts here, together with that of every queue which names the
    /// same budget: for drivers that block on what submissions are made of, or where queues share what fills up.
    /// Asked once, when the queue is made.
    fn in_flight_budget(&self) -> Option<&Arc<InFlightBudget>> {
        None
    }

    /// Identifies the driver queue that this queue submits to, if other queues share it.
    ///
    /// Signals of one driver queue keep their order without a wait. The number is unique in the
    /// process and never 0, like [`Object::id`]. With `None` the queue has a driver queue of its
    /// own. Called once, when the queue is made.
    fn order_domain(&self) -> Option<u64> {
        None
    }

    /// Asked before each record: false puts the submission off, and the device's watcher asks again every few
    /// milliseconds. Each true is followed by one [`Enqueue::record`] on the same thread, so that a backend can
    /// take a lock in the one and release it in the other. For queues that an application lends, and may use
    /// for a while in a way that leaves no place for submissions.
    fn ready(&self) -> bool {
        true
    }

    /// Records one submission: calls `work` exactly once between waits and signals. What the work
    /// keeps goes into `keep` and lives until the submission has finished.
    ///
    /// # Errors
    /// What `work` returned, or a driver error. Nothing of `batch` may be signalled then; work that the
    /// driver already has is in order before the next submission, which the engine makes at once.
    fn record<W>(&self, batch: &Batch<'_>, keep: &mut Keep, work: W) -> Result<Self::Prepared>
    where
        W: for<'r, 'a> FnOnce(&'r mut Self::Recorder<'a>) -> Result<()>;

    /// Hands it to the driver. Never blocks: if the driver's queue is locked, `waker` is woken by
    /// whoever unlocks it.
    fn flush(&self, prepared: Self::Prepared, waker: &dyn Fn() -> Waker) -> Flush<Self::Prepared>;

    /// What was submitted up to the submission `reached` has finished, and somebody has waited for that
    /// ([`Queue::idle`](crate::backend::Queue::idle)): a good moment to take back what it used, besides later records. Called on any thread, also
    /// while others submit.
    fn rest(&self, reached: u64) {
        let _ = reached;
    }

    /// Returns a stamp of `queue` for a time that the device writes.
    ///
    /// For [`Timing::Clock`] the device's clock has been made before. Never called with
    /// [`Timing::None`]. A queue without timestamps keeps this default.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on queues without timestamps; a driver error.
    fn stamp(&self, queue: &Object, timing: Timing) -> Result<Arc<Self::Stamp>> {
        let _ = timing;
        Err(Error::Unsupported {
            object: queue.clone(),
            asked: "write a time".into(),
            reason: "its backend writes no times".into(),
        })
    }

    /// Returns a stamp like [`Enqueue::stamp`]. The caller gives back the stamp `before`.
    ///
    /// This queue made `before` for the same timing. Other owners may still have it, and the device
    /// may not have written it yet. [`Recycled::take_again`](crate::backend::Recycled::take_again)
    /// returns it if it can be used again.
    ///
    /// # Errors
    /// Same errors as [`Enqueue::stamp`].
    fn stamp_again(
        &self,
        queue: &Object,
        timing: Timing,
        before: Arc<Self::Stamp>,
    ) -> Result<Arc<Self::Stamp>> {
        drop(before);
        self.stamp(queue, timing)
    }

    /// Records that the device writes `stamp`. A backend that has [stamps](Enqueue::stamp)
    /// implements it.
    ///
    /// # Errors
    /// A driver error.
    fn write_stamp(recorder: &mut Self::Recorder<'_>, stamp: &Arc<Self::Stamp>) -> Result<()> {
        let _ = (recorder, stamp);
        Ok(())
    }
}

/// The stamp of queues without timestamps. There is no value of it.
#[derive(Debug)]
pub enum NoStamp {}

impl Stamp for NoStamp {
    fn nanoseconds_since(&self, _: &dyn Stamp) -> Result<i64> {
        match *self {}
    }
}

/// Makes a type invariant in `'a`: neither a longer nor a shorter lifetime fits in its place.
///
/// For [`Enqueue::Recorder`]. Each submission's work is called with a lifetime of its own, so the
/// type of its recorder is the type of no other recorder.
pub type InvariantLifetime<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// Wakes a queue whose driver queue was locked. Cheap to clone; may be called more than once.
#[derive(Clone)]
pub struct Waker(pub(crate) Arc<dyn crate::base::run::Wake>);

impl Waker {
    /// Lets the queue try again, on this thread. Call it with no lock held.
    pub fn wake(self) {
        crate::base::run::wake_all([self.0]);
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}
