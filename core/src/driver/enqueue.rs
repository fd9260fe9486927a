//! How a backend's queue hands submissions to its driver.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::base::error::{Error, Object, Result};
use crate::base::timing::Timing;
use crate::driver::home::Home;
use crate::driver::in_flight::InFlightBudget;
use crate::driver::in_use::Unused;
use crate::driver::keep::Keep;
use crate::port::Stamp;
use crate::timeline::point::{NativePoint, Relayed};
use crate::timeline::state::{Interval, Shared};

/// One submission of a queue with the driver's half `E`, as the engine hands it to a backend.
///
/// Only the engine makes one. So only the engine records on a queue: no other code can call
/// [`Enqueue::record`], and a driver's half cannot forward its submissions to that of another
/// backend (X7).
pub struct Batch<'a, E> {
    /// Points that the device waits for before the work starts.
    ///
    /// Each is pending or reached on a port of this device.
    pub waits: &'a [NativePoint<'a>],
    /// Points that the device waits for after the work and before the signals.
    ///
    /// They are lower values of the signalled timelines, which other queues signal.
    pub order: &'a [NativePoint<'a>],
    /// Points that the device signals after the work, each on a port of this device.
    pub signals: &'a [NativePoint<'a>],
    /// See [`Batch::relayed`].
    pub(crate) host_signals: &'a [(&'a Arc<Shared>, Interval)],
    /// The point of the queue's own timeline that the device signals last.
    ///
    /// Its value is the submission's number.
    pub end: NativePoint<'a>,
    /// See [`Batch::stamp`].
    pub(crate) times: &'a Option<Arc<dyn Stamp>>,
    /// True if the submission has no work of an application.
    ///
    /// Its work is empty, or only writes a [stamp](Enqueue::write_stamp). A backend can leave out
    /// what only an application's work needs, such as a current context on the thread.
    pub is_bare: bool,
    /// See [`Batch::attached`].
    pub(crate) attached: Option<&'a Arc<dyn Any + Send + Sync>>,
    /// See [`Batch::signalled`].
    pub(crate) signalled: Cell<bool>,
    /// The queue's type, which makes this the batch of no other queue.
    pub(crate) of: PhantomData<fn() -> E>,
}

impl<E> std::fmt::Debug for Batch<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("waits", &self.waits)
            .field("order", &self.order)
            .field("signals", &self.signals)
            .field("relayed", &self.host_signals)
            .field("end", &self.end)
            .field("has_times", &self.times.is_some())
            .field("is_bare", &self.is_bare)
            .field("has_attached", &self.attached.is_some())
            .finish()
    }
}

impl<E> Batch<'_, E> {
    /// The stamp that the device must write after the waits of `order` and before the first signal.
    ///
    /// `None` for most submissions. This queue [made](Enqueue::stamp) it for [`Timing::Clock`], and
    /// `S` is its [`Enqueue::Stamp`]. The backend keeps it until the submission has finished.
    #[must_use]
    #[inline(always)]
    pub fn stamp<S: Stamp>(&self) -> Option<Arc<S>> {
        let stamp: Arc<dyn Any + Send + Sync> = self.times.as_ref()?.clone();
        stamp.downcast().ok()
    }

    /// What the backend has attached to this submission, if that is a `T`.
    ///
    /// `None` for most submissions. See
    /// [`submit_attached`](crate::backend::SubmissionQueue::submit_attached).
    #[must_use]
    #[inline]
    pub fn attached<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.attached?.clone().downcast().ok()
    }

    /// Set it to true once the driver has one of `signals`.
    ///
    /// From then on an error of [`Enqueue::record`] refuses nothing. The engine fails the timelines
    /// of the signals with it, and makes no signal in their place (Q5). It then makes `end` next,
    /// as after a refusal.
    #[must_use]
    #[inline]
    pub const fn signalled(&self) -> &Cell<bool> {
        &self.signalled
    }

    /// Signals without a port on this device. The engine makes them once `end` is reached.
    ///
    /// Most backends ignore them. If `end` can be reached although the work failed, the backend
    /// must fail these signals before it signals `end`.
    #[inline]
    pub fn relayed(&self) -> impl ExactSizeIterator<Item = Relayed> + use<'_, E> {
        let signals = self.host_signals.iter();
        signals.map(|(of, claim)| Relayed::of((*of).clone(), claim.upto))
    }

    /// The number up to which submissions of the queue are known to have finished.
    ///
    /// This is one atomic load. Other threads may raise the number at the same time.
    #[must_use]
    #[inline]
    pub fn finished(&self) -> u64 {
        self.end.of.reached()
    }
}

