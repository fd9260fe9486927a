//! What the author of a backend implements for its devices and queues.
//!
//! [`Device`] and [`Queue`], which applications use, are implemented here for every backend.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::sharing::Sharing;
use crate::api::{Device, Queue, submit_wait};
use crate::base::error::{Error, Object, Result};
use crate::base::info::{DeviceId, Info, Pooled, QueueKind};
use crate::clock::Clock;
use crate::driver::enqueue::Enqueue;
use crate::driver::home::Home;
use crate::fence::Fence;
use crate::port::attachment::Attachment;
use crate::queue::{Held, SubmissionQueue, Submitted, Traceable};
use crate::timeline::point::{Point, Signal};

/// A device before it is opened, as a list of the machine's devices has it.
pub trait Candidate: fmt::Debug + Send + Sync + 'static {
    /// The type of the device.
    type Device: Device;

    /// The identity and capabilities of the device.
    fn info(&self) -> &Info;

    /// The reason why the device cannot be used, or `None`.
    fn rejected(&self) -> Option<&Error> {
        None
    }

    /// Opens the device. Each call returns a new, separate device.
    ///
    /// # Errors
    /// A driver error.
    fn open(&self) -> Result<Self::Device>;
}

/// A device of one backend: a CUDA context, a `VkDevice`.
///
/// Handles are cheap to clone and usable from any thread. The required methods make it a
/// [`Device`].
///
/// Implement it and [`Home`] by their paths, and import only [`Device`]: its methods `check`,
/// `clock`, `trim`, `sharing` and `port` have the same names, so calls would be ambiguous (E0034).
pub trait Backend: Home + Clone {
    /// Its queues: [`EngineQueueOf<Self>`](EngineQueueOf), or a type that contains one.
    type Queue: BackendQueue<Device = Self>;

    /// The kind of its queues in errors, such as "Vulkan queue".
    const QUEUE: &'static str = "queue";

    /// Its id, its name, and what it can do.
    fn identity(&self) -> Identity<'_>;

    /// Asks the driver whether the device is lost. Never blocks.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    fn check(&self) -> Result<()>;

    /// Makes the driver's half of a queue that can run `kind`.
    ///
    /// `queue` is the name of the queue in errors.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if no queue of the device can run `kind`; a driver error.
    fn enqueue(&self, kind: QueueKind, queue: &Object) -> Result<Self::Enqueue>;

    /// See [`Device::trim`]. A backend whose pools are
    /// [`Recycled`](crate::backend::kit::Recycled) calls
    /// [`Recycled::trim`](crate::backend::kit::Recycled::trim).
    fn trim(&self) -> Pooled {
        Pooled::default()
    }

    /// See [`Device::clock`].
    ///
    /// # Errors
    /// Same errors as [`Device::clock`].
    fn clock(&self) -> Result<Clock> {
        Err(Error::unsupported(
            self.identity().object,
            "read its clock",
            "its backend does not read clocks",
        ))
    }

    /// See [`Device::sharing`].
    fn sharing(&self) -> Option<&dyn Sharing> {
        None
    }
}

/// A queue of one backend. A backend implements it if its queues have methods of their own.
///
/// The hooks are for drivers that treat some calls in a special way, such as CUDA during a stream
/// capture. Each may refuse a call, and the last two may do it in place of the engine.
pub trait BackendQueue: Clone + Send + Sync + From<EngineQueueOf<Self::Device>> + 'static {
    /// The device it belongs to.
    type Device: Backend<Queue = Self>;

    /// The queue inside.
    fn engine(&self) -> &EngineQueueOf<Self::Device>;

    /// Called before each submission.
    ///
    /// # Errors
    /// The submission is refused with the error.
    #[inline]
    fn admit(&self) -> Result<()> {
        Ok(())
    }

    /// Records `fence` in the backend's own way. Returns `false` if the engine shall record it.
    ///
    /// # Errors
    /// The record is refused with the error. The fence is unchanged then.
    #[inline]
    fn record_natively(&self, fence: &Fence) -> Result<bool> {
        let _ = fence;
        Ok(false)
    }

    /// Waits for `fence` in the backend's own way. Returns `false` if the engine shall do so.
    ///
    /// # Errors
    /// The wait is refused with the error.
    #[inline]
    fn wait_natively(&self, fence: &Fence) -> Result<bool> {
        let _ = fence;
        Ok(false)
    }
}

/// The id and the name of a device, and what it can do.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'d> {
    /// Identifies the device in this process. Made by [`DeviceId::new`] for the type of the device
    /// when it is opened.
    pub id: DeviceId,
    /// Its name in errors and reports.
    pub object: &'d Object,
    /// What it is and what it can do.
    pub info: &'d Info,
}

