//! What the author of a backend implements for its devices and queues.
//!
//! [`Device`] and [`Queue`], which applications use, are implemented here for every backend.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{Device, Queue};
use crate::base::error::{Error, Object, Result};
use crate::base::info::{DeviceId, Info, QueueKind};
use crate::clock::Clock;
use crate::driver::enqueue::Enqueue;
use crate::fence::Fence;
use crate::port::attachment::Attachment;
use crate::queue::{Held, SubmissionQueue, Submitted, Traceable};
use crate::timeline::Timeline;
use crate::timeline::point::{Point, Signal};

/// A device of one backend: a CUDA context, a `VkDevice`.
///
/// Handles are cheap to clone and usable from any thread. The four required methods make it a
/// [`Device`].
pub trait Backend: Clone + Send + Sync + 'static {
    /// Its queues: [`EngineQueue<Self>`](EngineQueue), or a type of the backend that contains one.
    type Queue: BackendQueue<Device = Self>;

    /// Gives the submissions of one queue to the driver.
    type Enqueue: Enqueue;

    /// The kind of its queues in errors, such as "Vulkan queue".
    const QUEUE: &'static str = "queue";

    /// Its id, its name, and what it can do.
    fn identity(&self) -> &Identity;

    /// Makes a counter of this device that stands at `initial`, for a timeline whose home is this
    /// device.
    ///
    /// # Errors
    /// A driver error.
    fn port(&self, initial: u64) -> Result<Attachment>;

    /// Asks the driver whether the device is lost. Never blocks.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    fn check(&self) -> Result<()>;

    /// Makes the driver's half of a queue that can run `kind`.
    ///
    /// `queue` is the name of the queue in errors. `own` is the queue's own timeline: the last
    /// signal operation of each submission signals it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if no queue of the device can run `kind`; a driver error.
    fn enqueue(&self, kind: QueueKind, queue: &Object, own: &Timeline) -> Result<Self::Enqueue>;

    /// See [`Device::clock`].
    ///
    /// # Errors
    /// Same errors as [`Device::clock`].
    fn clock(&self) -> Result<Clock> {
        Err(Error::Unsupported {
            object: self.identity().object.clone(),
            asked: "read its clock".into(),
            reason: "its backend does not read clocks".into(),
        })
    }
}

/// A queue of one backend. A backend implements it if its queues have methods of their own.
///
/// The hooks are for drivers that treat some calls in a special way, such as CUDA during a stream
/// capture. Each replaces or refuses a call before the engine sees it.
pub trait BackendQueue: Clone + Send + Sync + From<EngineQueue<Self::Device>> + 'static {
    /// The device it belongs to.
    type Device: Backend<Queue = Self>;

    /// The queue inside.
    fn engine(&self) -> &EngineQueue<Self::Device>;

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
#[derive(Debug, Clone)]
pub struct Identity {
    /// Identifies the device in this process.
    pub id: DeviceId,
    /// Its name in errors and reports.
    pub object: Object,
    /// What it is and what it can do.
    pub info: Info,
}

impl Identity {
    /// The identity of a new device. It gets an id that no other device of this process has.
    #[must_use]
    pub fn new(object: Object, info: Info) -> Self {
        Self {
            id: DeviceId::new(),
            object,
            info,
        }
    }
}

/// A queue of the engine, with its device. Cheap to clone.
pub struct EngineQueue<B: Backend> {
    device: B,
    submissions: Arc<SubmissionQueue<B::Enqueue>>,
}

impl<B: Backend> EngineQueue<B> {
    /// Makes a queue with the driver's half that `enqueue` returns.
    ///
    /// `enqueue` gets the name and the own timeline of the queue, like [`Backend::enqueue`].
    ///
    /// # Errors
    /// The error of `enqueue`; a driver error.
    pub fn new(
        device: &B,
        label: &str,
        enqueue: impl FnOnce(&Object, &Timeline) -> Result<B::Enqueue>,
    ) -> Result<Self> {
        let object = Object::new(B::QUEUE, label);
        let own = device.timeline(&format!("{label} (position)"))?;
        let driver = enqueue(&object, &own)?;
        Ok(Self {
            device: device.clone(),
            submissions: SubmissionQueue::new(object, device.identity().id, own, driver),
        })
    }

    /// The device it belongs to.
    #[inline]
    pub const fn device(&self) -> &B {
        &self.device
    }

    /// The driver's half.
    #[inline]
    pub fn enqueue(&self) -> &B::Enqueue {
        self.submissions.driver()
    }

    /// The engine's half.
    #[inline]
    pub const fn submissions(&self) -> &Arc<SubmissionQueue<B::Enqueue>> {
        &self.submissions
    }
}

impl<B: Backend> Clone for EngineQueue<B> {
    fn clone(&self) -> Self {
        Self {
            device: self.device.clone(),
            submissions: self.submissions.clone(),
        }
    }
}

impl<B: Backend> fmt::Debug for EngineQueue<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.submissions.fmt(f)
    }
}

impl<B: Backend<Queue = Self>> BackendQueue for EngineQueue<B> {
    type Device = B;

    #[inline]
    fn engine(&self) -> &Self {
        self
    }
}

impl<B: Backend> Device for B {
    type Queue = <B as Backend>::Queue;

    fn id(&self) -> DeviceId {
        self.identity().id
    }

    fn object(&self) -> &Object {
        &self.identity().object
    }

    fn info(&self) -> &Info {
        &self.identity().info
    }

    fn port(&self, initial: u64) -> Result<Attachment> {
        Backend::port(self, initial)
    }

    fn queue(&self, kind: QueueKind, label: &str) -> Result<Self::Queue> {
        let queue = EngineQueue::new(self, label, |queue, own| self.enqueue(kind, queue, own))?;
        Ok(queue.into())
    }

    fn check(&self) -> Result<()> {
        Backend::check(self)
    }

    fn clock(&self) -> Result<Clock> {
        Backend::clock(self)
    }
}

impl<Q: BackendQueue> Queue for Q {
    type Device = <Q as BackendQueue>::Device;
    type Recorder<'a> = <<Q::Device as Backend>::Enqueue as Enqueue>::Recorder<'a>;

    fn device(&self) -> Self::Device {
        self.engine().device.clone()
    }

    fn object(&self) -> &Object {
        self.engine().submissions.object()
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
        self.admit()?;
        self.engine().submissions.submit(waits, work, signals)
    }

    #[inline]
    fn record(&self, fence: &Fence) -> Result<()> {
        if self.record_natively(fence)? {
            return Ok(());
        }
        self.engine().submissions.record(fence)
    }

    fn wait(&self, fence: &Fence) -> Result<()> {
        if self.wait_natively(fence)? {
            return Ok(());
        }
        let point = fence.point()?;
        if point.is_empty() {
            return Ok(());
        }
        self.submit(&[point.point()], |_| Ok(()), &[]).map(|_| ())
    }

    fn position(&self) -> Point<'_> {
        self.engine().submissions.position()
    }

    fn held(&self) -> Held {
        self.engine().submissions.held()
    }

    fn idle(&self, timeout: Duration) -> Result<()> {
        self.engine().submissions.idle(timeout)
    }

    fn traceable(&self) -> Result<Traceable> {
        let EngineQueue {
            device,
            submissions,
        } = self.engine();
        Ok(submissions.traceable(&device.identity().info, Backend::clock(device)))
    }
}
