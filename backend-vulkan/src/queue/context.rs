//! What all parts of a queue know: its device, its name, its family and its position.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ash::vk;
use syncline_core::backend::NativePoint;
use syncline_core::backend::kit::{RunsInProcess, TeardownGuard};
use syncline_core::{Error, Result, error::Object};

use crate::device::inner::Inner;
use crate::timeline::port::Port;
use crate::timeline::semaphore::Semaphore;

/// How long the drop of a queue waits for work that may still execute after an error.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

/// What all parts of a queue know. Any thread may use it.
pub(crate) struct QueueContext {
    device: Arc<Inner>,
    /// The queue's name.
    object: Object,
    family: u32,
    /// The queue's own timeline, from its first submission on.
    own: OnceLock<Arc<Semaphore>>,
    /// The number of the last submission that the driver has taken.
    last_submitted: AtomicU64,
}

impl QueueContext {
    pub(crate) fn new(device: &Arc<Inner>, object: &Object, family: u32) -> Self {
        Self {
            device: device.clone(),
            object: object.clone(),
            family,
            own: OnceLock::new(),
            last_submitted: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) const fn device(&self) -> &Arc<Inner> {
        &self.device
    }

    /// The name of the queue.
    #[inline]
    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }

    /// The index of the queue family.
    #[inline]
    pub(crate) const fn family(&self) -> u32 {
        self.family
    }

    /// Notes the queue's own timeline, of which `end` is a point. Returns its semaphore.
    ///
    /// # Errors
    /// Same errors as [`QueueContext::semaphore`].
    pub(crate) fn set_own(&self, end: NativePoint<'_>) -> Result<Arc<Semaphore>> {
        let own = self.semaphore(end)?;
        Ok(self.own.get_or_init(|| own.clone()).clone())
    }

    /// The error for a failed call of the queue.
    #[cold]
    pub(crate) fn failed(&self, call: &'static str, code: vk::Result) -> Error {
        self.device.failed(&self.object, call, code)
    }

    /// The semaphore of `point` on the queue's device.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if its port is of another `VkDevice`.
    #[inline]
    pub(crate) fn semaphore<'p>(&self, point: NativePoint<'p>) -> Result<&'p Arc<Semaphore>> {
        let port = point.port::<Port>();
        let semaphore = port.and_then(|port| port.on(&self.device));
        semaphore.ok_or_else(|| {
            let reason = "its port on this device is not a semaphore of this VkDevice";
            Error::unsupported(point.object(), "be used by a Vulkan queue", reason)
        })
    }

    /// Notes that the driver has taken submission `number`.
    #[inline]
    pub(crate) fn note_submitted(&self, number: u64) {
        self.last_submitted.store(number, Ordering::Relaxed);
    }

    /// Polls the number of the last finished submission.
    ///
    /// Returns 0 if the counter cannot be read. The engine meets the same error itself.
    pub(crate) fn poll_finished(&self) -> u64 {
        let value = self.own.get().and_then(|own| own.value().ok());
        value.filter(|&value| value != u64::MAX).unwrap_or(0)
    }

    /// True if the counter shows that the driver has finished all submissions that it has taken.
    pub(crate) fn is_idle(&self) -> bool {
        let last = self.last_submitted.load(Ordering::Relaxed);
        last == 0 || self.poll_finished() >= last
    }

    /// True if no work of the queue can execute any more. May wait up to [`DROP_TIMEOUT`].
    ///
    /// The engine drops a queue's state once everything on the queue has finished. Work may still
    /// execute only if the engine has given up the queue after an error.
    pub(crate) fn has_ended(&self) -> bool {
        let last = self.last_submitted.load(Ordering::Relaxed);
        let Some(own) = self.own.get() else {
            return true;
        };
        self.device.is_lost()
            || own.value().is_ok_and(|value| value >= last)
            || self.has_ended_by(own, last, Instant::now() + DROP_TIMEOUT)
    }

    /// Waits for the work up to submission `last`. Returns false if the work may still execute.
    fn has_ended_by(&self, own: &Semaphore, last: u64, deadline: Instant) -> bool {
        // An exit of the process waits for this guard. Once the exit has begun, no driver call is
        // made.
        let Some(_guard) = TeardownGuard::begin() else {
            return false;
        };
        let none = vk::SemaphoreWaitFlags::empty();
        let waited = self
            .device
            .wait_semaphores(none, &[own.raw()], &[last], deadline);
        // After an error the work may still execute, unless the device is lost.
        waited.unwrap_or_else(|_| self.device.is_lost())
    }
}

impl RunsInProcess for QueueContext {
    fn is_idle(&self) -> bool {
        self.device.is_lost() || self.is_idle()
    }
}
