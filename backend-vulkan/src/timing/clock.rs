//! The device's clock, read by the driver together with the host's clock.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ffi::CStr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ash::{ext, khr, vk};
use syncline_core::backend::kit::{Effort, TimestampCounter};
use syncline_core::clock::{HostClock, Sample};
use syncline_core::{Error, Result, info::Uuid};

use crate::device::clock_readings::ReadBy;
use crate::device::inner::Inner;
use crate::device::open::Device;
use crate::driver::error::unavailable;

/// The limits for calibrated readings. Each reading takes some microseconds.
///
/// The best of several readings counts, because any reading may be interrupted.
const CALIBRATION_EFFORT: Effort = Effort {
    limit: Duration::from_micros(500),
    samples: 8,
    enough: 0,
};

/// The time limit of a sample until the step of the counter is known.
const FIRST_TIME_LIMIT: Duration = Duration::from_millis(20);

impl Inner {
    /// The counter behind the timestamps.
    ///
    /// It has the fewest valid bits of all queue families. So its bits are valid in every
    /// timestamp.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if no queue family has valid timestamp bits.
    pub(crate) fn counter(&self) -> Result<TimestampCounter> {
        let can = &self.info().capabilities;
        TimestampCounter::new(can.timestamp_bits, can.timestamp_period_ns).ok_or_else(|| {
            let reason = "no queue family has valid timestamp bits";
            Error::unsupported(self.object(), "read its clock", reason)
        })
    }

    /// Returns the best of several samples that `read` takes.
    ///
    /// `read` returns the device's clock in ticks, read in the way `by`. The result has it in
    /// nanoseconds. The steps of both clocks are added to the deviation.
    pub(crate) fn sample(
        &self,
        effort: Effort,
        host: HostClock,
        by: ReadBy,
        mut read: impl FnMut() -> Result<Sample>,
    ) -> Result<Sample> {
        let counter = self.counter()?;
        let limit = if self.clock().is_step_known(by) {
            effort.limit
        } else {
            FIRST_TIME_LIMIT
        };
        let effort = Effort { limit, ..effort };
        let best = effort.best(|| {
            let sample = read()?;
            self.clock().add(counter, by, sample.device.cast_unsigned());
            Ok(sample)
        })?;
        Ok(self.clock().follow(counter, host, best))
    }

    /// Converts a timestamp that was written after `recorded_at` on the host's clock.
    ///
    /// Same as [`Device::time_of`] in all other respects. The timestamp was written less than nine
    /// tenths of a round of the counter after `recorded_at`. It may be read at any later time.
    ///
    /// If the two clocks may have drifted apart since `recorded_at`, the clock is sampled first.
    /// The result is correct unless they have drifted apart by a sixteenth of a round at the last
    /// sample.
    pub(crate) fn time_written(&self, timestamp: u64, recorded_at: i64) -> Result<i64> {
        let convert = |refuse_drift: bool| {
            self.clock().convert(|rounds| {
                if rounds.counter().bits() == 64 {
                    rounds.time_of(timestamp)
                } else if refuse_drift && rounds.may_have_parted(recorded_at) {
                    None
                } else {
                    rounds.time_after(timestamp, recorded_at)
                }
            })
        };
        if let Some(time) = convert(true) {
            return Ok(time);
        }
        self.clock().get().ok_or_else(no_device)?.sample()?;
        convert(false).ok_or_else(no_device)
    }
}