/// The result of handing a submission to the driver.
#[derive(Debug)]
pub enum Flush {
    /// The driver has accepted the submission.
    Done,
    /// Another thread holds the lock of the driver queue. It wakes this queue when it unlocks.
    ///
    /// The engine then flushes the same submission again, before it records another one. Only after
    /// a broken promise (T2) it does not. Then the next record removes the submission.
    Busy,
    /// The driver refused the submission. None of its signals will be made.
    Refused(Error),
}

/// A stamp that a recorder shall write. Only the engine makes one.
///
/// So the device writes a stamp only into a submission of the queue that made the stamp.
pub struct ToWrite<'a, E: Enqueue>(&'a Arc<E::Stamp>);

impl<'a, E: Enqueue> ToWrite<'a, E> {
    #[inline]
    pub(crate) const fn new(stamp: &'a Arc<E::Stamp>) -> Self {
        Self(stamp)
    }
}

impl<E: Enqueue> Deref for ToWrite<'_, E> {
    type Target = Arc<E::Stamp>;

    #[inline]
    fn deref(&self) -> &Arc<E::Stamp> {
        self.0
    }
}

impl<E: Enqueue> std::fmt::Debug for ToWrite<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ToWrite")
    }
}

/// How a backend's queue hands submissions to its driver.
///
/// The [`SubmissionQueue`](crate::backend::SubmissionQueue) calls it for one submission at a time.
/// Other code can call the methods that need no [`Batch`] and no [`ToWrite`], with a default
/// [state](Enqueue::State). So with a default state, no call gives anything to the driver.
pub trait Enqueue: Send + Sync + Sized + 'static {
    /// The type of its device. Only queues of that device have this type as their driver's half.
    type Device: Home<Enqueue = Self>;

    /// Records the work of one submission.
    ///
    /// It borrows a part of the [state](Enqueue::State), and has an [`InvariantLifetime`] as a
    /// field. Then safe code can neither exchange the recorders of two submissions nor keep one. A
    /// recorder that owns its state could be exchanged: safe crates such as `replace_with` move a
    /// value out of a `&mut`, and safe nested work can get it through a thread-local.
    type Recorder<'a>;
    /// What [`Enqueue::record`] needs from a driver queue that can take a submission now.
    ///
    /// Such as the guard of the driver queue's lock. `()` if nothing is needed.
    type Ready<'a>;
    /// The recorded submission, and what the thread that submits needs, such as a command pool.
    ///
    /// A queue has one value. The engine gives it to one call at a time, so it needs no lock. `()`
    /// if nothing is needed. The engine drops it, on any thread and after the [`Enqueue`] itself,
    /// once the driver has finished the queue's work or the device is lost. So it keeps the device
    /// if its drop needs the device.
    type State: Default + Send + 'static;
    /// A time that the device writes. [`NoStamp`] if the device writes no times.
    type Stamp: Stamp;
    /// The largest number of submissions of one queue that may be in flight.
    ///
    /// The engine holds further submissions on the host. So a driver that blocks its caller when
    /// its queue is full never blocks the thread that must make the next signal. Empty submissions
    /// and records of fences count, too.
    const MAX_IN_FLIGHT: u64 = u64::MAX;

    /// The device of the queue. The engine makes the queue's own timeline there, once, at creation.
    fn device(&self) -> &Self::Device;

    /// The in-flight budget that this queue shares with other queues. Called once, at creation.
    ///
    /// It bounds what all queues that return the same budget have in flight, besides
    /// [`MAX_IN_FLIGHT`](Self::MAX_IN_FLIGHT). It is for drivers that block on the parts of a
    /// submission, or whose queues share the resource that fills up.
    fn in_flight_budget(&self) -> Option<&Arc<InFlightBudget>> {
        None
    }

    /// Identifies the driver queue that this queue submits to, if other queues share it.
    ///
    /// Signals of one driver queue keep their order without a wait. The number is unique in the
    /// process and never 0, like [`Object::id`]. With `None` the queue has a driver queue of its
    /// own. Called once, at creation.
    fn order_domain(&self) -> Option<u64> {
        None
    }

    /// Prepares the driver queue for one record. `None` if it takes no submission now.
    ///
    /// The engine calls this before each record. It gives the value to [`Enqueue::record`] on the
    /// same thread, or drops it. The drop must undo what this call has done. So a backend can take
    /// a lock here, and its guard is the value.
    ///
    /// After `None` the engine delays the submission, and the device's watcher asks again every few
    /// milliseconds. So a backend that returns `None` needs a [`Watch`](crate::backend::Watch).
    /// This is for driver queues that an application lends and sometimes uses in a way that allows
    /// no submissions, such as a stream during capture. Other backends return `Some(())`.
    fn ready(&self) -> Option<Self::Ready<'_>>;

    /// Records one submission. `ready` is from [`Enqueue::ready`] of this queue.
    ///
    /// Calls `work` once between the waits and the signals, unless it fails before that. The
    /// objects that the work needs go into `keep`, which lives until the submission has finished.
    ///
    /// After an error, this call has removed the submission from `state`, and nothing else. A panic
    /// of `work` is such an error. A panic of this call itself may leave the submission there. The
    /// next call removes that.
    ///
    /// # Errors
    /// The error of `work`, or a driver error. No signal of `batch` may be made then, unless
    /// [`Batch::signalled`] says so. Work that the driver already has runs before the next
    /// submission. The engine makes that next, without work but with the same number and `keep`. If
    /// it is refused, too, the queue fails.
    fn record<W>(
        &self,
        ready: Self::Ready<'_>,
        state: &mut Self::State,
        batch: &Batch<'_, Self>,
        keep: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut Self::Recorder<'a>) -> Result<()>;

    /// Hands the recorded submission to the driver, and removes it from `state`. Never blocks.
    ///
    /// If another thread holds the lock of the driver queue, the backend leaves `waker` with the
    /// lock and returns [`Flush::Busy`]. The submission stays in `state`. The unlocking thread
    /// wakes the queue, which flushes again, maybe on that thread.
    ///
    /// After [`Flush::Refused`] the engine goes on as after an error of [`Enqueue::record`].
    fn flush(&self, state: &mut Self::State, waker: &dyn Fn() -> Waker) -> Flush;

    /// Moves objects whose last submission is `reached` or an earlier one to `unused`, until that
    /// is full.
    ///
    /// The engine calls it at the end of a successful [`Queue::idle`](crate::backend::Queue::idle),
    /// unless a thread submits, and again until it moves nothing. It must be quick and must not
    /// call the driver, because the engine has the queue's lock. The engine drops the objects
    /// without the lock. After [`Flush::Busy`], `state` contains a recorded submission, which must
    /// stay. A backend may also drop such objects in later records.
    fn take_unused(&self, state: &mut Self::State, reached: u64, unused: &mut Unused) {
        let _ = (state, reached, unused);
    }

    /// True if the driver says that all work of this queue has finished. Does not block.
    ///
    /// The engine asks this once a queue is dropped whose position has failed and whose device is
    /// not lost. While the answer is false, the engine keeps all that the work may use, and asks
    /// again up to 1000 times. Then the engine leaks it. It does so at once after `None`, which
    /// says that the driver cannot tell, and on devices without a watch.
    fn is_idle(&self) -> Option<bool> {
        None
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
        Err(Error::unsupported(
            queue,
            "write a time",
            "its backend writes no times",
        ))
    }

    /// Returns a stamp like [`Enqueue::stamp`]. The caller gives back the stamp `before`.
    ///
    /// This queue made `before` for the same timing. Other owners may still have it, and the device
    /// may not have written it yet.
    /// [`Recycled::take_again`](crate::backend::kit::Recycled::take_again) returns it if it can be
    /// used again.
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

    /// Records that the device writes `stamp`.
    ///
    /// A backend that has [stamps](Enqueue::stamp) implements it.
    ///
    /// # Errors
    /// A driver error.
    fn write_stamp(recorder: &mut Self::Recorder<'_>, stamp: ToWrite<'_, Self>) -> Result<()> {
        let _ = (recorder, stamp);
        Ok(())
    }
}

/// The stamp type of queues without timestamps. It has no values.
#[derive(Debug)]
pub enum NoStamp {}

impl Stamp for NoStamp {
    fn nanoseconds_since(&self, _: &dyn Stamp) -> Result<i64> {
        match *self {}
    }
}

/// Makes a type invariant in `'a`, so that neither a longer nor a shorter lifetime fits.
///
/// For [`Enqueue::Recorder`]. Each submission's work is called with a lifetime of its own, so the
/// type of its recorder is the type of no other recorder.
pub type InvariantLifetime<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// Wakes a queue whose driver queue was locked.
///
/// It is cheap to clone, and several clones may wake the queue.
#[derive(Clone)]
pub struct Waker(pub(crate) Arc<dyn crate::base::run::Wake>);

impl Waker {
    /// Lets the queue try again on this thread: now, or after the call of the engine that this is
    /// in.
    ///
    /// Call it with no lock held. Until then it keeps the queue alive.
    pub fn wake(self) {
        crate::base::run::wake_all([self.0]);
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}
