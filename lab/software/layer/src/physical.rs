//! The properties of a software device that the layer changes: UUID, extensions, handle types.
#![allow(unsafe_code, reason = "is called by the loader, and calls the driver")]

use std::ffi::{CStr, c_char};

use ash::{khr, vk};

use crate::instance::{INSTANCES, Instance};
use crate::{LAYER_NAME, bug, chain, hidden};

/// `vkEnumerateDeviceExtensionProperties`: those of the driver and of this layer.
pub(crate) unsafe extern "system" fn enumerate_device_extension_properties(
    physical: vk::PhysicalDevice,
    layer: *const c_char,
    count: *mut u32,
    properties: *mut vk::ExtensionProperties,
) -> vk::Result {
    // SAFETY: valid usage: null or a text that ends with a zero, and a live physical device.
    let (asked, instance) = unsafe {
        let asked = (!layer.is_null()).then(|| CStr::from_ptr(layer));
        (asked, INSTANCES.get(physical))
    };
    if asked == Some(LAYER_NAME) {
        // SAFETY: valid usage: room for as many as the count says.
        return unsafe { tell(&[own_extension()], count, properties) };
    }
    let Some(instance) = instance else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // SAFETY: valid usage.
    unsafe {
        if asked.is_some() || instance.twin(physical).is_none() {
            let next = instance.enumerate_device_extension_properties;
            return next(physical, layer, count, properties);
        }
        let mut all = match driver_extensions(&instance, physical) {
            Ok(all) => all,
            Err(code) => return code,
        };
        let has = |extension: &vk::ExtensionProperties| {
            extension.extension_name_as_c_str() == Ok(khr::external_semaphore_fd::NAME)
        };
        if !all.iter().any(has) {
            all.push(own_extension());
        }
        all.retain(|extension| {
            let name = extension.extension_name_as_c_str().unwrap_or_default();
            !hidden::is_hidden(&name.to_string_lossy())
        });
        tell(&all, count, properties)
    }
}

/// `VK_KHR_external_semaphore_fd`.
fn own_extension() -> vk::ExtensionProperties {
    let mut own = vk::ExtensionProperties {
        spec_version: khr::external_semaphore_fd::SPEC_VERSION,
        ..Default::default()
    };
    let name = khr::external_semaphore_fd::NAME.to_bytes();
    for (to, from) in own.extension_name.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    own
}

/// # Safety
/// A live physical device of this instance.
pub(crate) unsafe fn driver_extensions(
    instance: &Instance,
    physical: vk::PhysicalDevice,
) -> Result<Vec<vk::ExtensionProperties>, vk::Result> {
    let next = instance.enumerate_device_extension_properties;
    loop {
        let mut count = 0;
        // SAFETY: by this function's contract; this asks for the count.
        let asked = unsafe {
            next(
                physical,
                std::ptr::null(),
                &raw mut count,
                std::ptr::null_mut(),
            )
        };
        if asked != vk::Result::SUCCESS {
            return Err(asked);
        }
        let mut all = vec![vk::ExtensionProperties::default(); count as usize];
        // SAFETY: by this function's contract; there is room for as many as the count says.
        match unsafe { next(physical, std::ptr::null(), &raw mut count, all.as_mut_ptr()) } {
            vk::Result::SUCCESS => {
                all.truncate(count as usize);
                return Ok(all);
            }
            vk::Result::INCOMPLETE => {}
            code => return Err(code),
        }
    }
}

/// Returns an enumeration as Vulkan does: only the count, or as many entries as fit.
///
/// # Safety
/// `count` is valid, and `properties` is null or has room for `count`.
unsafe fn tell(
    all: &[vk::ExtensionProperties],
    count: *mut u32,
    properties: *mut vk::ExtensionProperties,
) -> vk::Result {
    let there = u32::try_from(all.len()).unwrap_or(u32::MAX);
    // SAFETY: by this function's contract.
    unsafe {
        if properties.is_null() {
            *count = there;
            return vk::Result::SUCCESS;
        }
        let told = there.min(*count);
        std::ptr::copy_nonoverlapping(all.as_ptr(), properties, told as usize);
        *count = told;
        if told < there {
            vk::Result::INCOMPLETE
        } else {
            vk::Result::SUCCESS
        }
    }
}

