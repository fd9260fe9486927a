//! Results of driver calls as typed errors.

use ash::vk;
use syncline_core::{Error, error::Object, info::BackendKind};

/// Why `vkCreateSemaphore` returns a code that the specification does not list for it.
///
/// Seen with NVIDIA's driver (580.159): a semaphore for export could not be made or exported for
/// want of a descriptor, or a foreign file was imported. After that the driver makes no semaphore
/// for export. Opening another `VkDevice` of the GPU ends this state for all devices.
const REFUSES_EXPORTS: &str = ", open another device of this GPU to end it (FAQ)";

/// The error for the result of `call` on `object`.
pub(crate) fn native(object: &Object, call: &'static str, result: vk::Result) -> Error {
    let code = i64::from(result.as_raw());
    let mut name = name(result);
    if call == "vkCreateSemaphore" && result == vk::Result::ERROR_INITIALIZATION_FAILED {
        name.push_str(REFUSES_EXPORTS);
    }
    if result == vk::Result::ERROR_DEVICE_LOST {
        Error::device_lost(object, call, code, name)
    } else {
        Error::native(object, call, code, name)
    }
}

/// The name of a result code, spelled as in the specification.
pub(crate) fn name(result: vk::Result) -> String {
    let name = format!("{result:?}");
    // An unknown code is written as the number, which every text has beside the name.
    match name.parse::<i32>() {
        Ok(_) => "a code without a name".to_owned(),
        Err(_) => format!("VK_{name}"),
    }
}

/// The result of a call, as text of an error without an object.
pub(crate) fn call_failed(call: &str, result: vk::Result) -> String {
    format!("{call} returned {} ({})", name(result), result.as_raw())
}

pub(crate) fn unavailable(reason: impl Into<String>) -> Error {
    Error::unavailable(BackendKind::Vulkan, reason)
}
