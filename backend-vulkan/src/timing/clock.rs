//! The device's clock beside the host's.
//!
//! With `VK_KHR_calibrated_timestamps`, or the EXT that it was before, the driver reads both together and says how far they
//! may be apart. Without, a timestamp is submitted between two readings of the host's clock, and half of what lies between
//! is the deviation.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ffi::CStr;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use ash::{ext, khr, vk};
use syncline_core::backend::{Enqueue as _, Queue as _, Timing};
use syncline_core::clock::{Clock, Counter, Effort, HostClock, Rounds, Sample, Sampler};
use syncline_core::{Error, Object, QueueKind, Result, Uuid};

use crate::device::open::{Device, Inner};
use crate::driver::error::{lock, unavailable, unsupported};
use crate::queue::driver_queue::DriverQueue;
use crate::queue::submission::Queue;

/// How the driver is asked: some microseconds each time. The best of several, as each may be interrupted.
const ASKED: Effort = Effort {
    limit: Duration::from_micros(500),
    samples: 8,
    enough: 0,
};

/// How timestamps are submitted, each of which takes as long as the way to the device and back.
const SUBMITTED: Effort = Effort {
    limit: Duration::from_millis(1),
    samples: 8,
    enough: 0,
};

/// How long one submitted timestamp is waited for, behind whatever else its `VkQueue` has to do.
const PATIENCE: Duration = Duration::from_millis(250);

/// What a device has of its clock.
#[derive(Default)]
pub(crate) struct Clocks {
    /// Made when it is first asked for.
    clock: OnceLock<Clock>,
    readings: Mutex<Option<Readings>>,
}

impl Clocks {
    /// The host's clock that the device's is compared with.
    pub(crate) fn host_clock(&self) -> HostClock {
        let clock = self.clock.get();
        clock.map_or(HostClock::Monotonic, Clock::host_clock)
    }
}

/// What has been read of the device's counter.
struct Readings {
    rounds: Rounds,
    /// So many ticks it counts at once, as far as has been seen: what all differences between readings have in common;
    /// 0 before there were two different ones.
    step: u64,
    /// How many differences that is, up to [`KNOWN`].
    differences: u32,
    latest: u64,
}

/// What so many differences have in common is the counter's step; what two or three have is mostly many steps.
const KNOWN: u32 = 6;

/// So long is sampled at first, until it is known.
const FIRST: Duration = Duration::from_millis(20);

impl Readings {
    fn new(counter: Counter, first: u64) -> Self {
        Self {
            rounds: Rounds::new(counter),
            step: 0,
            differences: 0,
            latest: first,
        }
    }

    fn note(&mut self, ticks: u64) {
        let before = std::mem::replace(&mut self.latest, ticks);
        let between = self.rounds.counter().valid(ticks.wrapping_sub(before));
        self.step = common_divisor(self.step, between);
        if between > 0 {
            self.differences = KNOWN.min(self.differences + 1);
        }
    }

    /// For so many nanoseconds it shows the same.
    fn stands_still(&self) -> u64 {
        let ticks = self.step.max(1) as f64;
        (ticks * self.rounds.counter().period()).ceil() as u64
    }
}

/// Euclid's.
const fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Inner {
    /// What its timestamps count. The fewest bits that a queue family's are valid with are right for all of them.
    fn counter(&self) -> Result<Counter> {
        let can = &self.info.capabilities;
        Counter::new(can.timestamp_bits, can.timestamp_period_ns).ok_or_else(|| {
            let reason = "no queue family has valid timestamp bits";
            unsupported(&self.object, "read its clock", reason)
        })
    }

    /// For so many nanoseconds its counter shows the same, as far as has been seen.
    fn resolution(&self) -> u64 {
        let readings = lock(&self.clocks.readings);
        readings.as_ref().map_or(1, Readings::stands_still)
    }

    /// The best of what `read` says, with the device's clock in ticks there and in nanoseconds here. What the counter and
    /// the host's clock leave unsaid between two steps of theirs is added to the deviation.
    fn sample(
        &self,
        effort: Effort,
        host: HostClock,
        mut read: impl FnMut() -> Result<Sample>,
    ) -> Result<Sample> {
        let counter = self.counter()?;
        let known = {
            let readings = lock(&self.clocks.readings);
            readings
                .as_ref()
                .is_some_and(|readings| readings.differences == KNOWN)
        };
        let effort = Effort {
            limit: if known { effort.limit } else { FIRST },
            ..effort
        };
        let best = effort.best(|| {
            let sample = read()?;
            let ticks = sample.device.cast_unsigned();
            let mut readings = lock(&self.clocks.readings);
            let readings = readings.get_or_insert_with(|| Readings::new(counter, ticks));
            readings.note(ticks);
            Ok(sample)
        })?;
        let ticks = best.device.cast_unsigned();
        let mut readings = lock(&self.clocks.readings);
        let readings = readings.get_or_insert_with(|| Readings::new(counter, ticks));
        let coarse = readings.stands_still().saturating_add(host.resolution());
        Ok(Sample {
            device: readings.rounds.follow(ticks, best.host),
            host: best.host,
            deviation: best.deviation.saturating_add(coarse),
        })
    }
}