/// `vkGetPhysicalDeviceProperties2`, with the UUID that the software CUDA driver also has.
pub(crate) unsafe extern "system" fn get_physical_device_properties2(
    physical: vk::PhysicalDevice,
    properties: *mut vk::PhysicalDeviceProperties2<'_>,
) {
    // SAFETY: valid usage: a live physical device and a valid chain. Each structure is of the type
    // that its tag tells.
    unsafe {
        let Some(instance) = INSTANCES.get(physical) else {
            return;
        };
        (instance.get_physical_device_properties2)(physical, properties);
        let Some(twin) = instance.twin(physical) else {
            return;
        };
        mark(&mut (*properties).properties);
        let Some(uuid) = twin.uuid() else { return };
        chain::for_each((*properties).p_next, |s_type, at| match s_type {
            vk::StructureType::PHYSICAL_DEVICE_ID_PROPERTIES => {
                (*at.cast::<vk::PhysicalDeviceIDProperties<'_>>()).device_uuid = uuid;
            }
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES => {
                (*at.cast::<vk::PhysicalDeviceVulkan11Properties<'_>>()).device_uuid = uuid;
            }
            _ => {}
        });
    }
}

/// `vkGetPhysicalDeviceProperties`: the driver's.
pub(crate) unsafe extern "system" fn get_physical_device_properties(
    physical: vk::PhysicalDevice,
    properties: *mut vk::PhysicalDeviceProperties,
) {
    // SAFETY: valid usage: a live physical device and a valid structure.
    unsafe {
        let Some(instance) = INSTANCES.get(physical) else {
            return;
        };
        (instance.get_physical_device_properties)(physical, properties);
        if instance.twin(physical).is_some() {
            mark(&mut *properties);
        }
    }
}

/// `vkGetPhysicalDeviceFeatures2`: the driver's, without timelines if the environment hides them.
pub(crate) unsafe extern "system" fn get_physical_device_features2(
    physical: vk::PhysicalDevice,
    features: *mut vk::PhysicalDeviceFeatures2<'_>,
) {
    // SAFETY: valid usage: a live physical device and a valid chain. Each structure is of the type
    // that its tag tells.
    unsafe {
        let Some(instance) = INSTANCES.get(physical) else {
            return;
        };
        (instance.get_physical_device_features2)(physical, features);
        if !hidden::is_hidden(hidden::TIMELINES) || instance.twin(physical).is_none() {
            return;
        }
        chain::for_each((*features).p_next, |s_type, at| match s_type {
            vk::StructureType::PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES => {
                let features = at.cast::<vk::PhysicalDeviceTimelineSemaphoreFeatures<'_>>();
                (*features).timeline_semaphore = vk::FALSE;
            }
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_2_FEATURES => {
                let features = at.cast::<vk::PhysicalDeviceVulkan12Features<'_>>();
                (*features).timeline_semaphore = vk::FALSE;
            }
            _ => {}
        });
    }
}

/// Adds a planted bug to the name of a software device, so that every report shows it.
fn mark(properties: &mut vk::PhysicalDeviceProperties) {
    let Ok(Some(bug)) = bug::planted() else {
        return;
    };
    let name = properties.device_name_as_c_str().unwrap_or_default();
    let marked = format!("planted bug {}: {}\0", bug.name(), name.to_string_lossy());
    // The last byte stays the end of the string.
    let room = properties.device_name.len() - 1;
    for (to, from) in properties.device_name[..room]
        .iter_mut()
        .zip(marked.bytes())
    {
        *to = from.cast_signed();
    }
    properties.device_name[room] = 0;
}

/// `vkGetPhysicalDeviceExternalSemaphoreProperties`.
///
/// The layer answers for opaque descriptors of timeline and binary semaphores, and the driver for
/// other handle types.
pub(crate) unsafe extern "system" fn get_physical_device_external_semaphore_properties(
    physical: vk::PhysicalDevice,
    info: *const vk::PhysicalDeviceExternalSemaphoreInfo<'_>,
    properties: *mut vk::ExternalSemaphoreProperties<'_>,
) {
    use vk::ExternalSemaphoreFeatureFlags as Features;
    const OPAQUE: vk::ExternalSemaphoreHandleTypeFlags =
        vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
    // SAFETY: valid usage: a live physical device and valid structures.
    unsafe {
        let Some(instance) = INSTANCES.get(physical) else {
            return;
        };
        if (*info).handle_type != OPAQUE || instance.twin(physical).is_none() {
            let next = instance.get_physical_device_external_semaphore_properties;
            return next(physical, info, properties);
        }
        (*properties).export_from_imported_handle_types = OPAQUE;
        (*properties).compatible_handle_types = OPAQUE;
        (*properties).external_semaphore_features = Features::EXPORTABLE | Features::IMPORTABLE;
    }
}

/// True if the driver itself has sync files, for which it needs the extension.
///
/// # Safety
/// A live physical device of this instance.
pub(crate) unsafe fn has_sync_files(instance: &Instance, physical: vk::PhysicalDevice) -> bool {
    let info = vk::PhysicalDeviceExternalSemaphoreInfo::default()
        .handle_type(vk::ExternalSemaphoreHandleTypeFlags::SYNC_FD);
    let mut answer = vk::ExternalSemaphoreProperties::default();
    let next = instance.get_physical_device_external_semaphore_properties;
    // SAFETY: by this function's contract; valid structures.
    unsafe { next(physical, &raw const info, &raw mut answer) };
    !answer.external_semaphore_features.is_empty()
}
