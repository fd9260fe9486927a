//! The device's clock.
//!
//! With calibrated timestamps the driver reads both clocks together (`timing::clock`). Without them,
//! a timestamp is submitted between two readings of the host's clock.

use std::sync::Arc;
use std::time::Duration;

use syncline_core::backend::{Enqueue as _, Timing};
use syncline_core::clock::{Clock, Effort, Sample, Sampler};
use syncline_core::{Error, Object, QueueKind, Result, Uuid};

use crate::device::driver_queue::DriverQueue;
use crate::device::open::Device;
use crate::driver::error::unsupported;
use crate::driver::lock::lock;
use crate::queue::recorder::Recorder;
use crate::queue::submission::Queue;
use crate::timing::clock::{Calibrated, Owner, no_device};

/// How timestamps are submitted, each of which takes as long as the way to the device and back.
const SUBMITTED: Effort = Effort {
    limit: Duration::from_millis(1),
    samples: 8,
    enough: 0,
};

/// How long one submitted timestamp is waited for, behind whatever else its `VkQueue` has to do.
const PATIENCE: Duration = Duration::from_millis(250);

impl Device {
    /// The clock; see [`backend::Device::clock`](syncline_core::backend::Device::clock) of this device.
    pub(crate) fn own_clock(&self) -> Result<Clock> {
        let made = &self.0.clock.clock;
        let clock = match made.get() {
            Some(clock) => clock,
            None => {
                let clock = self.new_clock()?;
                made.get_or_init(|| clock)
            }
        };
        Ok(clock.keeping(self.0.clone()))
    }

    fn new_clock(&self) -> Result<Clock> {
        self.0.counter()?;
        let object = Object::new("clock", &self.0.info.name);
        let device = Owner::of(&self.0);
        if let (Some(host), Some(call)) = (self.0.host_clock, self.calibration()) {
            return Ok(Clock::new(object, Calibrated::new(device, host, call)));
        }
        self.stamping_queue()?;
        let name = object.clone();
        Ok(Clock::new(object, Submitted { device, name }))
    }

    /// The time on its clock ([`Device::clock`](syncline_core::backend::Device::clock)), in nanoseconds, of a timestamp that
    /// one of its queues has written: what `vkCmdWriteTimestamp` leaves in a query, in an application's own command buffers
    /// too. Bits that are not valid are ignored, and where the counter has come round, that is undone.
    ///
    /// The counter must not have come half round since the timestamp was written: with 36 valid bits of 1 ns each that takes
    /// 34 seconds, with 64 bits centuries. A call samples the clock, and takes as long as that does, if nobody has done so
    /// before, or not in the last quarter of a round; others do not block. May be called from any thread.
    ///
    /// See `VkQueueFamilyProperties::timestampValidBits` and *Timestamp Queries* in the specification.
    ///
    /// # Errors
    /// Those of [`Device::clock`](syncline_core::backend::Device::clock), and of its samples.
    pub fn time_of(&self, timestamp: u64) -> Result<i64> {
        let clock = self.own_clock()?;
        let known = |recently: bool| {
            let readings = lock(&self.0.clock.readings);
            let rounds = &readings.as_ref()?.rounds;
            // A counter of 64 bits is never in doubt, and the host's clock need not be asked.
            let stale = recently
                && rounds.counter().bits() < 64
                && rounds.are_stale(clock.host_clock().now());
            rounds.time_of(timestamp).filter(|_| !stale)
        };
        if let Some(time) = known(true) {
            return Ok(time);
        }
        clock.sample()?;
        known(false).ok_or_else(no_device)
    }

    /// Where a timestamp can be submitted: the least used `VkQueue` of those that write some.
    fn stamping_queue(&self) -> Result<&Arc<DriverQueue>> {
        let resets = |queue: &&Arc<DriverQueue>| {
            queue.family.timestamp_bits > 0
                && (self.0.enabled.host_query_reset || queue.family.kind != QueueKind::Transfer)
        };
        let queues = self.0.queues.iter().filter(resets);
        queues.min_by_key(|queue| queue.users()).ok_or_else(|| {
            let reason = "it was made without calibrated timestamps, and with no queue that can write a timestamp";
            unsupported(&self.0.object, "read its clock", reason)
        })
    }
}

/// Submits timestamps and waits for them, for devices made without calibration.
struct Submitted {
    device: Owner,
    /// In errors.
    name: Object,
}

