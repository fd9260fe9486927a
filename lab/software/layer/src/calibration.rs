//! Calibrated timestamps that are off, as if the driver read another counter than its queues write.
//!
//! Without the environment variable, and without a planted bug, the layer passes the calls on.
#![allow(
    unsafe_code,
    reason = "is called by the application, and calls the driver"
)]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk;

use crate::bug::Bug;
use crate::chain;
use crate::device::Device;

/// The environment variable: `TICKS` or `TICKS:NUMBER`.
///
/// The ticks, which may be negative, are added to each calibrated value of the device's clock. With
/// a number, only from that call of the process on.
const VARIABLE: &str = "SYNCLINE_SOFTWARE_LAYER_CALIBRATION";

/// The ticks that [`Bug::CalibratesAnotherClock`] adds: 5 ms on lavapipe.
const OFF: i64 = 5_000_000;

/// What is added to calibrated values of the device's clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Offset {
    ticks: i64,
    /// The number of the first call that is off, from 1.
    first: u64,
}

/// Returns the offset that the environment asks for, or an error. Reads the variable once.
pub(crate) fn offset() -> Result<Option<Offset>, &'static str> {
    static OFFSET: LazyLock<Result<Option<Offset>, String>> = LazyLock::new(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        parse(&text).ok_or_else(|| {
            format!(
                "{VARIABLE}={text}: not a number of ticks, or one with the number of the first call \
                 from 1, such as -5000000 or 5000000:100"
            )
        })
    });
    OFFSET
        .as_ref()
        .map(|offset| *offset)
        .map_err(String::as_str)
}

/// `None` if the text is invalid, `Some(None)` if it is empty.
fn parse(text: &str) -> Option<Option<Offset>> {
    if text.is_empty() {
        return Some(None);
    }
    let (ticks, first) = text.split_once(':').unwrap_or((text, "1"));
    let first = first.parse().ok().filter(|first| *first > 0)?;
    let ticks = ticks.parse().ok()?;
    Some(Some(Offset { ticks, first }))
}

/// The ticks that are added by the present call.
fn added() -> i64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let number = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    let asked = offset().ok().flatten();
    let asked = asked.filter(|asked| asked.first <= number);
    let planted = if Bug::CalibratesAnotherClock.is_planted() {
        OFF
    } else {
        0
    };
    asked.map_or(0, |asked| asked.ticks).wrapping_add(planted)
}

/// `vkGetCalibratedTimestampsKHR` and `…EXT`.
pub(crate) unsafe extern "system" fn get_calibrated_timestamps(
    raw: vk::Device,
    count: u32,
    infos: *const vk::CalibratedTimestampInfoKHR<'_>,
    timestamps: *mut u64,
    deviation: *mut u64,
) -> vk::Result {
    // SAFETY: valid usage: as many infos as the count says, and room for as many timestamps.
    unsafe {
        let read = Device::of(raw).and_then(|device| device.driver.get_calibrated_timestamps);
        let result = read.map_or(vk::Result::ERROR_DEVICE_LOST, |read| {
            read(raw, count, infos, timestamps, deviation)
        });
        if result == vk::Result::SUCCESS {
            let added = added().cast_unsigned();
            for (nth, info) in chain::slice(infos, count).iter().enumerate() {
                if info.time_domain == vk::TimeDomainKHR::DEVICE {
                    let shown = timestamps.add(nth);
                    *shown = (*shown).wrapping_add(added);
                }
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read() {
        let of = |ticks, first| Some(Some(Offset { ticks, first }));
        assert_eq!(parse(""), Some(None));
        assert_eq!(parse("-5000000"), of(-5_000_000, 1));
        assert_eq!(parse("11850000000:100"), of(11_850_000_000, 100));
        for wrong in ["5 ms", "1:0", "1:-1", ":1", "1:2:3"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
