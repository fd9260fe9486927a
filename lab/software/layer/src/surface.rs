//! Errors of a window's surface that the environment asks for, as if the window had changed.
//!
//! Without the environment variable the layer passes these calls on.
#![allow(
    unsafe_code,
    reason = "is called by the application, and calls the driver"
)]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk;

use crate::device::Device;

/// The environment variable: `CALL:NUMBER:RESULT` for each failing call, separated by commas.
///
/// `acquire:3:out-of-date` fails the third `vkAcquireNextImageKHR` of the process, and
/// `present:3:surface-lost` the third `vkQueuePresentKHR`.
const VARIABLE: &str = "SYNCLINE_SOFTWARE_LAYER_SURFACE";

/// The calls so far of one function.
struct Calls {
    name: &'static str,
    made: AtomicU64,
}

static ACQUIRES: Calls = Calls::of("acquire");
static PRESENTS: Calls = Calls::of("present");

impl Calls {
    const fn of(name: &'static str) -> Self {
        let made = AtomicU64::new(0);
        Self { name, made }
    }

    /// Counts a call. Returns the result that the environment gives it, if any.
    fn next(&self) -> Option<vk::Result> {
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let mut planned = planned().ok()?.iter();
        let planned = planned.find(|planned| planned.call == self.name && planned.number == number);
        planned.map(|planned| planned.result)
    }
}

/// One failing call.
#[derive(Debug, PartialEq)]
pub(crate) struct Planned {
    call: &'static str,
    number: u64,
    result: vk::Result,
}

/// Returns the calls that the environment lets fail, or an error. Reads the variable once.
pub(crate) fn planned() -> Result<&'static [Planned], &'static str> {
    static PLANNED: LazyLock<Result<Vec<Planned>, String>> = LazyLock::new(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        parse(&text).ok_or_else(|| {
            format!(
                "{VARIABLE}={text}: not `acquire` or `present`, a number from 1, and `out-of-date` or \
                 `surface-lost`, such as acquire:3:out-of-date"
            )
        })
    });
    PLANNED.as_deref().map_err(String::as_str)
}

fn parse(text: &str) -> Option<Vec<Planned>> {
    let entries = text.split(',').map(str::trim);
    let entries = entries.filter(|entry| !entry.is_empty());
    let entry = |entry: &str| {
        let [call, number, result] = entry.split(':').collect::<Vec<_>>().try_into().ok()?;
        let mut calls = [&ACQUIRES, &PRESENTS].into_iter();
        Some(Planned {
            call: calls.find(|known| known.name == call)?.name,
            number: number.parse().ok().filter(|number| *number > 0)?,
            result: match result {
                "out-of-date" => vk::Result::ERROR_OUT_OF_DATE_KHR,
                "surface-lost" => vk::Result::ERROR_SURFACE_LOST_KHR,
                _ => return None,
            },
        })
    };
    entries.map(entry).collect()
}

/// `vkAcquireNextImageKHR`. A call that fails does not reach the driver.
pub(crate) unsafe extern "system" fn acquire_next_image(
    raw: vk::Device,
    swapchain: vk::SwapchainKHR,
    timeout: u64,
    semaphore: vk::Semaphore,
    fence: vk::Fence,
    image: *mut u32,
) -> vk::Result {
    if let Some(result) = ACQUIRES.next() {
        return result;
    }
    // SAFETY: valid usage.
    unsafe {
        let acquire = Device::of(raw).and_then(|device| device.driver.acquire_next_image);
        acquire.map_or(vk::Result::ERROR_DEVICE_LOST, |acquire| {
            acquire(raw, swapchain, timeout, semaphore, fence, image)
        })
    }
}

/// `vkQueuePresentKHR`. The driver makes the waits also of a call that fails, as the specification
/// says.
pub(crate) unsafe extern "system" fn queue_present(
    raw: vk::Queue,
    info: *const vk::PresentInfoKHR<'_>,
) -> vk::Result {
    // SAFETY: valid usage.
    let presented = unsafe {
        let present = Device::of(raw).and_then(|device| device.driver.queue_present);
        present.map_or(vk::Result::ERROR_DEVICE_LOST, |present| present(raw, info))
    };
    PRESENTS.next().unwrap_or(presented)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_calls_are_read() {
        assert_eq!(parse(""), Some(Vec::new()));
        let planned = parse("acquire:3:out-of-date, present:1:surface-lost");
        let of = |call, number, result| Planned {
            call,
            number,
            result,
        };
        let expected = [
            of("acquire", 3, vk::Result::ERROR_OUT_OF_DATE_KHR),
            of("present", 1, vk::Result::ERROR_SURFACE_LOST_KHR),
        ];
        assert_eq!(planned.as_deref(), Some(&expected[..]));
        for wrong in [
            "acquire",
            "submit:1:out-of-date",
            "present:0:surface-lost",
            "present:1:lost",
            "present:1:surface-lost:2",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
