//! The contract: what a backend implements and an application calls.
//!
//! One family of traits covers fences, timelines and timing queries:
//!
//! | trait | who implements it | what it is |
//! |---|---|---|
//! | [`Device`] | each backend | makes queues, timelines and fences |
//! | [`Queue`] | each backend, in a few lines over a [`Lane`] | takes submissions: waits, work, signals |
//! | [`Enqueue`] | each backend | hands one whole submission to the driver |
//! | [`Port`] | each backend | one timeline as one device sees it |
//! | [`Watch`] | backends whose drivers signal by themselves | blocks until some port advances |
//! | [`Stamp`] | each backend | a time written at a queue position |
//! | [`NativeMark`] | backends with graphs | what a fence holds instead of a position |
//!
//! [`Timeline`], [`Point`], [`Signal`] and [`Fence`] are concrete types over these, so points of any
//! backend stand in one list. The engine calls a backend under these guarantees:
//!
//! * [`Enqueue::record`] and [`Enqueue::flush`] of one queue never run at the same time on two threads.
//! * Every wait in a [`Batch`] has its signal reached or already with a driver: a backend never has to
//!   park a queue for something that only the host can still provide.
//! * No lock of the engine is held during any call but [`Port::signal`], which has the one that keeps the
//!   host's signals of its timeline in order; and [`Stamp::time`] may have that, where other processes are told of it.
//!
//! The rules, with their ids, are in `docs/contract.md`.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::clock::Clock;

pub use crate::base::exiting::TakingDown;
pub use crate::base::run::is_letting_go;
pub use crate::base::sync::{Mutex, MutexGuard};
pub use crate::driver::gate::Gate;
pub use crate::driver::in_use::InUse;
pub use crate::driver::recycled::Recycled;
pub use crate::driver::room::Room;
pub use crate::link::publish::Page;
pub use crate::memory::counter::Counter;
pub use crate::port::watch::Watcher;
pub use crate::queue::{Held, Lane, Submitted};
pub use crate::timeline::point::{Completion, NativePoint};
pub use crate::timeline::state::Survivors;
pub use crate::timeline::times::SharedTimes;
pub use crate::timeline::{Attachment, Attachments};
use crate::trace::Trace;
use crate::{
    Blockers, DeviceId, Fence, Info, KeptPoint, Object, Point, QueueKind, Result, Signal, Timeline,
};

