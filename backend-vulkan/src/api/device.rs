//! [`Backend`] for devices.
#![allow(unsafe_code, reason = "talks to the driver")]

use ash::vk;
#[cfg(doc)]
use syncline_core::Error;
use syncline_core::backend::{Attachment, Backend, Identity};
use syncline_core::clock::Clock;
use syncline_core::{Object, QueueKind, Result, Timeline};

use crate::device::open::Device;
#[cfg(doc)]
use crate::device::physical::Enabled;
use crate::queue::submission::{QUEUE, Queue, Submitter};
use crate::timeline::port::Semaphore;

impl Backend for Device {
    type Queue = Queue;
    type Enqueue = Submitter;
    const QUEUE: &'static str = QUEUE;

    fn identity(&self) -> Identity<'_> {
        Identity {
            id: self.0.id,
            object: &self.0.object,
            info: &self.0.info,
        }
    }

    fn port(&self, initial: u64) -> Result<Attachment> {
        let no_handle = vk::ExternalSemaphoreHandleTypeFlags::empty();
        Ok(Semaphore::new(&self.0, initial, no_handle)?.attach(initial))
    }

    fn enqueue(&self, kind: QueueKind, queue: &Object, own: &Timeline) -> Result<Submitter> {
        Submitter::new(self, self.driver_queue_of_kind(kind)?, queue, own)
    }

    fn check(&self) -> Result<()> {
        if let Some(lost) = self.0.lost.get() {
            return Err(lost.clone());
        }
        let call = "vkGetSemaphoreCounterValue";
        // SAFETY: the nudge semaphore lives as long as the device.
        match unsafe { self.0.raw().get_semaphore_counter_value(self.0.wake.raw) } {
            // What a counter reads once the device behind it is gone.
            Ok(u64::MAX) => Err(self
                .0
                .failed(&self.0.object, call, vk::Result::ERROR_DEVICE_LOST)),
            Ok(_) => Ok(()),
            Err(code) => Err(self.0.failed(&self.0.object, call, code)),
        }
    }

    /// The clock that its timestamps count (`VK_TIME_DOMAIN_DEVICE_KHR`), in nanoseconds, beside the host's
    /// `CLOCK_MONOTONIC`, or its `CLOCK_MONOTONIC_RAW` where the driver knows no other; [`Clock::host_clock`] tells which.
    /// It may be used from any thread, and keeps the device.
    ///
    /// A device made with calibrated timestamps ([`Enabled::calibrated_timestamps`]) asks its driver for each sample
    /// (`vkGetCalibratedTimestampsKHR`): the best of up to eight readings, of which none is begun after half a
    /// millisecond. The deviation is the driver's `pMaxDeviation`, and what the host's clock resolves, and for how long the
    /// device's shows the same: at least the `timestampPeriod`, and more where it has only been seen to go on by more.
    ///
    /// Any other device, and one whose driver knows neither of the host's clocks, writes timestamps for each sample on the
    /// `VkQueue` that the fewest use. The deviation is half of the time from before the submission until the host has seen
    /// it finished: some tens of microseconds on an idle device. A sample takes a millisecond then, or blocks for up to
    /// 0.25 s behind other work of that `VkQueue`, also while the application holds its
    /// [`QueueGuard`](crate::QueueGuard), and then fails.
    ///
    /// Either way a counter of few bits has to be sampled again before it has come round a thousand times, which 36 bits of
    /// 1 ns take 19 hours for.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if no queue family has valid timestamp bits; or, without calibration, if the device has no
    /// queue that can write timestamps. Those of its samples: a driver error, and without calibration [`Error::ClockSilent`].
    fn clock(&self) -> Result<Clock> {
        self.own_clock()
    }
}
