//! The validation layer and the messages that it reports.
#![allow(unsafe_code, reason = "the layer calls back through C")]

use std::borrow::Cow;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use ash::{ext, vk};
use syncline_core::Result;
use syncline_core::backend::Mutex;

use crate::driver::error::{name, unavailable};

/// The layer's name.
pub(crate) const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// Ids of messages that are known to be wrong, each with the reason.
const FALSE_POSITIVES: &[(&str, &str)] = &[
    (
        "VUID-VkSubmitInfo-pWaitSemaphores-03242",
        "the layer does not see what another API has signalled on an exported timeline",
    ),
    (
        "VUID-VkSubmitInfo-pSignalSemaphores-03244",
        "same cause: the layer takes an exported timeline's value for the last value that Vulkan signalled",
    ),
    (
        "VUID-VkSemaphoreSignalInfo-value-03259",
        "same cause: the layer takes signals of another API for pending signals of Vulkan",
    ),
    (
        "VUID-VkSemaphoreSignalInfo-value-03260",
        "same cause, for signals from the host",
    ),
    (
        "VUID-VkSubmitInfo-pSignalSemaphores-03242",
        "same cause, since 1.4 (KhronosGroup/Vulkan-ValidationLayers#10055)",
    ),
    (
        "VUID-VkImportSemaphoreFdInfoKHR-handleType-03264",
        "the layer identifies an exported descriptor by its number, even after the number was closed and reused",
    ),
    (
        "VUID-VkMemoryAllocateInfo-allocationSize-01742",
        "same cause, for memory",
    ),
    (
        "VUID-VkMemoryDedicatedAllocateInfo-buffer-01879",
        "same cause, for memory of one buffer",
    ),
    (
        "INTERNAL-ERROR-VkSemaphore-state-timeout",
        "the name of the next message since 1.4",
    ),
    (
        "UNASSIGNED-VkSemaphore-state-timeout",
        "the layer waits 10 s for its own bookkeeping if a thread sees a value that another thread is \
         signalling from the host; the message itself says that this is most likely a validation bug",
    ),
];

/// Collects the errors that the layer reports. Known false positives are separate.
#[derive(Default)]
pub(crate) struct Messages {
    errors: Mutex<Vec<String>>,
    false_positives: Mutex<Vec<String>>,
}

impl Messages {
    pub(crate) fn errors(&self) -> Vec<String> {
        self.errors.lock().clone()
    }

    pub(crate) fn false_positives(&self) -> Vec<String> {
        self.false_positives.lock().clone()
    }

    /// The parameters of a messenger that reports to `self`, which must outlive the messenger.
    pub(crate) fn create_info(self: &Arc<Self>) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
        vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR)
            // Without GENERAL, because drivers report there what an application may expect, such as
            // a refused import.
            .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION)
            .pfn_user_callback(Some(on_message))
            .user_data(Arc::as_ptr(self).cast_mut().cast())
    }
}

/// Stores a message of the validation layer. Returns false, so that the reported call continues.
///
/// # Safety
/// Called by the layer, with the user data that [`Messages::create_info`] has set.
unsafe extern "system" fn on_message(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    messages: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the caller guarantees it. The layer passes a valid structure, whose strings are valid
    // or null during the call.
    let (id, text) = unsafe {
        let data = &*data;
        (data.message_id_name_as_c_str(), data.message_as_c_str())
    };
    let words = |text: Option<&'_ CStr>| text.map_or(String::new(), |t| t.to_string_lossy().into());
    let (id, text) = (words(id), words(text));
    // SAFETY: `create_info` has set a `Messages`, which the instance keeps until the messenger and
    // the instance are destroyed. Threads share it, and all its fields are behind locks.
    let messages = unsafe { &*messages.cast::<Messages>() };
    let list = if FALSE_POSITIVES.iter().any(|(listed, _)| *listed == id) {
        &messages.false_positives
    } else {
        &messages.errors
    };
    list.lock().push(format!("{id}: {text}"));
    vk::FALSE
}

/// Checks that the layer is installed. Returns true if it offers synchronization validation.
///
/// # Errors
/// [`syncline_core::Error::Unavailable`] if it is not installed or cannot report.
pub(crate) fn find_layer(entry: &ash::Entry) -> Result<bool> {
    let missing = |what: &str| {
        unavailable(format!(
            "validation was asked for, but {what}; install the Vulkan validation layers \
             (Debian: vulkan-validationlayers) or ask for an instance without validation"
        ))
    };
    // SAFETY: these calls have no preconditions, and ash passes valid pointers.
    let layers = unsafe { entry.enumerate_instance_layer_properties() }
        .map_err(|code| missing(&format!("the layers cannot be listed ({})", name(code))))?;
    if !layers
        .iter()
        .any(|layer| layer.layer_name_as_c_str() == Ok(LAYER))
    {
        return Err(missing("VK_LAYER_KHRONOS_validation is not installed"));
    }
    // SAFETY: as above. The layer exists.
    let offered =
        unsafe { entry.enumerate_instance_extension_properties(Some(LAYER)) }.unwrap_or_default();
    // SAFETY: as above.
    let general =
        unsafe { entry.enumerate_instance_extension_properties(None) }.unwrap_or_default();
    let has = |list: &[vk::ExtensionProperties], name: &CStr| {
        list.iter().any(|e| e.extension_name_as_c_str() == Ok(name))
    };
    if !has(&offered, ext::debug_utils::NAME) && !has(&general, ext::debug_utils::NAME) {
        return Err(missing("it offers no VK_EXT_debug_utils to report through"));
    }
    Ok(has(&offered, ext::validation_features::NAME))
}

/// A string from the driver, with bytes that are not UTF-8 replaced.
pub(crate) fn driver_text(text: Result<&CStr, std::ffi::FromBytesUntilNulError>) -> Cow<'_, str> {
    text.map_or(Cow::Borrowed("(unnamed)"), CStr::to_string_lossy)
}