/// One backend's execution context: a CUDA context, a `VkDevice`, the host's worker threads.
///
/// Handles are cheap to clone and usable from any thread. Every object made from a device keeps it alive.
pub trait Device: Clone + Send + Sync + 'static {
    /// The queues it makes.
    type Queue: Queue<Device = Self>;

    /// Its identity in this process.
    fn id(&self) -> DeviceId;

    /// Its name in errors and reports.
    fn object(&self) -> &Object;

    /// What it is and what it can do.
    fn info(&self) -> &Info;

    /// A fresh counter of this device at `initial`, for a timeline that has its home here.
    ///
    /// # Errors
    /// A driver error, typed.
    fn port(&self, initial: u64) -> Result<Attachment>;

    /// A queue that can run `kind`. Any number may be made; they may share driver queues.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if no queue of the device can run `kind`; a driver error.
    fn queue(&self, kind: QueueKind, label: &str) -> Result<Self::Queue>;

    /// Asks whether the device still answers. Never blocks.
    ///
    /// # Errors
    /// [`Error::DeviceLost`](crate::Error::DeviceLost).
    fn check(&self) -> Result<()>;

    /// The clock that its timestamps count, beside the host's. Always the same one; the first call may take milliseconds, and a second where
    /// the device is busy.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported), with the reason, if it cannot be read together with the host's; a driver
    /// error.
    fn clock(&self) -> Result<Clock> {
        Err(crate::Error::Unsupported {
            object: self.object().clone(),
            asked: "read its clock".into(),
            reason: "its backend does not read clocks".into(),
        })
    }

    /// A timeline with its home on this device, starting at 0.
    ///
    /// # Errors
    /// A driver error, typed.
    fn timeline(&self, label: &str) -> Result<Timeline> {
        self.timeline_from(label, 0)
    }

    /// A timeline with its home on this device, starting at `initial`.
    ///
    /// # Errors
    /// [`Error::ValueOutOfRange`](crate::Error::ValueOutOfRange) for `u64::MAX`; a driver error, typed.
    fn timeline_from(&self, label: &str, initial: u64) -> Result<Timeline> {
        Timeline::new(label, initial, |initial| {
            Ok(SmallVec::from_iter([self.port(initial)?]))
        })
    }

    /// A timeline with its home on this device, starting at 0, whose points tell when they were reached ([`Point::time`]): on the device's
    /// [clock](Device::clock), where its queues signal it. The first call makes the clock, if nobody has asked for that yet.
    ///
    /// # Errors
    /// As [`Device::clocked_timeline_from`].
    fn clocked_timeline(&self, label: &str) -> Result<Timeline> {
        self.clocked_timeline_from(label, 0)
    }

    /// As [`Device::clocked_timeline`], starting at `initial`. A point at or below that tells no time.
    ///
    /// # Errors
    /// Those of [`Device::clock`]; those of [`Device::timeline_from`].
    fn clocked_timeline_from(&self, label: &str, initial: u64) -> Result<Timeline> {
        let clock = self.clock()?;
        self.timeline_from(label, initial)?
            .clocked([(self.id(), clock)])
    }

    /// A fence for queues of this device, never recorded yet and therefore complete.
    fn fence(&self, label: &str) -> Fence {
        Fence::new(self.id(), self.object(), label, Timing::None)
    }

    /// A fence whose records also write a time, for [`Fence::elapsed_since`]: the cheapest way to measure intervals on a
    /// device.
    fn timed_fence(&self, label: &str) -> Fence {
        Fence::new(self.id(), self.object(), label, Timing::Interval)
    }

    /// A fence whose records also write a time on the device's [clock](Device::clock), for [`Fence::time`]: one that can be
    /// told on the host's clock, and compared with those of other devices and APIs. It takes no part in
    /// intervals with [timed fences](Device::timed_fence), which may count on nothing but themselves. The first call makes the
    /// clock, if nobody has asked for that yet.
    ///
    /// # Errors
    /// Those of [`Device::clock`].
    fn clocked_fence(&self, label: &str) -> Result<Fence> {
        let clock = self.clock()?;
        Ok(Fence::clocked(self.id(), self.object(), label, clock))
    }
}

