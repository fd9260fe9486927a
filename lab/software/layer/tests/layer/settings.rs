//! The properties of a device with the layer, and the layer below the validation layer.
#![allow(unsafe_code, reason = "calls Vulkan")]

use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ash::{ext, khr, vk};
use syncline_software_layer::LAYER_NAME;
use syncline_software_payload::Twin;

use crate::Case;
use crate::gpu::{Driver, Gpu, Instance};
use crate::image;

pub(crate) const CASES: &[(&str, Case)] = &[
    ("the_uuid_is_the_twin's", uuid),
    ("handle_types_and_extension", handle_types),
    ("without_the_extension", without_extension),
    ("an_application_of_vulkan_1_0", old),
    ("below_validation", below_validation),
    ("above_validation", above_validation),
];

fn uuid(driver: &Driver) {
    let expected = match driver.id {
        vk::DriverId::MESA_LLVMPIPE => Twin::Lavapipe.uuid(),
        vk::DriverId::GOOGLE_SWIFTSHADER => Twin::SwiftShader.uuid(),
        _ => return println!("skipped: {} has no twin", driver.name),
    };
    let (instance, physical) = driver.instance();
    let mut id = vk::PhysicalDeviceIDProperties::default();
    let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
    // SAFETY: a live physical device of Vulkan 1.2, and valid structures; so below.
    unsafe {
        instance
            .raw
            .get_physical_device_properties2(physical, &mut all)
    };
    assert_eq!(Some(id.device_uuid), expected);
    let mut first = vk::PhysicalDeviceVulkan11Properties::default();
    let mut second = vk::PhysicalDeviceVulkan12Properties::default();
    let mut all = vk::PhysicalDeviceProperties2::default()
        .push_next(&mut first)
        .push_next(&mut second);
    // SAFETY: as above.
    unsafe {
        instance
            .raw
            .get_physical_device_properties2(physical, &mut all)
    };
    assert_eq!(Some(first.device_uuid), expected);
    assert_eq!(second.driver_id, driver.id);
}

fn handle_types(driver: &Driver) {
    let (instance, physical) = driver.instance();
    let ask = |kind, handle| {
        let mut which = vk::SemaphoreTypeCreateInfo::default().semaphore_type(kind);
        let info = vk::PhysicalDeviceExternalSemaphoreInfo::default()
            .handle_type(handle)
            .push_next(&mut which);
        let mut told = vk::ExternalSemaphoreProperties::default();
        // SAFETY: a live physical device, and valid structures.
        unsafe {
            instance
                .raw
                .get_physical_device_external_semaphore_properties(physical, &info, &mut told);
        }
        told.external_semaphore_features
    };
    let both = vk::ExternalSemaphoreFeatureFlags::EXPORTABLE
        | vk::ExternalSemaphoreFeatureFlags::IMPORTABLE;
    let opaque = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
    assert_eq!(ask(vk::SemaphoreType::TIMELINE, opaque), both);
    assert_eq!(ask(vk::SemaphoreType::BINARY, opaque), both);
    // SAFETY: a live physical device.
    let offered = unsafe {
        instance
            .raw
            .enumerate_device_extension_properties(physical)
            .unwrap()
    };
    let has = |one: &&vk::ExtensionProperties| {
        one.extension_name_as_c_str() == Ok(khr::external_semaphore_fd::NAME)
    };
    assert_eq!(offered.iter().filter(has).count(), 1);
}

/// A device without the extension has none of its functions.
fn without_extension(driver: &Driver) {
    let (instance, physical) = driver.instance();
    let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
    // SAFETY: valid structures; the device is destroyed before its instance.
    unsafe {
        let device = instance.raw.create_device(physical, &info, None).unwrap();
        let get = instance.raw.fp_v1_0().get_device_proc_addr;
        for name in [c"vkGetSemaphoreFdKHR", c"vkImportSemaphoreFdKHR"] {
            assert!(get(device.handle(), name.as_ptr()).is_none(), "{name:?}");
        }
        assert!(get(device.handle(), c"vkQueueSubmit".as_ptr()).is_some());
        assert!(get(device.handle(), c"vkNoSuchFunction".as_ptr()).is_none());
        device.destroy_device(None);
    }
}

