//! The interface of the Vulkan loader and a layer: structures of `vk_layer.h`, and entry points.
#![allow(unsafe_code, reason = "is called by the loader")]

use std::ffi::{CStr, c_char, c_void};

use ash::vk;

use crate::device::Registered;
use crate::instance::Instance;
use crate::{
    calibration, chain, commands, completion, device, gated, host, image, instance, memory,
    passed_on, physical, semaphore, submit, surface,
};

/// `VkLayerFunction`: the create info holds the functions of the next layer.
const LAYER_LINK_INFO: i32 = 0;
/// `VkNegotiateLayerStructType`.
const NEGOTIATE_INTERFACE: i32 = 1;
/// The version of the interface that this layer uses.
const INTERFACE_VERSION: u32 = 2;

/// `VkNegotiateLayerInterface`.
#[derive(Debug)]
#[repr(C)]
pub struct NegotiateLayerInterface {
    s_type: i32,
    p_next: *mut c_void,
    loader_layer_interface_version: u32,
    get_instance_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
    get_device_proc_addr: Option<vk::PFN_vkGetDeviceProcAddr>,
    get_physical_device_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
}

/// `VkLayerInstanceLink` and `VkLayerDeviceLink`: the next layer's functions.
#[repr(C)]
pub(crate) struct Link<F> {
    next: *mut Self,
    pub(crate) get_instance_proc_addr: vk::PFN_vkGetInstanceProcAddr,
    /// `vkGetDeviceProcAddr`, for a device.
    pub(crate) other: F,
}

impl<F> Link<F> {
    /// The link of the lowest layer. Its functions are those of the loader and the driver.
    pub(crate) fn lowest(&self) -> &Self {
        let mut link = self;
        // SAFETY: the list of the loader, which ends with null and lives as long as this link.
        while let Some(next) = unsafe { link.next.as_ref() } {
            link = next;
        }
        link
    }
}

/// `VkLayerInstanceCreateInfo` and `VkLayerDeviceCreateInfo`.
#[repr(C)]
struct LayerCreateInfo<F> {
    s_type: vk::StructureType,
    p_next: *const c_void,
    function: i32,
    /// A union in C. This is its member for `LAYER_LINK_INFO`.
    link: *mut Link<F>,
}

/// Takes this layer's link from the create info, so that the next layer finds its own.
///
/// The create info is of an instance or a device. Returns `None` if the loader has given no link.
///
/// # Safety
/// `chain` is the `pNext` chain that the loader passes to `vkCreateInstance` or `vkCreateDevice`,
/// the type is the loader's for it, and `F` is its second function.
pub(crate) unsafe fn take_link<'c, F>(
    chain: *const c_void,
    s_type: vk::StructureType,
) -> Option<&'c Link<F>> {
    let mut found = None;
    let take = |found_type, at: *mut c_void| {
        let info = at.cast::<LayerCreateInfo<F>>();
        if found.is_some() || found_type != s_type {
            return;
        }
        // SAFETY: a structure of this type by its tag. The loader expects each layer to advance it.
        unsafe {
            if (*info).function == LAYER_LINK_INFO
                && let Some(link) = (*info).link.as_ref()
            {
                (*info).link = link.next;
                found = Some(link);
            }
        }
    };
    // SAFETY: by this function's contract.
    unsafe { chain::for_each(chain.cast_mut(), take) };
    found
}

