//! Queues: a submission becomes one `vkQueueSubmit`.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::{Arc, Weak};

use ash::vk;
use syncline_core::backend::kit::{Recycled, TeardownGuard};
use syncline_core::backend::{
    Attachment, Batch, EngineQueue, Enqueue, Flush, Home, InFlightBudget, Keep, SubmissionQueue,
    Timing, ToWrite, Unused, Waker,
};
use syncline_core::{Result, error::Object};

use crate::device::driver_queue::DriverQueue;
use crate::device::open::Device;
use crate::queue::context::QueueContext;
use crate::queue::guard::QueueGuard;
use crate::queue::recorder::Recorder;
use crate::queue::recording::Recording;
use crate::timeline::semaphore::Semaphore;
use crate::timing::stamp::Stamp;

/// Executes submissions in order on a `VkQueue`, which several queues may share. Cheap to clone.
///
/// A submission counts four units, and one more for each wait, command buffer and signal. While
/// 16,384 units are in flight on one `VkQueue`, further submissions to it are held on the host. So
/// the driver never blocks the submitting thread behind work that waits for that thread. A
/// submission of more than 16,000 units is refused with
/// [`Error::Unsupported`](syncline_core::Error::Unsupported). Split it.
#[derive(Clone)]
pub struct Queue(EngineQueue<Feed>);

/// The kind of queues in errors.
pub(crate) const QUEUE: &str = "Vulkan queue";

impl Queue {
    pub(crate) fn new(device: &Device, driver: &Arc<DriverQueue>, label: &str) -> Result<Self> {
        let object = Object::new(QUEUE, label);
        let feed = Feed::new(device, driver, &object);
        Ok(Self::with_engine(EngineQueue::new(object, feed)?))
    }

    pub(crate) fn with_engine(engine: EngineQueue<Feed>) -> Self {
        engine.enqueue().driver.join(engine.submissions());
        Self(engine)
    }

    pub(crate) const fn inner(&self) -> &EngineQueue<Feed> {
        &self.0
    }

    /// The index of its queue family, as the driver numbers them.
    #[must_use]
    pub fn family(&self) -> u32 {
        self.0.enqueue().driver.family().index
    }

    /// The index of its driver queue within the family.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.0.enqueue().driver.index()
    }

    pub(crate) fn submissions(&self) -> &Arc<SubmissionQueue<Feed>> {
        self.0.submissions()
    }

    /// Locks its `VkQueue` for the application's own calls. See [`Device::lock_queue`].
    ///
    /// # Errors
    /// [`Error::Reentrant`](syncline_core::Error::Reentrant), as there.
    pub fn lock(&self) -> Result<QueueGuard> {
        self.0.device().guard(&self.0.enqueue().driver)
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Gives the submissions of a queue to its `VkQueue`.
pub struct Feed {
    /// Before the device, because a driver reuses the handles of a destroyed one.
    driver: Arc<DriverQueue>,
    device: Device,
    queue: Arc<QueueContext>,
    stamps: Recycled<Stamp>,
}

impl Feed {
    /// `object` is the queue's name.
    pub(crate) fn new(device: &Device, driver: &Arc<DriverQueue>, object: &Object) -> Self {
        let family = driver.family().index;
        let queue = Arc::new(QueueContext::new(device.inner(), object, family));
        // Without an owner of the device, the application may destroy the device before the exit.
        if device.info().software && device.inner().native().is_kept() {
            let queue: Weak<QueueContext> = Arc::downgrade(&queue);
            TeardownGuard::register_queue(queue);
        }
        Self {
            device: device.clone(),
            queue,
            driver: driver.clone(),
            stamps: Recycled::default(),
        }
    }
}

impl Home for Device {
    type Enqueue = Feed;

    fn port(&self, initial: u64) -> Result<Attachment> {
        let no_handle = vk::ExternalSemaphoreHandleTypeFlags::empty();
        Ok(Semaphore::new(self.inner(), initial, no_handle)?.attach(initial))
    }
}

impl Enqueue for Feed {
    type Device = Device;
    type Recorder<'a> = Recorder<'a>;
    type Ready<'a> = ();
    /// `None` before the first submission.
    type State = Option<Recording>;
    type Stamp = Stamp;

    fn device(&self) -> &Device {
        &self.device
    }

    fn order_domain(&self) -> Option<u64> {
        Some(self.driver.domain())
    }

    fn in_flight_budget(&self) -> Option<&Arc<InFlightBudget>> {
        Some(self.driver.budget())
    }

    #[inline]
    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn record<W>(
        &self,
        (): (),
        state: &mut Option<Recording>,
        batch: &Batch<'_, Self>,
        keep: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()>,
    {
        let recording = match state {
            Some(recording) => recording,
            None => state.insert(Recording::new(&self.queue, batch.end)?),
        };
        recording.begin_submission(batch);
        let worked = work(&mut Recorder::new(recording));
        let recorded = worked.and_then(|()| recording.prepare(batch));
        match &recorded {
            Ok(()) => {
                recording.move_kept_to(keep);
                keep.take_in_flight(recording.units());
            }
            Err(_) => recording.discard(),
        }
        recorded
    }

    fn flush(&self, state: &mut Option<Recording>, waker: &dyn Fn() -> Waker) -> Flush {
        // The engine always has one, because `record` has made it.
        let Some(recording) = state else {
            return Flush::Done;
        };
        let Some(locked) = self.driver.try_lock(waker) else {
            return Flush::Busy;
        };
        // SAFETY: `locked` holds the gate. `prepare` has ended the command buffers of this queue's
        // pool, and `CommandPool` keeps them and the timeline semaphores until the submission has
        // finished. For raw handles from the application, the contract of the `Recorder` method
        // that took them guarantees the same. The engine submits only behind waits whose signal is
        // pending, and has checked that each signalled value grows.
        let submitted = unsafe { recording.submit(self.driver.raw()) };
        let flushed = match submitted {
            Ok(()) => {
                recording.submitted();
                Flush::Done
            }
            Err(error) => {
                recording.discard();
                Flush::Refused(error)
            }
        };
        // Wakes other queues of the same driver queue, which run after this call has returned to
        // the engine.
        drop(locked);
        flushed
    }

    fn take_unused(&self, state: &mut Option<Recording>, reached: u64, unused: &mut Unused) {
        if let Some(recording) = state {
            recording.take_unused(reached, unused);
        }
    }

    fn is_idle(&self) -> Option<bool> {
        // Unknown without an owner of the device, because the application may have destroyed the
        // device.
        let is_kept = self.queue.device().native().is_kept();
        is_kept.then(|| self.queue.is_idle())
    }

    fn stamp(&self, _: &Object, _timing: Timing) -> Result<Arc<Stamp>> {
        self.stamps.take_fit(Stamp::renew, || {
            let queue = &self.queue;
            Stamp::new(queue.device(), queue.object(), self.driver.family())
        })
    }

    fn stamp_again(
        &self,
        queue: &Object,
        timing: Timing,
        before: Arc<Stamp>,
    ) -> Result<Arc<Stamp>> {
        let again = self.stamps.take_again(before, Stamp::renew);
        again.map_or_else(|| self.stamp(queue, timing), Ok)
    }

    fn write_stamp(recorder: &mut Recorder<'_>, stamp: ToWrite<'_, Self>) -> Result<()> {
        recorder.write_time(&stamp);
        Ok(())
    }
}