/// An instance of Vulkan 1.0 cannot have timelines, but it exports binary semaphores.
fn old(driver: &Driver) {
    let extensions = [
        khr::external_semaphore_capabilities::NAME,
        khr::external_memory_capabilities::NAME,
        khr::get_physical_device_properties2::NAME,
    ];
    let instance = Instance::new(&[LAYER_NAME], &extensions, vk::API_VERSION_1_0);
    let instance = Arc::new(instance);
    for physical in instance.software() {
        let mut id = vk::PhysicalDeviceDriverProperties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
        // SAFETY: the extension is enabled; valid structures.
        unsafe {
            khr::get_physical_device_properties2::Instance::new(instance.entry(), &instance.raw)
                .get_physical_device_properties2(physical, &mut all);
        }
        if id.driver_id != driver.id {
            continue;
        }
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let names = [
            khr::external_semaphore::NAME.as_ptr(),
            khr::external_semaphore_fd::NAME.as_ptr(),
        ];
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names);
        // SAFETY: valid structures; the objects are destroyed before the device.
        unsafe {
            let device = instance.raw.create_device(physical, &info, None).unwrap();
            let mut export = vk::ExportSemaphoreCreateInfo::default()
                .handle_types(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
            let info = vk::SemaphoreCreateInfo::default().push_next(&mut export);
            let semaphores = [device.create_semaphore(&info, None).unwrap()];
            let queue = device.get_device_queue(0, 0);
            let stages = [vk::PipelineStageFlags::ALL_COMMANDS];
            let batches = [
                vk::SubmitInfo::default().signal_semaphores(&semaphores),
                vk::SubmitInfo::default()
                    .wait_semaphores(&semaphores)
                    .wait_dst_stage_mask(&stages),
            ];
            device
                .queue_submit(queue, &batches, vk::Fence::null())
                .unwrap();
            device.queue_wait_idle(queue).unwrap();
            device.destroy_semaphore(semaphores[0], None);
            device.destroy_device(None);
        }
    }
}

const VALIDATION: &CStr = c"VK_LAYER_KHRONOS_validation";

fn below_validation(driver: &Driver) {
    validated(driver, &[VALIDATION, LAYER_NAME]);
}

fn above_validation(driver: &Driver) {
    validated(driver, &[LAYER_NAME, VALIDATION]);
}

/// Both kinds of semaphores between two devices, and an image, without a complaint.
fn validated(driver: &Driver, layers: &[&CStr]) {
    // SAFETY: no preconditions.
    let installed = unsafe {
        let entry = ash::Entry::load().unwrap();
        entry.enumerate_instance_layer_properties().unwrap()
    };
    if !installed
        .iter()
        .any(|layer| layer.layer_name_as_c_str() == Ok(VALIDATION))
    {
        println!("skipped: the validation layer is not installed");
        return;
    }
    let instance = Instance::new(layers, &[ext::debug_utils::NAME], vk::API_VERSION_1_3);
    let complaints = AtomicUsize::new(0);
    let functions = ext::debug_utils::Instance::new(instance.entry(), &instance.raw);
    let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR)
        .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION)
        .pfn_user_callback(Some(complain))
        .user_data((&raw const complaints).cast_mut().cast());
    // SAFETY: the extension is enabled. The counter outlives the messenger.
    let messenger = unsafe { functions.create_debug_utils_messenger(&info, None) }.unwrap();
    let instance = Arc::new(instance);
    let mut all = instance.software().into_iter();
    let physical = all
        .find(|&one| instance.driver_id(one) == driver.id)
        .unwrap();
    {
        let one = Gpu::open(instance.clone(), physical);
        let other = Gpu::open(instance.clone(), physical);
        let frames = one.shared_timeline(0);
        let seen = other.imported_timeline(one.export(frames));
        let drawn = one.shared_binary();
        let shown = other.imported_binary(one.export(drawn));
        for round in 0..10 {
            let value = round * 2;
            one.submit(&[], &[], &[(frames, value + 1), (drawn, 0)]);
            other.submit(&[(seen, value + 1), (shown, 0)], &[], &[(seen, value + 2)]);
            other.wait(seen, value + 2);
            one.wait(frames, value + 2);
        }
        image::one(&one);
    }
    // SAFETY: live, and used no more.
    unsafe { functions.destroy_debug_utils_messenger(messenger, None) };
    assert_eq!(complaints.load(Ordering::Relaxed), 0);
}

unsafe extern "system" fn complain(
    _: vk::DebugUtilsMessageSeverityFlagsEXT,
    _: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    complaints: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the data is valid during the call, and the pointer is the counter's of `validated`.
    unsafe {
        if let Some(message) = (*data).message_as_c_str() {
            println!("{}", message.to_string_lossy());
        }
        (*complaints.cast::<AtomicUsize>()).fetch_add(1, Ordering::Relaxed);
    }
    vk::FALSE
}
