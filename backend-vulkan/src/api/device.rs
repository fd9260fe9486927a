//! [`Backend`] for the Vulkan device.

#[allow(unused_imports, reason = "for links, also in the facade")]
use syncline_core::Error;
use syncline_core::backend::{Backend, Identity, Sharing, Watch as _};
use syncline_core::clock::Clock;
use syncline_core::{QueueKind, Result, error::Object, info::Pooled};

use crate::device::open::Device;
#[allow(unused_imports, reason = "for links, also in the facade")]
use crate::device::physical::Enabled;
use crate::queue::submission::{Feed, QUEUE, Queue};

impl Backend for Device {
    type Queue = Queue;
    const QUEUE: &'static str = QUEUE;

    fn identity(&self) -> Identity<'_> {
        Identity {
            id: self.id(),
            object: self.object(),
            info: self.info(),
        }
    }

    fn enqueue(&self, kind: QueueKind, queue: &Object) -> Result<Feed> {
        Ok(Feed::new(self, self.driver_queue_of_kind(kind)?, queue))
    }

    fn check(&self) -> Result<()> {
        self.inner().check()
    }

    /// The device's clock (`VK_TIME_DOMAIN_DEVICE_KHR`) in nanoseconds, sampled with the host's
    /// clock.
    ///
    /// The host's clock is `CLOCK_MONOTONIC`, or `CLOCK_MONOTONIC_RAW` if the driver supports no
    /// other. [`Clock::host_clock`] returns which. Any thread may use the clock, which keeps the
    /// device.
    ///
    /// A device with calibrated timestamps ([`Enabled::calibrated_timestamps`]) calls
    /// `vkGetCalibratedTimestampsKHR` for each sample. The best of up to eight readings counts, and
    /// none begins after half a millisecond. The deviation is the driver's `pMaxDeviation`, plus
    /// the resolution of the host's clock, plus the step of the device's clock. The step is at
    /// least `timestampPeriod`, and more if readings have only shown larger steps.
    ///
    /// A submitted timestamp checks these readings, at the first call and every few seconds. The
    /// first check may block like the samples below. A later one is skipped after 2 ms. If the
    /// driver reads another clock than its queues write, its readings are [refused] and timestamps
    /// are submitted.
    ///
    /// Any other device, and one whose driver supports neither of the host's clocks, submits
    /// timestamps for each sample to its least used `VkQueue`. The deviation is half of the time
    /// from before the submission until the host has seen it finished. On an idle device it is some
    /// tens of microseconds.
    ///
    /// Such a sample takes one millisecond. It blocks for up to 0.25 s behind other work of that
    /// `VkQueue`, or while the application holds the [`QueueGuard`](crate::QueueGuard). Then the
    /// sample fails.
    ///
    /// In both cases the first samples may take up to 20 ms, until the step of the counter is
    /// known. A counter with few bits must be sampled again before it has wrapped a thousand times.
    /// With 36 bits of 1 ns that takes 19 hours.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if no queue family has valid timestamp bits, or, without calibrated
    /// timestamps, if no queue of the device can write timestamps. Samples return driver errors,
    /// and [`Error::ClockSilent`] without calibrated timestamps or before their first check.
    ///
    /// [refused]: Clock::refused_calibration
    fn clock(&self) -> Result<Clock> {
        self.own_clock()
    }

    fn trim(&self) -> Pooled {
        self.inner().trim()
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        Some(self)
    }
}