/// The loader's first call. Returns the version of the interface and the two entry points.
///
/// # Safety
/// `interface` is null or points to a valid `VkNegotiateLayerInterface`.
// Unit tests are built without what only the loader calls.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "the loader looks for this name")]
pub unsafe extern "system" fn vkNegotiateLoaderLayerInterfaceVersion(
    interface: *mut NegotiateLayerInterface,
) -> vk::Result {
    // SAFETY: by this function's contract.
    let Some(interface) = (unsafe { interface.as_mut() }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    if interface.s_type != NEGOTIATE_INTERFACE
        || interface.loader_layer_interface_version < INTERFACE_VERSION
    {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    }
    interface.loader_layer_interface_version = INTERFACE_VERSION;
    interface.get_instance_proc_addr = Some(get_instance_proc_addr);
    interface.get_device_proc_addr = Some(get_device_proc_addr);
    interface.get_physical_device_proc_addr = None;
    vk::Result::SUCCESS
}

/// Returns a function as `vkGet*ProcAddr` do. Its type is checked.
macro_rules! entry {
    ($type:ident, $function:path) => {{
        let function: vk::$type = $function;
        // SAFETY: function pointers are of one size. The caller casts it back to its type.
        Some(unsafe { std::mem::transmute::<vk::$type, unsafe extern "system" fn()>(function) })
    }};
}

unsafe extern "system" fn get_instance_proc_addr(
    raw: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    if name.is_null() {
        return None;
    }
    // SAFETY: valid usage: a text that ends with a zero.
    let text = unsafe { CStr::from_ptr(name) };
    if raw != vk::Instance::null() && gated::is_on() {
        let gated = gated::function(text.to_bytes());
        // SAFETY: valid usage: a live instance.
        if gated.is_some() && unsafe { exists(raw, text) } {
            return gated;
        }
    }
    // SAFETY: valid usage: null, or a live instance.
    let instance = (raw != vk::Instance::null()).then(|| unsafe { instance::INSTANCES.get(raw) });
    // SAFETY: as above. The name is valid.
    unsafe { ungated_instance_function(instance.flatten().as_deref(), text) }
}

/// True if the layer or the driver has the function of an instance.
///
/// # Safety
/// A live instance.
unsafe fn exists(raw: vk::Instance, name: &CStr) -> bool {
    // SAFETY: by this function's contract.
    unsafe {
        let instance = instance::INSTANCES.get(raw);
        ungated_instance_function(instance.as_deref(), name).is_some()
    }
}

/// The function of the layer, or of the driver below `instance`.
///
/// # Safety
/// A live instance, or none.
pub(crate) unsafe fn ungated_instance_function(
    instance: Option<&Instance>,
    text: &CStr,
) -> vk::PFN_vkVoidFunction {
    let own = match text.to_bytes() {
        b"vkGetInstanceProcAddr" => entry!(PFN_vkGetInstanceProcAddr, get_instance_proc_addr),
        b"vkCreateInstance" => entry!(PFN_vkCreateInstance, gated::create_instance),
        b"vkDestroyInstance" => entry!(PFN_vkDestroyInstance, instance::destroy_instance),
        b"vkCreateDevice" => entry!(PFN_vkCreateDevice, device::create_device),
        b"vkGetDeviceProcAddr" => entry!(PFN_vkGetDeviceProcAddr, get_device_proc_addr),
        b"vkEnumerateDeviceExtensionProperties" => entry!(
            PFN_vkEnumerateDeviceExtensionProperties,
            physical::enumerate_device_extension_properties
        ),
        b"vkGetPhysicalDeviceProperties" => entry!(
            PFN_vkGetPhysicalDeviceProperties,
            physical::get_physical_device_properties
        ),
        b"vkGetPhysicalDeviceProperties2" | b"vkGetPhysicalDeviceProperties2KHR" => entry!(
            PFN_vkGetPhysicalDeviceProperties2,
            physical::get_physical_device_properties2
        ),
        b"vkGetPhysicalDeviceFeatures2" | b"vkGetPhysicalDeviceFeatures2KHR" => entry!(
            PFN_vkGetPhysicalDeviceFeatures2,
            physical::get_physical_device_features2
        ),
        b"vkGetPhysicalDeviceExternalSemaphoreProperties"
        | b"vkGetPhysicalDeviceExternalSemaphorePropertiesKHR" => entry!(
            PFN_vkGetPhysicalDeviceExternalSemaphoreProperties,
            physical::get_physical_device_external_semaphore_properties
        ),
        b"vkGetPhysicalDeviceExternalBufferProperties"
        | b"vkGetPhysicalDeviceExternalBufferPropertiesKHR" => entry!(
            PFN_vkGetPhysicalDeviceExternalBufferProperties,
            memory::get_physical_device_external_buffer_properties
        ),
        b"vkGetPhysicalDeviceImageFormatProperties2"
        | b"vkGetPhysicalDeviceImageFormatProperties2KHR" => entry!(
            PFN_vkGetPhysicalDeviceImageFormatProperties2,
            image::get_physical_device_image_format_properties2
        ),
        _ => None,
    };
    if own.is_some() {
        return own;
    }
    let instance = instance?;
    let passed_on = instance.passed_on(text);
    if passed_on.is_some() {
        return passed_on;
    }
    // SAFETY: by this function's contract. The name is valid.
    unsafe { (instance.get_instance_proc_addr)(instance.raw, text.as_ptr()) }
}

unsafe extern "system" fn get_device_proc_addr(
    raw: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    if name.is_null() {
        return None;
    }
    // SAFETY: valid usage: a text that ends with a zero, and a live device.
    let (text, registered) = unsafe { (CStr::from_ptr(name), device::DEVICES.get(raw)?) };
    // SAFETY: as above.
    let found = unsafe { ungated_device_function(&registered, text) };
    let gated = found
        .filter(|_| gated::is_on())
        .and_then(|_| gated::function(text.to_bytes()));
    gated.or(found)
}

/// The function of the layer, or of the driver below.
///
/// # Safety
/// A live device.
pub(crate) unsafe fn ungated_device_function(
    registered: &Registered,
    text: &CStr,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: by this function's contract. The name is valid.
    let next = unsafe { (registered.get_device_proc_addr)(registered.raw, text.as_ptr()) };
    let text = text.to_bytes();
    // For every device, because the table removes it then.
    match text {
        b"vkDestroyDevice" => return entry!(PFN_vkDestroyDevice, device::destroy_device),
        b"vkGetDeviceProcAddr" => return entry!(PFN_vkGetDeviceProcAddr, get_device_proc_addr),
        _ => {}
    }
    let Some(device) = &registered.software else {
        return next;
    };
    // The driver may lack the extension that this layer offers.
    if next.is_none() && !(device.external_semaphores && semaphore::is_of_extension(text)) {
        return None;
    }
    commands::function(text).or(device_function(text)).or(next)
}

/// Returns the layer's own function of a software device.
fn device_function(name: &[u8]) -> vk::PFN_vkVoidFunction {
    match name {
        b"vkCreateSemaphore" => entry!(PFN_vkCreateSemaphore, semaphore::create_semaphore),
        b"vkDestroySemaphore" => entry!(PFN_vkDestroySemaphore, semaphore::destroy_semaphore),
        b"vkGetSemaphoreFdKHR" => entry!(PFN_vkGetSemaphoreFdKHR, semaphore::get_semaphore_fd),
        b"vkImportSemaphoreFdKHR" => {
            entry!(PFN_vkImportSemaphoreFdKHR, semaphore::import_semaphore_fd)
        }
        b"vkQueueSubmit" => entry!(PFN_vkQueueSubmit, submit::queue_submit),
        b"vkQueueSubmit2" | b"vkQueueSubmit2KHR" => {
            entry!(PFN_vkQueueSubmit2, submit::queue_submit2)
        }
        b"vkQueueBindSparse" => entry!(PFN_vkQueueBindSparse, submit::queue_bind_sparse),
        b"vkSignalSemaphore" | b"vkSignalSemaphoreKHR" => {
            entry!(PFN_vkSignalSemaphore, host::signal_semaphore)
        }
        b"vkWaitSemaphores" | b"vkWaitSemaphoresKHR" => {
            entry!(PFN_vkWaitSemaphores, host::wait_semaphores)
        }
        b"vkGetSemaphoreCounterValue" | b"vkGetSemaphoreCounterValueKHR" => entry!(
            PFN_vkGetSemaphoreCounterValue,
            host::get_semaphore_counter_value
        ),
        b"vkWaitForFences" => entry!(PFN_vkWaitForFences, completion::wait_for_fences),
        b"vkGetFenceStatus" => entry!(PFN_vkGetFenceStatus, completion::get_fence_status),
        b"vkQueueWaitIdle" => entry!(PFN_vkQueueWaitIdle, completion::queue_wait_idle),
        b"vkAcquireNextImageKHR" => entry!(PFN_vkAcquireNextImageKHR, surface::acquire_next_image),
        b"vkQueuePresentKHR" => entry!(PFN_vkQueuePresentKHR, surface::queue_present),
        b"vkGetCalibratedTimestampsKHR" | b"vkGetCalibratedTimestampsEXT" => entry!(
            PFN_vkGetCalibratedTimestampsKHR,
            calibration::get_calibrated_timestamps
        ),
        b"vkDeviceWaitIdle" => entry!(PFN_vkDeviceWaitIdle, completion::device_wait_idle),
        b"vkAllocateMemory" => entry!(PFN_vkAllocateMemory, memory::allocate_memory),
        b"vkFreeMemory" => entry!(PFN_vkFreeMemory, memory::free_memory),
        b"vkGetMemoryFdKHR" => entry!(PFN_vkGetMemoryFdKHR, memory::get_memory_fd),
        b"vkCreateBuffer" => entry!(PFN_vkCreateBuffer, memory::create_buffer),
        b"vkBindBufferMemory" => entry!(PFN_vkBindBufferMemory, memory::bind_buffer_memory),
        b"vkCreateImage" => entry!(PFN_vkCreateImage, image::create_image),
        b"vkDestroyImage" => entry!(PFN_vkDestroyImage, image::destroy_image),
        b"vkBindImageMemory" => entry!(PFN_vkBindImageMemory, image::bind_image_memory),
        b"vkBindImageMemory2" | b"vkBindImageMemory2KHR" => {
            entry!(PFN_vkBindImageMemory2, image::bind_image_memory2)
        }
        b"vkAllocateCommandBuffers" => {
            entry!(
                PFN_vkAllocateCommandBuffers,
                commands::allocate_command_buffers
            )
        }
        b"vkDestroyQueryPool" => entry!(PFN_vkDestroyQueryPool, passed_on::destroy_query_pool),
        _ => None,
    }
}
