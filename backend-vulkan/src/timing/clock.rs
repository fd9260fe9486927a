//! The device's clock, read through the driver together with the host's clock.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ffi::CStr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ash::{ext, khr, vk};
use syncline_core::clock::{Counter, Effort, HostClock, Sample, Sampler};
use syncline_core::{Error, Result, Uuid};

use crate::device::clock_readings::Readings;
use crate::device::open::{Device, Inner};
use crate::driver::error::{unavailable, unsupported};
use crate::driver::lock::lock;

/// How the driver is asked: some microseconds each time. The best of several, as each may be interrupted.
const ASKED: Effort = Effort {
    limit: Duration::from_micros(500),
    samples: 8,
    enough: 0,
};

/// So long is sampled at first, until it is known.
const FIRST: Duration = Duration::from_millis(20);

impl Inner {
    /// What its timestamps count. The fewest bits that a queue family's are valid with are right for all of them.
    pub(crate) fn counter(&self) -> Result<Counter> {
        let can = &self.info.capabilities;
        Counter::new(can.timestamp_bits, can.timestamp_period_ns).ok_or_else(|| {
            let reason = "no queue family has valid timestamp bits";
            unsupported(&self.object, "read its clock", reason)
        })
    }

    /// For so many nanoseconds its counter shows the same, as far as has been seen.
    fn resolution(&self) -> u64 {
        let readings = lock(&self.clock.readings);
        readings.as_ref().map_or(1, Readings::step_length)
    }

    /// The best of what `read` says, with the device's clock in ticks there and in nanoseconds here. What the counter and
    /// the host's clock leave unsaid between two steps of theirs is added to the deviation.
    pub(crate) fn sample(
        &self,
        effort: Effort,
        host: HostClock,
        mut read: impl FnMut() -> Result<Sample>,
    ) -> Result<Sample> {
        let counter = self.counter()?;
        let known = {
            let readings = lock(&self.clock.readings);
            readings.as_ref().is_some_and(Readings::is_step_known)
        };
        let effort = Effort {
            limit: if known { effort.limit } else { FIRST },
            ..effort
        };
        let best = effort.best(|| {
            let sample = read()?;
            let ticks = sample.device.cast_unsigned();
            let mut readings = lock(&self.clock.readings);
            let readings = readings.get_or_insert_with(|| Readings::new(counter, ticks));
            readings.add(ticks);
            Ok(sample)
        })?;
        let ticks = best.device.cast_unsigned();
        let mut readings = lock(&self.clock.readings);
        let readings = readings.get_or_insert_with(|| Readings::new(counter, ticks));
        let coarse = readings.step_length().saturating_add(host.resolution());
        Ok(Sample {
            device: readings.rounds.follow(ticks, best.host),
            host: best.host,
            deviation: best.deviation.saturating_add(coarse),
        })
    }

    /// As [`Device::time_of`], of a timestamp that was written after the host's clock showed `recorded`, by less than a round:
    /// when it is read does not matter, unless the two clocks have parted by a sixteenth of a round since or before.
    pub(crate) fn time_written(&self, timestamp: u64, recorded: i64) -> Result<i64> {
        let known = |surely: bool| {
            let readings = lock(&self.clock.readings);
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
        self.clock.clock.get().ok_or_else(no_device)?.sample()?;
        known(false).ok_or_else(no_device)
    }
}

impl Device {
    /// `vkGetCalibratedTimestampsKHR`, or the EXT's, if the device was made with it.
    pub(crate) fn calibration(&self) -> Option<vk::PFN_vkGetCalibratedTimestampsKHR> {
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
}

/// A sample of a clock whose device is gone; nobody can ask for one, as who has the clock keeps the device.
pub(crate) fn no_device() -> Error {
    unavailable("the device is gone")
}

/// Whose clock it is. The device keeps the clock; who has the clock keeps the device.
pub(crate) struct Owner(Weak<Inner>);

impl Owner {
    pub(crate) fn of(device: &Arc<Inner>) -> Self {
        Self(Arc::downgrade(device))
    }

    pub(crate) fn get(&self) -> Result<Arc<Inner>> {
        self.0.upgrade().ok_or_else(no_device)
    }

    pub(crate) fn resolution(&self) -> u64 {
        self.0.upgrade().map_or(1, |device| device.resolution())
    }

    pub(crate) fn gpu(&self) -> Option<Uuid> {
        self.0.upgrade()?.info.uuid
    }
}

/// Asks the driver, `vkGetCalibratedTimestamps`.
pub(crate) struct Calibrated {
    device: Owner,
    host: HostClock,
    call: vk::PFN_vkGetCalibratedTimestampsKHR,
}

impl Calibrated {
    pub(crate) const fn new(
        device: Owner,
        host: HostClock,
        call: vk::PFN_vkGetCalibratedTimestampsKHR,
    ) -> Self {
        Self { device, host, call }
    }

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