/// Runs submissions in order: a CUDA stream, a Vulkan queue, a host worker.
pub trait Queue: Clone + Send + Sync + 'static {
    /// The device it belongs to.
    type Device: Device<Queue = Self>;
    /// Records the work of one submission. See [`Enqueue::Recorder`].
    type Recorder<'a>;

    /// A handle of the device it belongs to.
    fn device(&self) -> Self::Device;

    /// Its name in errors and reports.
    fn object(&self) -> &Object;

    /// Submits: once all `waits` are reached, run what `work` records, then make all `signals`,
    /// which also come after everything submitted to this queue before. Empty lists and empty work
    /// are legal. Never blocks on the device.
    ///
    /// `work` runs at most once: on this thread before the call returns, or, if a wait's signal is not
    /// yet on its way, later on the thread that makes it so. It must not block, and it may submit to
    /// other queues but not to this one.
    ///
    /// # Errors
    /// If the submission is refused nothing has changed:
    /// [`Error::SignalNotAboveReached`](crate::Error::SignalNotAboveReached),
    /// [`Error::SignalOverlapsClaim`](crate::Error::SignalOverlapsClaim),
    /// [`Error::SignalBehindOwnWait`](crate::Error::SignalBehindOwnWait),
    /// [`Error::DuplicateSignal`](crate::Error::DuplicateSignal) and
    /// [`Error::ValueOutOfRange`](crate::Error::ValueOutOfRange) for values out of order,
    /// [`Error::Failed`](crate::Error::Failed) for a signal of a timeline that has failed,
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a signal of a [timeline with timestamps](Device::clocked_timeline) on a queue
    /// that writes none,
    /// [`Error::Circular`](crate::Error::Circular), [`Error::Reentrant`](crate::Error::Reentrant), a device that is
    /// lost, an error that `work` returned. A wait on a timeline that has failed is no error here,
    /// whether it failed before or after the call, and whatever the submission signals: it does not run, and the
    /// timelines that it would have signalled fail with the same cause.
    fn submit<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Self::Recorder<'a>) -> Result<()> + Send + 'static;

    /// Records `fence` at the queue's present position, held submissions included. Waits already
    /// issued on an earlier record are not moved.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice); [`Error::ForeignFence`](crate::Error::ForeignFence);
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a time on a queue without timestamps;
    /// [`Error::Reentrant`](crate::Error::Reentrant); a driver error. The fence is unchanged then.
    fn record(&self, fence: &Fence) -> Result<()>;

    /// Lets everything submitted later wait for `fence` as it is now; adds nothing if it was never recorded. A
    /// fence of a graph capture becomes an edge of that graph.
    ///
    /// A fence that fails holds nothing back: like every failed wait it ends the one submission that waits, which
    /// here is empty. Work that must not run then names the fence's [`point`](Fence::point) among its own waits.
    ///
    /// # Errors
    /// As [`Queue::submit`]; [`Error::Captured`](crate::Error::Captured) where the queue has no part in
    /// that capture, [`Error::CaptureEnded`](crate::Error::CaptureEnded) after it.
    fn wait(&self, fence: &Fence) -> Result<()> {
        let point = fence.point()?;
        if point.is_empty() {
            return Ok(());
        }
        self.submit(&[point.point()], |_| Ok(()), &[]).map(|_| ())
    }

    /// The position of the queue now: reached once everything submitted before is finished.
    fn position(&self) -> Point<'_>;

    /// Submissions that wait on the host.
    fn held(&self) -> Held;

    /// What its position waits for, and who waits for whom until then. See [`Point::blockers`].
    fn blockers(&self) -> Blockers {
        self.position().blockers()
    }

    /// Blocks until everything submitted so far is finished, and drops what it kept (which otherwise
    /// happens in later submissions). Then the signals of these submissions are made, also those that the host makes; and they count in every process that
    /// has their timelines, whatever becomes of this one.
    ///
    /// Inside a call of the engine's (work, a waker, or the drop of what a submission kept) it does not wait for signals that the host makes.
    ///
    /// Such a signal may wait for a predecessor that the application makes only later. Then a call with an endless
    /// timeout does not end before that.
    ///
    /// # Errors
    /// [`Error::TimedOut`](crate::Error::TimedOut), or the queue's failure.
    fn idle(&self, timeout: Duration) -> Result<()>;

    /// Blocks until everything submitted so far is with the driver, so that raw work which the
    /// application submits next comes behind it.
    ///
    /// # Errors
    /// [`Error::TimedOut`](crate::Error::TimedOut), or the queue's failure.
    fn settle(&self, timeout: Duration) -> Result<()> {
        self.position().wait_pending(timeout)
    }

    /// Lets `trace` follow this queue; see [`Trace::follow`]. Backends hand it to their [`Lane`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if another trace follows it, or its backend cannot be traced.
    fn trace(&self, trace: &Trace) -> Result<()> {
        let _ = trace;
        Err(crate::Error::Unsupported {
            object: self.object().clone(),
            asked: "be traced".into(),
            reason: "its backend does not let a trace follow it".into(),
        })
    }
}

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
    /// The driver's queue is locked by somebody else, who wakes the lane when it unlocks.
    Busy(P),
    /// The driver refused it; nothing of it will be signalled.
    Refused(crate::Error),
}

