//! The device's clock: the calibrated one, or one that is read with submitted timestamps.
//!
//! With calibrated timestamps the driver reads both clocks together (`timing::clock`). Without
//! them, a timestamp is submitted between two readings of the host's clock. Such timestamps also
//! check the calibrated ones, because some drivers read another counter than their queues write.

use std::sync::Arc;
use std::time::Duration;

use syncline_core::backend::kit::Effort;
use syncline_core::backend::{Enqueue as _, Sampler, Timing};
use syncline_core::clock::{Clock, HostClock, Sample};
use syncline_core::{Error, QueueKind, Result, error::Object, info::Uuid};

use crate::device::clock_readings::ReadBy;
use crate::device::driver_queue::DriverQueue;
use crate::device::open::Device;
use crate::queue::recorder::Recorder;
use crate::queue::submission::Queue;
use crate::timing::clock::{CalibratedReader, WeakDevice, no_device};

/// The limits for submitted timestamps. Each takes a round trip to the device.
const SUBMISSION_EFFORT: Effort = Effort {
    limit: Duration::from_millis(1),
    samples: 8,
    enough: 0,
};

/// How long a sample waits for one submitted timestamp, behind other work of its `VkQueue`.
const SAMPLE_TIMEOUT: Duration = Duration::from_millis(250);

impl Device {
    /// The clock of [`backend::Device::clock`](syncline_core::backend::Device::clock).
    pub(crate) fn own_clock(&self) -> Result<Clock> {
        let own = self.inner().clock();
        if let Some(clock) = own.get() {
            return Ok(clock.keeping(self.inner().clone()));
        }
        let clock = own.get_or_make(|| self.new_clock())?;
        let clock = clock.keeping(self.inner().clone());
        if own.calibrated_with().is_some() {
            // Checks the calibrated timestamps now. Later the queues may have work that waits. A
            // later sample returns the error, if there is still one.
            let _ = clock.sample();
        }
        Ok(clock)
    }

    fn new_clock(&self) -> Result<Clock> {
        self.inner().counter()?;
        let object = Object::new("clock", &self.info().name);
        let device = WeakDevice::of(self.inner());
        let host = self.inner().clock().calibrated_with();
        let calibrated = host.zip(self.calibration());
        if calibrated.is_none() {
            self.stamping_queue()?;
        }
        let sampler = DeviceSampler {
            device,
            name: object.clone(),
            calibrated: calibrated.map(|(host, call)| CalibratedReader::new(host, call)),
        };
        Ok(Clock::new(object, sampler))
    }

    /// Converts a timestamp of this device to a time on its [clock], in nanoseconds.
    ///
    /// The timestamp is what `vkCmdWriteTimestamp` writes into a query on one of the device's
    /// queues, also in the application's own command buffers. Bits that are not valid are ignored,
    /// and wraps of the counter are undone.
    ///
    /// The counter must have advanced by less than half a round since the timestamp was written.
    /// With 36 valid bits of 1 ns that takes 34 seconds, with 64 bits centuries.
    ///
    /// If the clock was not sampled within the last quarter of a round, a call takes a sample
    /// first. Other calls do not block. Any thread may call this.
    ///
    /// See `VkQueueFamilyProperties::timestampValidBits` and *Timestamp Queries* in the Vulkan
    /// specification.
    ///
    /// # Errors
    /// Same errors as [`Device::clock`][clock] and as samples of that clock.
    ///
    /// [clock]: syncline_core::backend::Device::clock
    pub fn time_of(&self, timestamp: u64) -> Result<i64> {
        let clock = self.own_clock()?;
        let convert = |refuse_stale: bool| {
            self.inner().clock().convert(|rounds| {
                // A counter of 64 bits never wraps, so the host's clock is not read.
                let stale = refuse_stale
                    && rounds.counter().bits() < 64
                    && rounds.are_stale(clock.host_clock().now());
                rounds.time_of(timestamp).filter(|_| !stale)
            })
        };
        if let Some(time) = convert(true) {
            return Ok(time);
        }
        clock.sample()?;
        convert(false).ok_or_else(no_device)
    }

    /// The least used `VkQueue` that can write timestamps.
    fn stamping_queue(&self) -> Result<&Arc<DriverQueue>> {
        let resets = |queue: &&Arc<DriverQueue>| {
            let family = queue.family();
            family.timestamp_bits > 0
                && (self.enabled().host_query_reset || family.kind != QueueKind::Transfer)
        };
        let queues = self.inner().queues().iter().filter(resets);
        queues.min_by_key(|queue| queue.users()).ok_or_else(|| {
            let reason = "it was made without calibrated timestamps, and with no queue that can write a timestamp";
            Error::unsupported(self.object(), "read its clock", reason)
        })
    }
}

/// Samples with calibrated timestamps, or without them with submitted ones.
struct DeviceSampler {
    device: WeakDevice,
    /// The clock's name in errors.
    name: Object,
    calibrated: Option<CalibratedReader>,
}