/// A queue of the engine, with the driver's half `E`. Cheap to clone.
pub struct EngineQueue<E: Enqueue>(Arc<SubmissionQueue<E>>);

impl<E: Enqueue> EngineQueue<E> {
    /// A queue called `object` with the driver's half `driver`.
    ///
    /// The engine makes the queue's own timeline, which nothing else can signal: a
    /// [port](Home::port) of the device that `driver` [names](Enqueue::device).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the port has the id of another backend's device. A driver error.
    pub fn new(object: Object, driver: E) -> Result<Self> {
        SubmissionQueue::new(object, driver).map(Self)
    }

    /// The device it belongs to.
    #[inline]
    pub fn device(&self) -> &E::Device {
        self.enqueue().device()
    }

    /// The driver's half.
    #[inline]
    pub fn enqueue(&self) -> &E {
        self.0.driver()
    }

    /// The engine's part of the queue: its submissions.
    #[inline]
    pub const fn submissions(&self) -> &Arc<SubmissionQueue<E>> {
        &self.0
    }
}

impl<E: Enqueue> Clone for EngineQueue<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: Enqueue> fmt::Debug for EngineQueue<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E> BackendQueue for EngineQueue<E>
where
    E: Enqueue,
    E::Device: Backend<Queue = Self>,
{
    type Device = E::Device;

    #[inline]
    fn engine(&self) -> &Self {
        self
    }
}

/// The queue of the engine for a backend's device.
pub type EngineQueueOf<B> = EngineQueue<<B as Home>::Enqueue>;

impl<B: Backend> Device for B {
    type Queue = <B as Backend>::Queue;

    fn id(&self) -> DeviceId {
        self.identity().id
    }

    fn object(&self) -> &Object {
        self.identity().object
    }

    fn info(&self) -> &Info {
        self.identity().info
    }

    fn port(&self, initial: u64) -> Result<Attachment> {
        Home::port(self, initial)
    }

    fn queue(&self, kind: QueueKind, label: &str) -> Result<Self::Queue> {
        let object = Object::new(B::QUEUE, label);
        let driver = self.enqueue(kind, &object)?;
        Ok(EngineQueue::new(object, driver)?.into())
    }

    fn check(&self) -> Result<()> {
        Backend::check(self)
    }

    fn trim(&self) -> Pooled {
        Backend::trim(self)
    }

    fn clock(&self) -> Result<Clock> {
        Backend::clock(self)
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        Backend::sharing(self)
    }
}

impl<Q: BackendQueue> Queue for Q {
    type Device = <Q as BackendQueue>::Device;
    type Recorder<'a> = <<Q::Device as Home>::Enqueue as Enqueue>::Recorder<'a>;

    fn device(&self) -> Self::Device {
        self.engine().device().clone()
    }

    fn object(&self) -> &Object {
        self.engine().submissions().object()
    }

    #[inline]
    fn submit<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Self::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        admitted(self, |queue| queue.submit(waits, work, signals))
    }

    fn submit_timed<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
        times: [&Fence; 2],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Self::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        admitted(self, |queue| {
            queue.submit_timed(waits, work, signals, times)
        })
    }

    #[inline]
    fn record(&self, fence: &Fence) -> Result<()> {
        if self.record_natively(fence)? {
            return Ok(());
        }
        self.engine().submissions().record(fence)
    }

    fn wait(&self, fence: &Fence) -> Result<()> {
        if self.wait_natively(fence)? {
            return Ok(());
        }
        submit_wait(self, fence)
    }

    fn position(&self) -> Point<'_> {
        self.engine().submissions().position()
    }

    fn held(&self) -> Held {
        self.engine().submissions().held()
    }

    fn idle(&self, timeout: Duration) -> Result<()> {
        self.engine().submissions().idle(timeout)
    }

    fn traceable(&self) -> Result<Traceable> {
        let queue = self.engine();
        let device = queue.device();
        let clock = Backend::clock(device);
        Ok(queue.submissions().traceable(device.identity().info, clock))
    }
}

/// Submits if the backend admits it, and tells a subscriber of `tracing`.
#[inline]
fn admitted<'q, Q: BackendQueue>(
    queue: &'q Q,
    submit: impl FnOnce(&'q Arc<SubmissionQueue<<Q::Device as Home>::Enqueue>>) -> Result<Submitted<'q>>,
) -> Result<Submitted<'q>> {
    let admitted = queue.admit();
    let submitted = admitted.and_then(|()| submit(queue.engine().submissions()));
    #[cfg(feature = "tracing")]
    crate::base::events::submitted(
        queue.object(),
        submitted
            .as_ref()
            .map(|submitted| (submitted.end().value(), submitted.is_held())),
    );
    submitted
}