impl Device {
    /// The function `vkGetCalibratedTimestampsKHR` or `…EXT`, if the device was created with
    /// either.
    pub(crate) fn calibration(&self) -> Option<Calibration> {
        let (instance, device) = (self.instance(), self.raw());
        if !self.inner().enabled().calibrated_timestamps {
            return None;
        }
        // `Enabled` says that the device has one of the two extensions, but not which one.
        let has = |name: &CStr| {
            // SAFETY: a live device of this instance. The name ends with a zero byte.
            unsafe { instance.get_device_proc_addr(device.handle(), name.as_ptr()) }.is_some()
        };
        if has(c"vkGetCalibratedTimestampsKHR") {
            let functions = khr::calibrated_timestamps::Device::new(instance, device);
            Some(Calibration {
                name: "vkGetCalibratedTimestampsKHR",
                call: functions.fp().get_calibrated_timestamps_khr,
            })
        } else if has(c"vkGetCalibratedTimestampsEXT") {
            let functions = ext::calibrated_timestamps::Device::new(instance, device);
            Some(Calibration {
                name: "vkGetCalibratedTimestampsEXT",
                call: functions.fp().get_calibrated_timestamps_ext,
            })
        } else {
            None
        }
    }
}

/// The error for a sample after the device is gone.
///
/// It cannot occur in practice, because each handle of the clock keeps the device.
pub(crate) fn no_device() -> Error {
    unavailable("the device is gone")
}

/// The device of a clock. Weak, because the device keeps the clock. Handles of the clock keep the
/// device.
pub(crate) struct WeakDevice(Weak<Inner>);

impl WeakDevice {
    pub(crate) fn of(device: &Arc<Inner>) -> Self {
        Self(Arc::downgrade(device))
    }

    pub(crate) fn get(&self) -> Result<Arc<Inner>> {
        self.0.upgrade().ok_or_else(no_device)
    }

    pub(crate) fn resolution(&self) -> u64 {
        let device = self.0.upgrade();
        device.map_or(1, |device| device.clock().step_length())
    }

    pub(crate) fn gpu(&self) -> Option<Uuid> {
        self.0.upgrade()?.info().uuid
    }
}

/// `vkGetCalibratedTimestampsKHR` or `…EXT`.
#[derive(Clone, Copy)]
pub(crate) struct Calibration {
    name: &'static str,
    call: vk::PFN_vkGetCalibratedTimestampsKHR,
}

/// Reads both clocks with `vkGetCalibratedTimestamps`.
#[derive(Clone, Copy)]
pub(crate) struct CalibratedReader {
    host: HostClock,
    call: Calibration,
}

impl CalibratedReader {
    pub(crate) const fn new(host: HostClock, call: Calibration) -> Self {
        Self { host, call }
    }

    /// The clock of the host that the driver reads.
    pub(crate) const fn host(&self) -> HostClock {
        self.host
    }

    /// The best of several readings.
    pub(crate) fn sample(&self, device: &Inner) -> Result<Sample> {
        let read = || self.read(device);
        device.sample(CALIBRATION_EFFORT, self.host, ReadBy::Driver, read)
    }

    /// Reads the device's ticks, the host's clock, and the largest deviation between them.
    fn read(&self, device: &Inner) -> Result<Sample> {
        let domain = match self.host {
            HostClock::MonotonicRaw => vk::TimeDomainKHR::CLOCK_MONOTONIC_RAW,
            _ => vk::TimeDomainKHR::CLOCK_MONOTONIC,
        };
        let infos = [vk::TimeDomainKHR::DEVICE, domain]
            .map(|domain| vk::CalibratedTimestampInfoKHR::default().time_domain(domain));
        let (mut shown, mut deviation) = ([0_u64; 2], 0_u64);
        // SAFETY: the function is of this live device. The driver calibrates both domains. `shown`
        // has room for as many values as there are infos.
        let code = unsafe {
            (self.call.call)(
                device.raw().handle(),
                infos.len() as u32,
                infos.as_ptr(),
                shown.as_mut_ptr(),
                &raw mut deviation,
            )
        };
        if code != vk::Result::SUCCESS {
            return Err(device.failed(device.object(), self.call.name, code));
        }
        Ok(Sample {
            device: shown[0].cast_signed(),
            host: shown[1].cast_signed(),
            deviation,
        })
    }
}