impl Submitted {
    fn silent(&self, error: Error) -> Error {
        if !error.is_timeout() {
            return error;
        }
        Error::ClockSilent {
            clock: self.name.clone(),
            waited: PATIENCE,
            reason: "the timestamp that was submitted to read it still waits, behind other work of its VkQueue or for the \
                     application to unlock it"
                .into(),
        }
    }
}

impl Sampler for Submitted {
    fn sample(&self) -> Result<Sample> {
        let device = Device(self.device.get()?);
        let host = self.host_clock();
        // Made anew each time, as it keeps the device.
        let queue = Queue::new(&device, device.stamping_queue()?, "clock")?;
        device.0.sample(SUBMITTED, host, || {
            let stamp = queue
                .submissions()
                .driver()
                .stamp(queue.submissions().object(), Timing::Clock)?;
            let (written, before) = (stamp.clone(), host.now());
            let work = move |recorder: &mut Recorder<'_>| {
                recorder.recorded.write_time(&written);
                Ok(())
            };
            queue.submissions().submit(&[], work, &[])?;
            queue
                .submissions()
                .idle(PATIENCE)
                .map_err(|error| self.silent(error))?;
            let after = host.now();
            Ok(Sample::between(before, stamp.ticks()?.cast_signed(), after))
        })
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

    use syncline_core::backend::{Device as _, Queue as _};
    use syncline_core::clock::Counter;

    use super::lock;
    use crate::device::clock_readings::Readings;
    use crate::device::open::Device;
    use crate::device::physical::PhysicalDevice;
    use crate::driver::instance::Instance;
    use crate::queue::submission::Queue;

    const SOON: Duration = Duration::from_secs(20);

    /// Every device here, as though one of its queue families wrote 36 bits alone: so that of the others the higher ones must not count.
    fn mixed(test: impl Fn(&Device, &Queue)) {
        let Ok(instance) = Instance::load() else {
            return;
        };
        for candidate in instance.devices().unwrap() {
            // SAFETY: the physical device is the instance's, which lives.
            let mut probe = unsafe {
                PhysicalDevice::probe(instance.entry(), instance.raw(), candidate.physical(), None)
            };
            let can = &mut probe.info.capabilities;
            let wide = probe
                .families
                .iter()
                .find(|family| family.timestamp_bits == 64);
            let (Some(wide), None) = (wide, &probe.rejected) else {
                continue;
            };
            can.timestamp_bits = 36;
            let device = Device::open(&instance, &probe).unwrap();
            let queue = device.queue_of_family(wide.index, "stamped").unwrap();
            test(&device, &queue);
            queue.idle(SOON).unwrap();
        }
    }

    #[test]
    fn bits_that_one_family_lacks_do_not_count() {
        mixed(|device, queue| {
            let clock = device.clock().unwrap();
            let host = clock.host_clock();
            for _ in 0..10 {
                let fence = device.clocked_fence("time").unwrap();
                let before = host.now();
                queue.record(&fence).unwrap();
                fence.wait(SOON).unwrap();
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

    /// The clock was sampled two hundred rounds ago, and has parted from the host's by a twelfth of one since.
    #[test]
    fn a_reading_that_is_too_old_is_not_gone_by() {
        mixed(|device, queue| {
            let clock = device.clock().unwrap();
            let host = clock.host_clock();
            let period = device.info().capabilities.timestamp_period_ns;
            let counter = Counter::new(36, period).unwrap();
            let round = counter.wraps_after().cast_signed();
            for parted in [-round / 12, round / 12] {
                let shown = clock.sample().unwrap().sample.device;
                let ago = 200 * round;
                let then = ((shown - ago + parted) as f64 / period) as i64 as u64;
                let mut readings = Readings::new(counter, then);
                readings.rounds.follow(then, host.now() - ago);
                *lock(&device.0.clock.readings) = Some(readings);
                let fence = device.clocked_fence("time").unwrap();
                queue.record(&fence).unwrap();
                fence.wait(SOON).unwrap();
                let time = fence.time().unwrap().nanoseconds();
                let sampled = clock.sample().unwrap().sample.device;
                assert!(
                    time.abs_diff(sampled) < SOON.as_nanos() as u64,
                    "{time} {sampled}"
                );
            }
        });
    }
}