/// How a backend's queue hands submissions to its driver. The [`Lane`] calls it, one submission at a time.
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
    /// A written time.
    type Stamp: Stamp;
    /// How many submissions of one queue, empty ones and records of fences among them, may be in flight before
    /// further ones are held on the host, so that a driver whose queue is full never blocks the thread that must
    /// open a gate.
    const MAX_IN_FLIGHT: u64 = u64::MAX;

    /// What this queue has in flight besides counts here, together with that of every queue which names the
    /// same room: for drivers that block on what submissions are made of, or where queues share what fills up.
    /// Asked once, when the queue is made.
    fn room(&self) -> Option<&Arc<Room>> {
        None
    }

    /// Identifies the driver queue, unique in the process and never 0. Signals of one driver queue
    /// keep their order without a wait. Asked once, when the queue is made.
    fn order_domain(&self) -> u64;

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

    /// Hands it to the driver. Never blocks: if the driver's queue is locked, `lane` is woken by
    /// whoever unlocks it.
    fn flush(&self, prepared: Self::Prepared, lane: &dyn Fn() -> Waker) -> Flush<Self::Prepared>;

    /// What was submitted up to the submission `reached` has finished, and somebody has waited for that
    /// ([`Queue::idle`]): a good moment to take back what it used, besides later records. Called on any thread, also
    /// while others submit.
    fn rest(&self, reached: u64) {
        let _ = reached;
    }

    /// A place for a time, from a pool. With [`Timing::Clock`] the device has been asked for its clock before; [`Timing::None`]
    /// is never asked for.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) on queues without timestamps.
    fn stamp(&self, timing: Timing) -> Result<Arc<Self::Stamp>>;

    /// As [`Enqueue::stamp`], by who has `before`, which this queue has handed out for the same timing, and which is nobody's place any
    /// more: but somebody may have it still, and it may not be written yet. [`Recycled::take_again`] says whether it can be used again.
    ///
    /// # Errors
    /// As there.
    fn stamp_again(&self, timing: Timing, before: Arc<Self::Stamp>) -> Result<Arc<Self::Stamp>> {
        drop(before);
        self.stamp(timing)
    }

    /// Records the writing of `stamp`.
    ///
    /// # Errors
    /// A driver error.
    fn write_stamp(recorder: &mut Self::Recorder<'_>, stamp: &Arc<Self::Stamp>) -> Result<()>;
}

/// Makes a type invariant in `'a`: neither a longer nor a shorter lifetime fits in its place.
///
/// For [`Enqueue::Recorder`]. Each submission's work is called with a lifetime of its own, so the
/// type of its recorder is the type of no other recorder.
pub type InvariantLifetime<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// Wakes a lane whose driver queue was locked. Cheap to clone; may be called more than once.
#[derive(Clone)]
pub struct Waker(pub(crate) Arc<dyn crate::base::run::Wake>);

impl Waker {
    /// Lets the lane try again, on this thread. Call it with no lock held.
    pub fn wake(self) {
        crate::base::run::wake_all([self.0]);
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}

/// What a submission keeps until the device has finished with it: objects alive, and room in the driver taken.
#[derive(Default)]
pub struct Keep {
    /// As many as most submissions have stand in place: to see that there are none, and nothing to drop, is a look at the
    /// first.
    few: [Option<Kept>; 2],
    more: Vec<Kept>,
    units: u64,
}

type Kept = Arc<dyn Any + Send + Sync>;

/// What fills every room, and of which tens of thousands together are still far from the end of the numbers.
const MOST_UNITS: u64 = 1 << 48;

impl Keep {
    /// Adds one object.
    #[inline]
    pub fn push(&mut self, object: Arc<dyn Any + Send + Sync>) {
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(object),
            None => self.more.push(object),
        }
    }

    /// Takes so many more units of the queue's [room](Enqueue::room), for what has gone or will go to the driver: all together
    /// 2^48 at the most, which stand for any larger number. So what is in flight can be counted, whatever work says of itself.
    #[inline]
    pub fn take_room(&mut self, units: u64) {
        self.units = self.units.saturating_add(units).min(MOST_UNITS);
    }

    /// True if no object is kept.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.few[0].is_none()
    }

    /// True if it keeps no object and takes no room.
    #[inline]
    pub(crate) const fn is_nothing(&self) -> bool {
        self.few[0].is_none() && self.units == 0
    }

    /// True if it keeps no object, and has no room for more than it has in place.
    #[inline]
    pub(crate) const fn has_no_room(&self) -> bool {
        self.few[0].is_none() && self.more.capacity() == 0
    }

    /// How many units of room it takes.
    #[inline]
    pub(crate) const fn units(&self) -> u64 {
        self.units
    }

    /// Moves everything `other` keeps into this one.
    #[inline]
    pub fn append(&mut self, other: &mut Self) {
        if !other.is_empty() {
            self.append_objects(other);
        }
        self.take_room(std::mem::take(&mut other.units));
    }

    fn append_objects(&mut self, other: &mut Self) {
        let few = other.few.iter_mut().filter_map(Option::take);
        for object in few.chain(other.more.drain(..)) {
            self.push(object);
        }
    }
}

impl std::fmt::Debug for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Keep({})",
            self.few.iter().flatten().count() + self.more.len()
        )
    }
}

