//! The validation layer and the messages that it reports.
#![allow(unsafe_code, reason = "the layer calls back through C")]

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use ash::vk::Handle as _;
use ash::{ext, vk};
use syncline_core::Result;
use syncline_core::backend::kit::Mutex;

use crate::driver::error::{name, unavailable};

/// The layer's name.
pub(crate) const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// What makes a message false.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Falsity {
    /// It is about a timeline semaphore that was exported or imported. The layer does not see what
    /// another API or another `VkDevice` has signalled on it.
    Shared,
    /// It is always false.
    Always,
}

/// Ids of messages that are known to be wrong, each with what makes it so.
const FALSE_POSITIVES: &[(&str, Falsity)] = &[
    ("VUID-VkSubmitInfo-pWaitSemaphores-03242", Falsity::Shared),
    // The layer takes an exported timeline's value for the last value that Vulkan signalled.
    ("VUID-VkSubmitInfo-pSignalSemaphores-03244", Falsity::Shared),
    // The layer (1.3.239) takes a signal of a queue for pending after its value shows.
    ("VUID-VkSemaphoreSignalInfo-value-03259", Falsity::Always),
    // The same for signals from the host.
    ("VUID-VkSemaphoreSignalInfo-value-03260", Falsity::Shared),
    // Since 1.4 (KhronosGroup/Vulkan-ValidationLayers#10055).
    ("VUID-VkSubmitInfo-pSignalSemaphores-03242", Falsity::Shared),
    // The name of the next message since 1.4.
    ("INTERNAL-ERROR-VkSemaphore-state-timeout", Falsity::Always),
    // The layer waits 10 s for its own bookkeeping if a thread sees a value that another thread is
    // signalling from the host. The message itself says that this is most likely a validation bug.
    ("UNASSIGNED-VkSemaphore-state-timeout", Falsity::Always),
];

/// Collects the errors that the layer reports. Known false positives are separate.
#[derive(Default)]
pub(crate) struct Messages {
    errors: Mutex<Vec<String>>,
    false_positives: Mutex<Vec<String>>,
    /// The semaphores that were exported or imported.
    shared: Mutex<HashSet<vk::Semaphore>>,
}

impl Messages {
    pub(crate) fn errors(&self) -> Vec<String> {
        self.errors.lock().clone()
    }

    pub(crate) fn false_positives(&self) -> Vec<String> {
        self.false_positives.lock().clone()
    }

    /// Notes whether a timeline semaphore that was just created or imported is shared.
    pub(crate) fn note_semaphore(&self, semaphore: vk::Semaphore, is_shared: bool) {
        let mut shared = self.shared.lock();
        if is_shared {
            shared.insert(semaphore);
        } else {
            // A destroyed semaphore may have had the same handle.
            shared.remove(&semaphore);
        }
    }

    /// True if the message with this name, about these objects, is a known false positive.
    fn is_false(&self, id: &str, objects: &[vk::DebugUtilsObjectNameInfoEXT<'_>]) -> bool {
        let listed = FALSE_POSITIVES.iter().find(|(listed, _)| *listed == id);
        match listed {
            None => false,
            Some((_, Falsity::Always)) => true,
            Some((_, Falsity::Shared)) => {
                let semaphores = objects
                    .iter()
                    .filter(|object| object.object_type == vk::ObjectType::SEMAPHORE);
                let mut handles =
                    semaphores.map(|object| vk::Semaphore::from_raw(object.object_handle));
                let shared = self.shared.lock();
                handles.any(|semaphore| shared.contains(&semaphore))
            }
        }
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
    // SAFETY: the caller guarantees it. The layer passes a valid structure, whose strings and
    // objects are valid or null during the call.
    let (id, text, objects) = unsafe {
        let data = &*data;
        let objects = match data.object_count as usize {
            count if data.p_objects.is_null() || count == 0 => &[][..],
            count => std::slice::from_raw_parts(data.p_objects, count),
        };
        let id = data.message_id_name_as_c_str();
        (id, data.message_as_c_str(), objects)
    };
    let words = |text: Option<&'_ CStr>| text.map_or(String::new(), |t| t.to_string_lossy().into());
    let (id, text) = (words(id), words(text));
    // SAFETY: `create_info` has set a `Messages`, which the instance keeps until the messenger and
    // the instance are destroyed. Threads share it, and all its fields are behind locks.
    let messages = unsafe { &*messages.cast::<Messages>() };
    let list = if messages.is_false(&id, objects) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const BACKWARD: &str = "VUID-VkSubmitInfo-pSignalSemaphores-03242";

    fn about(semaphore: u64) -> [vk::DebugUtilsObjectNameInfoEXT<'static>; 2] {
        let object = |type_, handle| vk::DebugUtilsObjectNameInfoEXT {
            object_type: type_,
            object_handle: handle,
            ..Default::default()
        };
        [
            object(vk::ObjectType::QUEUE, 7),
            object(vk::ObjectType::SEMAPHORE, semaphore),
        ]
    }

    #[test]
    fn a_signal_that_does_not_grow_is_an_error_unless_the_semaphore_is_shared() {
        let messages = Messages::default();
        let shared = vk::Semaphore::from_raw(7);
        messages.note_semaphore(shared, true);
        messages.note_semaphore(vk::Semaphore::from_raw(8), false);
        assert!(messages.is_false(BACKWARD, &about(7)));
        assert!(!messages.is_false(BACKWARD, &about(8)));
        assert!(!messages.is_false(BACKWARD, &about(8)[..1]), "of a queue");
        assert!(!messages.is_false("VUID-VkBufferCreateInfo-size-00912", &about(7)));
        assert!(messages.is_false("UNASSIGNED-VkSemaphore-state-timeout", &[]));
        // Another semaphore with the same handle.
        messages.note_semaphore(shared, false);
        assert!(!messages.is_false(BACKWARD, &about(7)));
    }
}