impl DeviceSampler {
    /// Submits timestamps between two readings of the host's clock. Waits for each up to `within`.
    fn submitted(&self, device: &Device, within: Duration) -> Result<Sample> {
        let host = self.host_clock();
        // Created for each sample, because a queue keeps the device.
        let queue = Queue::new(device, device.stamping_queue()?, "clock")?;
        let read = || {
            let stamp = queue
                .submissions()
                .driver()
                .stamp(queue.submissions().object(), Timing::Clock)?;
            let (written, before) = (stamp.clone(), host.now());
            let work = move |recorder: &mut Recorder<'_>| {
                recorder.write_time(&written);
                Ok(())
            };
            queue.submissions().submit(&[], work, &[])?;
            queue
                .submissions()
                .idle(within)
                .map_err(|error| self.silent(error, within))?;
            let after = host.now();
            Ok(Sample::between(before, stamp.ticks()?.cast_signed(), after))
        };
        device
            .inner()
            .sample(SUBMISSION_EFFORT, host, ReadBy::Queue, read)
    }

    fn silent(&self, error: Error, within: Duration) -> Error {
        if !error.is_timeout() {
            return error;
        }
        let reason = match self.calibrated {
            None => "read it",
            Some(_) => "check it",
        };
        Error::clock_silent(
            &self.name,
            within,
            format!(
                "the timestamp that was submitted to {reason} still waits, behind other work of its VkQueue or for \
                 the application to unlock it"
            ),
        )
    }
}

impl Sampler for DeviceSampler {
    fn sample(&self) -> Result<Sample> {
        let device = self.device.get()?;
        match &self.calibrated {
            Some(calibrated) => calibrated.sample(&device),
            None => self.submitted(&Device::of(device), SAMPLE_TIMEOUT),
        }
    }

    fn written(&self, within: Duration) -> Option<Result<Sample>> {
        self.calibrated?;
        let device = match self.device.get() {
            Ok(device) => Device::of(device),
            Err(error) => return Some(Err(error)),
        };
        // Without such a queue, the device writes no times that could contradict the driver.
        device.stamping_queue().ok()?;
        Some(self.submitted(&device, within))
    }

    fn host_clock(&self) -> HostClock {
        let calibrated = self.calibrated.as_ref();
        calibrated.map_or(HostClock::Monotonic, CalibratedReader::host)
    }

    fn resolution(&self) -> u64 {
        self.device.resolution()
    }

    fn gpu(&self) -> Option<Uuid> {
        self.device.gpu()
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        unsafe_code,
        clippy::unwrap_used,
        reason = "asks the driver, and may panic"
    )]

    use std::time::Duration;

    use syncline_core::backend::kit::TimestampCounter;
    use syncline_core::backend::{Device as _, Queue as _};

    use crate::device::open::Device;
    use crate::device::physical::PhysicalDevice;
    use crate::driver::instance::Instance;
    use crate::queue::submission::Queue;

    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Runs `test` on each device, with 36 valid timestamp bits and a queue of a family that has
    /// 64.
    ///
    /// This simulates another family with 36 bits. The higher bits of the queue's timestamps must
    /// not count.
    fn with_36_bits(test: impl Fn(&Device, &Queue)) {
        let Ok(instance) = Instance::load() else {
            return;
        };
        for candidate in instance.devices().unwrap() {
            // SAFETY: the physical device belongs to the instance, which is alive.
            let probe = unsafe {
                PhysicalDevice::probe(instance.entry(), instance.raw(), candidate.physical(), None)
            };
            let mut families = probe.families().iter().copied();
            let wide = families.find(|family| family.timestamp_bits == 64);
            let (Some(wide), Ok(())) = (wide, probe.usable()) else {
                continue;
            };
            let device = Device::open_probed(&instance, probe.with_timestamp_bits(36)).unwrap();
            let queue = device.queue_of_family(wide.index, "stamped").unwrap();
            test(&device, &queue);
            queue.idle(TIMEOUT).unwrap();
        }
    }

    #[test]
    fn timestamp_bits_that_another_family_lacks_are_ignored() {
        with_36_bits(|device, queue| {
            let clock = device.clock().unwrap();
            let host = clock.host_clock();
            for _ in 0..10 {
                let fence = device.clocked_fence("time").unwrap();
                let before = host.now();
                queue.record(&fence).unwrap();
                fence.wait(TIMEOUT).unwrap();
                let after = host.now();
                let time = fence.time().unwrap().to_host().unwrap();
                let error = time.error.cast_signed();
                assert!(
                    before - error <= time.nanoseconds && time.nanoseconds <= after + error,
                    "{time:?} is not between {before} and {after}"
                );
            }
        });
    }

    /// The clock was last sampled 200 rounds ago. It has drifted from the host's clock by a twelfth
    /// of a round since.
    #[test]
    fn a_stale_reading_of_the_clock_is_not_used() {
        with_36_bits(|device, queue| {
            let clock = device.clock().unwrap();
            let host = clock.host_clock();
            let period = device.info().capabilities.timestamp_period_ns;
            let counter = TimestampCounter::new(36, period).unwrap();
            let round = counter.wraps_after().cast_signed();
            for parted in [-round / 12, round / 12] {
                let shown = clock.sample().unwrap().sample.device;
                let ago = 200 * round;
                let then = ((shown - ago + parted) as f64 / period) as i64 as u64;
                device
                    .inner()
                    .clock()
                    .reset(counter, then, host.now() - ago);
                let fence = device.clocked_fence("time").unwrap();
                queue.record(&fence).unwrap();
                fence.wait(TIMEOUT).unwrap();
                let time = fence.time().unwrap().nanoseconds();
                let sampled = clock.sample().unwrap().sample.device;
                assert!(
                    time.abs_diff(sampled) < TIMEOUT.as_nanos() as u64,
                    "{time} {sampled}"
                );
            }
        });
    }
}