/// The right to signal one [`Port`], which only the engine gives, and only for the length of a call.
///
/// Safe code can find a port: by its type, in a [`Watch`], or in a list of points. It cannot signal it past the timeline (X7), because it
/// can neither make such a right nor keep one. A right that was given for another port does not pass
/// [`ByEngine::check`].
///
/// ```compile_fail,E0423
/// use syncline_core::backend::{ByEngine, Port};
/// fn signal(port: &dyn Port) {
///     let _ = port.signal(1, ByEngine(port));
/// }
/// ```
///
/// ```compile_fail,E0521
/// use std::sync::Mutex;
/// use syncline_core::Result;
/// use syncline_core::backend::{ByEngine, Port};
/// struct Keeps(Mutex<Option<ByEngine<'static>>>);
/// impl Port for Keeps {
///     fn poll(&self) -> Result<Option<u64>> {
///         Ok(None)
///     }
///     fn signal(&self, _: u64, by: ByEngine<'_>) -> Result<()> {
///         *self.0.lock().unwrap() = Some(by);
///         Ok(())
///     }
/// }
/// ```
pub struct ByEngine<'a>(&'a dyn Port);

impl<'a> ByEngine<'a> {
    #[inline]
    pub(crate) const fn new(port: &'a dyn Port) -> Self {
        Self(port)
    }

    /// Refuses to signal `port`, which `object` names, if the right is for another port. A backend whose driver does not
    /// check that counters grow asks this first.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported).
    #[inline]
    pub fn check<P: Port>(&self, port: &P, object: &Object) -> Result<()> {
        if std::ptr::addr_eq(self.0, port) {
            return Ok(());
        }
        Err(crate::Error::Unsupported {
            object: object.clone(),
            asked: "be signalled by another port".into(),
            reason: "only the engine signals it, for its timeline".into(),
        })
    }
}

impl std::fmt::Debug for ByEngine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByEngine")
    }
}

/// One timeline as one device sees it: a timeline semaphore, a ring of events, an imported semaphore.
pub trait Port: Any + Send + Sync {
    /// Asked of the home port when the application says that its own submission signals `value` and is with
    /// the driver: whether the port will see that.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if it would not; the claim stays open then.
    fn sees_submitted(&self, value: u64) -> Result<()> {
        let _ = value;
        Ok(())
    }

    /// Whether the host can read the value here: a timeline's home must be such a port.
    fn is_readable(&self) -> bool {
        true
    }

    /// The value it has reached, or `None` if the host [cannot read it](Port::is_readable) (the engine then knows
    /// the value from its own signals or from another port).
    ///
    /// # Errors
    /// [`Error::DeviceLost`](crate::Error::DeviceLost) or a driver error; the timeline fails with it.
    fn poll(&self) -> Result<Option<u64>>;

    /// The highest value that [`Port::poll`] has told of, on whatever thread. Asked of a home whose poll ends with an error, as the one who was told may not have come to
    /// use it yet; nothing needs to be told by ports that fail with their device.
    fn told(&self) -> u64 {
        0
    }

    /// Up to which value signals are known to be pending that are made beyond this engine, by another process for one. Asked of homes whose
    /// attachment says that it is [signalled elsewhere](Attachment::signalled_elsewhere), once before anybody waits, and whenever
    /// the value is asked for; [`Watch::watch`] returns when it has grown.
    ///
    /// # Errors
    /// As for [`Port::poll`].
    fn pending_elsewhere(&self) -> Result<u64> {
        Ok(0)
    }

    /// True if poll ends with an error because whoever signals is gone, with what he had said to be [pending](Port::pending_elsewhere): then nothing of that
    /// comes by itself. Asked of a home whose poll has ended with an error.
    fn is_lost(&self) -> bool {
        false
    }

    /// How many have asked before, of all that have the same timeline in whatever process, once it [is lost](Port::is_lost): in this order they
    /// [release](Port::release) what one of them has to. As far as a page can be believed: any number may come.
    fn release_turn(&self) -> u32 {
        0
    }

    /// Who should have signalled this timeline is dead, and it has failed: lets go what waits for it natively, up to `value`, by a signal
    /// in his place. False if nothing waits here natively but what another port lets go.
    ///
    /// # Errors
    /// A driver error; then the next port is asked.
    fn release(&self, value: u64, by: ByEngine<'_>) -> Result<bool> {
        let _ = (value, by);
        Ok(false)
    }