impl Device {
    /// The clock; see [`backend::Device::clock`](syncline_core::backend::Device::clock) of this device.
    pub(crate) fn own_clock(&self) -> Result<Clock> {
        let clocks = &self.0.clocks;
        let clock = match clocks.clock.get() {
            Some(clock) => clock,
            None => {
                let clock = self.new_clock()?;
                clocks.clock.get_or_init(|| clock)
            }
        };
        Ok(clock.keeping(self.0.clone()))
    }

    fn new_clock(&self) -> Result<Clock> {
        self.0.counter()?;
        let object = Object::new("clock", &self.0.info.name);
        let device = Owner(Arc::downgrade(&self.0));
        if let (Some(host), Some(call)) = (self.0.host_clock, self.calibration()) {
            return Ok(Clock::new(object, Calibrated { device, host, call }));
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
            let readings = lock(&self.0.clocks.readings);
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

    /// As [`Device::time_of`], of a timestamp that was written after the host's clock showed `recorded`, by less than a round:
    /// when it is read does not matter, unless the two clocks have parted by a sixteenth of a round since or before.
    pub(crate) fn time_written(&self, timestamp: u64, recorded: i64) -> Result<i64> {
        let known = |surely: bool| {
            let readings = lock(&self.0.clocks.readings);
            let rounds = &readings.as_ref()?.rounds;
            if rounds.counter().bits() == 64 {
                rounds.time_of(timestamp)
            } else if surely && rounds.may_have_parted(recorded) {
                None
            } else {
                rounds.time_after(timestamp, recorded)
            }
        };
        if let Some(time) = known(true) {
            return Ok(time);
        }
        self.own_clock()?.sample()?;
        known(false).ok_or_else(no_device)
    }

    /// `vkGetCalibratedTimestampsKHR`, or the EXT's, if the device was made with it.
    fn calibration(&self) -> Option<vk::PFN_vkGetCalibratedTimestampsKHR> {
        let (instance, device) = (self.instance(), self.raw());
        if !self.0.enabled.calibrated_timestamps {
            return None;
        }
        // An application that lends its device says that it has one of the two, but not which.
        let has = |name: &CStr| {
            // SAFETY: a live device of this instance; the name ends in 0.
            unsafe { instance.get_device_proc_addr(device.handle(), name.as_ptr()) }.is_some()
        };
        if has(c"vkGetCalibratedTimestampsKHR") {
            let functions = khr::calibrated_timestamps::Device::new(instance, device);
            Some(functions.fp().get_calibrated_timestamps_khr)
        } else if has(c"vkGetCalibratedTimestampsEXT") {
            let functions = ext::calibrated_timestamps::Device::new(instance, device);
            Some(functions.fp().get_calibrated_timestamps_ext)
        } else {
            None
        }
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

/// A sample of a clock whose device is gone; nobody can ask for one, as who has the clock keeps the device.
fn no_device() -> Error {
    unavailable("the device is gone")
}

/// Whose clock it is. The device keeps the clock; who has the clock keeps the device.
struct Owner(Weak<Inner>);

impl Owner {
    fn get(&self) -> Result<Arc<Inner>> {
        self.0.upgrade().ok_or_else(no_device)
    }

    fn resolution(&self) -> u64 {
        self.0.upgrade().map_or(1, |device| device.resolution())
    }

    fn gpu(&self) -> Option<Uuid> {
        self.0.upgrade()?.info.uuid
    }
}

/// Asks the driver, `vkGetCalibratedTimestamps`.
struct Calibrated {
    device: Owner,
    host: HostClock,
    call: vk::PFN_vkGetCalibratedTimestampsKHR,
}

impl Calibrated {
    /// Ticks of the device, the host's clock, and by how much they may be apart.
    fn read(&self, device: &Inner) -> Result<Sample> {
        let domain = match self.host {
            HostClock::MonotonicRaw => vk::TimeDomainKHR::CLOCK_MONOTONIC_RAW,
            _ => vk::TimeDomainKHR::CLOCK_MONOTONIC,
        };
        let infos = [vk::TimeDomainKHR::DEVICE, domain]
            .map(|domain| vk::CalibratedTimestampInfoKHR::default().time_domain(domain));
        let (mut shown, mut deviation) = ([0_u64; 2], 0_u64);
        // SAFETY: the function is the live device's; the driver calibrates both domains; there is room for as many values as
        // there are infos.
        let code = unsafe {
            (self.call)(
                device.raw().handle(),
                infos.len() as u32,
                infos.as_ptr(),
                shown.as_mut_ptr(),
                &raw mut deviation,
            )
        };
        if code != vk::Result::SUCCESS {
            return Err(device.failed(&device.object, "vkGetCalibratedTimestampsKHR", code));
        }
        Ok(Sample {
            device: shown[0].cast_signed(),
            host: shown[1].cast_signed(),
            deviation,
        })
    }
}

impl Sampler for Calibrated {
    fn sample(&self) -> Result<Sample> {
        let device = self.device.get()?;
        device.sample(ASKED, self.host, || self.read(&device))
    }

    fn host_clock(&self) -> HostClock {
        self.host
    }

    fn resolution(&self) -> u64 {
        self.device.resolution()
    }

    fn gpu(&self) -> Option<Uuid> {
        self.device.gpu()
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
            let stamp = queue.submitter().stamp(queue.object(), Timing::Clock)?;
            let (written, before) = (stamp.clone(), host.now());
            let work = move |recorder: &mut crate::Recorder<'_>| {
                recorder.recorded.write_time(&written);
                Ok(())
            };
            queue.submit(&[], work, &[])?;
            queue.idle(PATIENCE).map_err(|error| self.silent(error))?;
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

/// What the host's clock is called that the driver reads together with the device's, the better one if there are two.
///
/// # Safety
/// `physical` belongs to `instance`, which is valid, and offers `extension`, one of the two of calibrated timestamps.
pub(crate) unsafe fn calibrated_with(
    entry: &ash::Entry,
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    extension: &CStr,
) -> Option<HostClock> {
    let is_khr = extension == khr::calibrated_timestamps::NAME;
    let call = if is_khr {
        c"vkGetPhysicalDeviceCalibrateableTimeDomainsKHR"
    } else {
        c"vkGetPhysicalDeviceCalibrateableTimeDomainsEXT"
    };
    // A loader or a layer that is older than the extension may not have it, and a call would end the process then.
    // SAFETY: a valid instance of this loader; the name ends in 0.
    unsafe { entry.get_instance_proc_addr(instance.handle(), call.as_ptr()) }?;
    // SAFETY: by this function's contract; the function is there.
    let domains = unsafe {
        if is_khr {
            khr::calibrated_timestamps::Instance::new(entry, instance)
                .get_physical_device_calibrateable_time_domains(physical)
        } else {
            ext::calibrated_timestamps::Instance::new(entry, instance)
                .get_physical_device_calibrateable_time_domains(physical)
        }
    };
    // A driver that does not tell can calibrate nothing.
    let domains = domains.unwrap_or_default();
    let host = if domains.contains(&vk::TimeDomainKHR::CLOCK_MONOTONIC) {
        HostClock::Monotonic
    } else if domains.contains(&vk::TimeDomainKHR::CLOCK_MONOTONIC_RAW) {
        HostClock::MonotonicRaw
    } else {
        return None;
    };
    domains.contains(&vk::TimeDomainKHR::DEVICE).then_some(host)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::time::Duration;

    use syncline_core::backend::{Device as _, Queue as _};
    use syncline_core::clock::Counter;

    use super::{Readings, lock};
    use crate::device::open::Device;
    use crate::driver::instance::Instance;
    use crate::probe::Probe;
    use crate::queue::submission::Queue;

    const SOON: Duration = Duration::from_secs(20);

    /// Every device here, as though one of its queue families wrote 36 bits alone: so that of the others the higher ones must not count.
    fn mixed(test: impl Fn(&Device, &Queue)) {
        let Ok(instance) = Instance::load() else {
            return;
        };
        for candidate in instance.devices().unwrap() {
            // SAFETY: the physical device is the instance's, which lives.
            let mut probe =
                unsafe { Probe::new(instance.entry(), instance.raw(), candidate.physical(), None) };
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
                *lock(&device.0.clocks.readings) = Some(readings);
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