    /// Signals from the host. The engine has checked that the value is next, and calls one at a time: under
    /// the lock that keeps the host's signals of this timeline in order. So it must not signal the same timeline,
    /// nor wait for anything that needs another thread to.
    ///
    /// # Errors
    /// A driver error; the timeline fails with it.
    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()>;

    /// How much of `reached`, the value that the timeline's home reads, the host may act on: the memory
    /// that this port's device wrote before it signalled a value must be visible to the host first. Asked
    /// of every port but the home. An answer below `reached` is a value that was signalled before, or 0, and
    /// means that the rest follows by itself, soon.
    ///
    /// # Errors
    /// As [`Port::poll`].
    fn visible(&self, reached: u64) -> Result<u64> {
        Ok(reached)
    }
}

impl dyn Port {
    /// The port, if it is of type `P`.
    #[inline]
    pub(crate) fn downcast_ref<P: Port>(&self) -> Option<&P> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}

/// A device whose driver advances ports by itself, so that somebody must watch them. One thread per
/// device does, started when first needed, or a thread that waits itself (see [`Watch::lends`]).
pub trait Watch: Send + Sync + 'static {
    /// The device's watcher.
    fn watcher(&self) -> &Watcher;

    /// Blocks until one of the ports reaches its value, the watch is nudged, or `until` has passed.
    /// May return early.
    ///
    /// # Errors
    /// [`Error::DeviceLost`](crate::Error::DeviceLost) or a driver error; the watched timelines fail with it.
    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()>;

    /// Ends the present call of [`Watch::watch`], or the next one if there is none.
    fn nudge(&self);

    /// True if a thread that waits may call [`Watch::watch`] itself, in the watching thread's place. It does where nobody
    /// else waits for anything of this device, so that one thread sleeps and wakes and not two, one after the other. There
    /// is never more than one call at a time.
    fn lends(&self) -> bool {
        false
    }
}

/// What the records of a fence write besides its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Timing {
    /// Nothing.
    None,
    /// A time that tells what has passed since others of its kind.
    Interval,
    /// A time on the device's [clock](Device::clock).
    Clock,
}

impl std::fmt::Display for Timing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "no times",
            Self::Interval => "timing",
            Self::Clock => "times on a clock",
        })
    }
}

/// A time written by a device at a queue position.
pub trait Stamp: Any + Send + Sync {
    /// Nanoseconds from `start` to this stamp; negative if `start` is the later one. Both are complete, and were
    /// [made](Enqueue::stamp) for the same timing.
    ///
    /// # Errors
    /// A driver error, or [`Error::NotReady`](crate::Error::NotReady).
    fn nanoseconds_since(&self, start: &dyn Stamp) -> Result<i64>;

    /// The time on the device's [clock](Device::clock), in nanoseconds, of a complete stamp that was made for
    /// [`Timing::Clock`]; `None` from backends without a clock, which are never asked.
    ///
    /// # Errors
    /// As for [`Stamp::nanoseconds_since`].
    fn time(&self) -> Result<Option<i64>> {
        Ok(None)
    }

    /// As [`Stamp::time`], of a stamp that may not be complete: the time if the device has written it; `None` if it has not, or nobody can tell
    /// without waiting for work. A trace asks, of submissions that have not ended.
    fn time_if_written(&self) -> Option<i64> {
        None
    }
}

/// What a fence holds where its backend has recorded it natively (see [`Lane::record_natively`]).
pub trait NativeMark: Any + Send + Sync {
    /// What waits for `fence` now wait for.
    ///
    /// # Errors
    /// [`Error::Captured`](crate::Error::Captured), or a driver error.
    fn point(&self, fence: &Object) -> Result<KeptPoint>;

    /// False if nothing has ever been recorded, so that there is nothing to wait for (F1).
    fn is_recorded(&self) -> bool {
        true
    }

    /// True if waiting for `fence` now would end at once. Never blocks.
    ///
    /// # Errors
    /// As [`NativeMark::point`].
    fn is_complete(&self, fence: &Object) -> Result<bool> {
        self.point(fence)?.point().is_reached()
    }
}

/// Points to be kept beyond a call.
pub type KeptPoints = SmallVec<[KeptPoint; 4]>;
