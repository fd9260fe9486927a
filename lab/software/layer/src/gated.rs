//! Functions that ask the gate first. They pass their calls on to the layer or to the driver.
//!
//! An application gets them only if `SYNCLINE_SOFTWARE_LAYER_GATE` is set, because each call looks
//! up where it goes. Functions without a result cannot fail. Those that destroy objects are here
//! to count them.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "is called in place of the driver"
)]

use std::ffi::{CStr, c_char, c_void};
use std::sync::LazyLock;

use ash::vk::{self, Handle};
use syncline_software_payload::Verdict;

use crate::observe::GATE;
use crate::{chain, device, instance, loader};

/// True if calls go through the gate.
pub(crate) fn is_on() -> bool {
    static ON: LazyLock<bool> = LazyLock::new(|| {
        std::env::var_os("SYNCLINE_SOFTWARE_LAYER_GATE").is_some_and(|value| value == "1")
    });
    *ON
}

/// Runs a call unless the gate lets it fail, and counts what it creates.
///
/// Before a call reports a lost device, `finish` waits for the device's work. A lost device
/// executes nothing, so that an application may destroy what the work uses.
fn call(
    name: &'static str,
    creates: Option<&'static str>,
    takes: impl FnOnce() -> Option<i32>,
    run: impl FnOnce() -> vk::Result,
    finish: impl FnOnce(),
) -> vk::Result {
    let (result, answer) = match GATE.before(name) {
        Verdict::Fails(code) => {
            let code = vk::Result::from_raw(code);
            if code == vk::Result::ERROR_DEVICE_LOST {
                finish();
            }
            return code;
        }
        Verdict::Closes(code) => {
            if let Some(descriptor) = takes() {
                GATE.close(descriptor);
            }
            return vk::Result::from_raw(code);
        }
        Verdict::RunsAndFails(code) => {
            let result = run();
            finish();
            (result, Some(vk::Result::from_raw(code)))
        }
        Verdict::Runs => (run(), None),
    };
    if let Some(kind) = creates.filter(|_| result == vk::Result::SUCCESS) {
        GATE.objects(kind, 1);
    }
    answer.unwrap_or(result)
}

/// The function of the layer or the driver for a device, queue or command buffer.
///
/// # Safety
/// A live handle.
unsafe fn of_device(handle: impl Handle, name: &CStr) -> vk::PFN_vkVoidFunction {
    // SAFETY: by this function's contract, and the device is live with it.
    unsafe {
        let registered = device::DEVICES.get(handle)?;
        loader::ungated_device_function(&registered, name)
    }
}

/// Waits until the device of a queue or command buffer, or the device itself, executes nothing.
///
/// # Safety
/// A live handle.
unsafe fn finish_of_device(handle: impl Handle) {
    // SAFETY: by this function's contract, and the device is live with it.
    unsafe {
        if let Some(registered) = device::DEVICES.get(handle)
            && let Some(device) = &registered.software
        {
            let _ = (device.driver.device_wait_idle)(device.driver.device);
        }
    }
}

/// Nothing: an instance executes nothing.
///
/// # Safety
/// None.
unsafe fn finish_of_instance(_: impl Handle) {}

/// The function of the layer or the driver for an instance or a physical device.
///
/// # Safety
/// A live handle.
unsafe fn of_instance(handle: impl Handle, name: &CStr) -> vk::PFN_vkVoidFunction {
    // SAFETY: by this function's contract, and the instance is live with it.
    unsafe {
        let instance = instance::INSTANCES.get(handle)?;
        loader::ungated_instance_function(Some(&instance), name)
    }
}

type Void = unsafe extern "system" fn();
type Allocator<'a> = *const vk::AllocationCallbacks<'a>;

/// The descriptor of imported memory.
///
/// # Safety
/// Valid usage.
unsafe fn of_memory(info: *const vk::MemoryAllocateInfo<'_>) -> Option<i32> {
    // SAFETY: by this function's contract: a valid chain.
    let import = unsafe { chain::find::<vk::ImportMemoryFdInfoKHR<'_>>((*info).p_next) };
    import.map(|import| import.fd).filter(|fd| *fd >= 0)
}

/// The descriptor of an imported semaphore.
///
/// # Safety
/// Valid usage.
unsafe fn of_semaphore(info: *const vk::ImportSemaphoreFdInfoKHR<'_>) -> Option<i32> {
    // SAFETY: by this function's contract.
    Some(unsafe { (*info).fd }).filter(|fd| *fd >= 0)
}

/// Declares gated functions. `creates` and `destroys` name the kind of object.
///
/// `takes` names the function that finds the descriptor in an argument.
macro_rules! gated {
    ($(
        $of:ident $name:ident = $text:literal : $type:ident (
            $first:ident: $first_type:ty $(, $argument:ident: $argument_type:ty)* $(,)?
        ) $(takes $takes:ident $info:ident)? $(creates $creates:literal)?
            $(destroys $object:ident $destroys:literal)?;
    )*) => {
        $(gated!(@one $of $name $text $type ($first: $first_type $(, $argument: $argument_type)*)
            [$($takes $info)?] [$($creates)?] [$($object $destroys)?]);)*

        /// Returns the gated function of this name.
        pub(crate) fn function(name: &[u8]) -> vk::PFN_vkVoidFunction {
            match name {
                $($text => {
                    let function: vk::$type = $name;
                    // SAFETY: function pointers are of one size. The caller casts it back.
                    Some(unsafe { std::mem::transmute::<vk::$type, Void>(function) })
                })*
                _ => None,
            }
        }
    };
    (@finish of_device) => { finish_of_device };
    (@finish of_instance) => { finish_of_instance };
    (@one $of:ident $name:ident $text:literal $type:ident
        ($first:ident: $first_type:ty $(, $argument:ident: $argument_type:ty)*)
        [$($takes:ident $info:ident)?] [$($creates:literal)?] []
    ) => {
        unsafe extern "system" fn $name($first: $first_type $(, $argument: $argument_type)*) -> vk::Result {
            let text = concat!(stringify!($name), "\0").as_bytes();
            let Ok(text) = CStr::from_bytes_with_nul(text) else {
                return vk::Result::ERROR_UNKNOWN;
            };
            // SAFETY: valid usage: a live handle.
            let Some(next) = (unsafe { $of($first, text) }) else {
                return vk::Result::ERROR_UNKNOWN;
            };
            // SAFETY: the function of this name has this type. Valid usage.
            let run = || unsafe {
                std::mem::transmute::<Void, vk::$type>(next)($first $(, $argument)*)
            };
            // SAFETY: valid usage: a live handle.
            let finish = || unsafe { gated!(@finish $of)($first) };
            // SAFETY: valid usage: a valid structure.
            let takes = || None$(.or(unsafe { $takes($info) }))?;
            call(stringify!($name), None$(.or(Some($creates)))?, takes, run, finish)
        }
    };
    (@one $of:ident $name:ident $text:literal $type:ident
        ($first:ident: $first_type:ty $(, $argument:ident: $argument_type:ty)*)
        [] [] [$object:ident $destroys:literal]
    ) => {
        unsafe extern "system" fn $name($first: $first_type $(, $argument: $argument_type)*) {
            let text = concat!(stringify!($name), "\0").as_bytes();
            let Ok(text) = CStr::from_bytes_with_nul(text) else { return };
            if $object.is_null() {
                return;
            }
            // SAFETY: valid usage: a live handle.
            let Some(next) = (unsafe { $of($first, text) }) else { return };
            let _ = GATE.before(stringify!($name));
            // SAFETY: the function of this name has this type. Valid usage.
            unsafe { std::mem::transmute::<Void, vk::$type>(next)($first $(, $argument)*) };
            GATE.objects($destroys, -1);
        }
    };
}

gated! {
    of_instance vkEnumeratePhysicalDevices = b"vkEnumeratePhysicalDevices": PFN_vkEnumeratePhysicalDevices(
        instance: vk::Instance, count: *mut u32, devices: *mut vk::PhysicalDevice,
    );
    of_instance vkEnumerateDeviceExtensionProperties = b"vkEnumerateDeviceExtensionProperties":
        PFN_vkEnumerateDeviceExtensionProperties(
            physical: vk::PhysicalDevice, layer: *const c_char, count: *mut u32,
            properties: *mut vk::ExtensionProperties,
        );
    of_instance vkGetPhysicalDeviceCalibrateableTimeDomainsKHR = b"vkGetPhysicalDeviceCalibrateableTimeDomainsKHR":
        PFN_vkGetPhysicalDeviceCalibrateableTimeDomainsKHR(
            physical: vk::PhysicalDevice, count: *mut u32, domains: *mut vk::TimeDomainKHR,
        );
    of_instance vkGetPhysicalDeviceCalibrateableTimeDomainsEXT = b"vkGetPhysicalDeviceCalibrateableTimeDomainsEXT":
        PFN_vkGetPhysicalDeviceCalibrateableTimeDomainsKHR(
            physical: vk::PhysicalDevice, count: *mut u32, domains: *mut vk::TimeDomainKHR,
        );
    of_instance vkCreateDevice = b"vkCreateDevice": PFN_vkCreateDevice(
        physical: vk::PhysicalDevice, info: *const vk::DeviceCreateInfo<'_>,
        allocator: Allocator<'_>, device: *mut vk::Device,
    ) creates "devices";
    of_instance vkDestroyInstance = b"vkDestroyInstance": PFN_vkDestroyInstance(
        instance: vk::Instance, allocator: Allocator<'_>,
    ) destroys instance "instances";
    of_device vkDestroyDevice = b"vkDestroyDevice": PFN_vkDestroyDevice(
        device: vk::Device, allocator: Allocator<'_>,
    ) destroys device "devices";
    of_device vkAllocateCommandBuffers = b"vkAllocateCommandBuffers": PFN_vkAllocateCommandBuffers(
        device: vk::Device, info: *const vk::CommandBufferAllocateInfo<'_>,
        buffers: *mut vk::CommandBuffer,
    );
    of_device vkBeginCommandBuffer = b"vkBeginCommandBuffer": PFN_vkBeginCommandBuffer(
        buffer: vk::CommandBuffer, info: *const vk::CommandBufferBeginInfo<'_>,
    );
    of_device vkEndCommandBuffer = b"vkEndCommandBuffer": PFN_vkEndCommandBuffer(
        buffer: vk::CommandBuffer,
    );
    of_device vkResetCommandBuffer = b"vkResetCommandBuffer": PFN_vkResetCommandBuffer(
        buffer: vk::CommandBuffer, flags: vk::CommandBufferResetFlags,
    );
    of_device vkAllocateMemory = b"vkAllocateMemory": PFN_vkAllocateMemory(
        device: vk::Device, info: *const vk::MemoryAllocateInfo<'_>, allocator: Allocator<'_>,
        memory: *mut vk::DeviceMemory,
    ) takes of_memory info creates "memory";
    of_device vkFreeMemory = b"vkFreeMemory": PFN_vkFreeMemory(
        device: vk::Device, memory: vk::DeviceMemory, allocator: Allocator<'_>,
    ) destroys memory "memory";
    of_device vkMapMemory = b"vkMapMemory": PFN_vkMapMemory(
        device: vk::Device, memory: vk::DeviceMemory, offset: vk::DeviceSize, size: vk::DeviceSize,
        flags: vk::MemoryMapFlags, data: *mut *mut c_void,
    );
    of_device vkGetMemoryFdKHR = b"vkGetMemoryFdKHR": PFN_vkGetMemoryFdKHR(
        device: vk::Device, info: *const vk::MemoryGetFdInfoKHR<'_>, fd: *mut i32,
    );
    of_device vkCreateBuffer = b"vkCreateBuffer": PFN_vkCreateBuffer(
        device: vk::Device, info: *const vk::BufferCreateInfo<'_>, allocator: Allocator<'_>,
        buffer: *mut vk::Buffer,
    ) creates "buffers";
    of_device vkDestroyBuffer = b"vkDestroyBuffer": PFN_vkDestroyBuffer(
        device: vk::Device, buffer: vk::Buffer, allocator: Allocator<'_>,
    ) destroys buffer "buffers";
    of_device vkBindBufferMemory = b"vkBindBufferMemory": PFN_vkBindBufferMemory(
        device: vk::Device, buffer: vk::Buffer, memory: vk::DeviceMemory, offset: vk::DeviceSize,
    );
    of_instance vkGetPhysicalDeviceImageFormatProperties2 = b"vkGetPhysicalDeviceImageFormatProperties2":
        PFN_vkGetPhysicalDeviceImageFormatProperties2(
            physical: vk::PhysicalDevice, info: *const vk::PhysicalDeviceImageFormatInfo2<'_>,
            properties: *mut vk::ImageFormatProperties2<'_>,
        );
    of_device vkCreateImage = b"vkCreateImage": PFN_vkCreateImage(
        device: vk::Device, info: *const vk::ImageCreateInfo<'_>, allocator: Allocator<'_>,
        image: *mut vk::Image,
    ) creates "images";
    of_device vkDestroyImage = b"vkDestroyImage": PFN_vkDestroyImage(
        device: vk::Device, image: vk::Image, allocator: Allocator<'_>,
    ) destroys image "images";
    of_device vkBindImageMemory = b"vkBindImageMemory": PFN_vkBindImageMemory(
        device: vk::Device, image: vk::Image, memory: vk::DeviceMemory, offset: vk::DeviceSize,
    );
    of_device vkCreateCommandPool = b"vkCreateCommandPool": PFN_vkCreateCommandPool(
        device: vk::Device, info: *const vk::CommandPoolCreateInfo<'_>, allocator: Allocator<'_>,
        pool: *mut vk::CommandPool,
    ) creates "command-pools";
    of_device vkDestroyCommandPool = b"vkDestroyCommandPool": PFN_vkDestroyCommandPool(
        device: vk::Device, pool: vk::CommandPool, allocator: Allocator<'_>,
    ) destroys pool "command-pools";
    of_device vkCreateQueryPool = b"vkCreateQueryPool": PFN_vkCreateQueryPool(
        device: vk::Device, info: *const vk::QueryPoolCreateInfo<'_>, allocator: Allocator<'_>,
        pool: *mut vk::QueryPool,
    ) creates "query-pools";
    of_device vkDestroyQueryPool = b"vkDestroyQueryPool": PFN_vkDestroyQueryPool(
        device: vk::Device, pool: vk::QueryPool, allocator: Allocator<'_>,
    ) destroys pool "query-pools";
    of_device vkGetQueryPoolResults = b"vkGetQueryPoolResults": PFN_vkGetQueryPoolResults(
        device: vk::Device, pool: vk::QueryPool, first: u32, count: u32, size: usize,
        data: *mut c_void, stride: vk::DeviceSize, flags: vk::QueryResultFlags,
    );
    of_device vkGetCalibratedTimestampsKHR = b"vkGetCalibratedTimestampsKHR":
        PFN_vkGetCalibratedTimestampsKHR(
            device: vk::Device, count: u32, infos: *const vk::CalibratedTimestampInfoKHR<'_>,
            stamps: *mut u64, deviation: *mut u64,
        );
    of_device vkGetCalibratedTimestampsEXT = b"vkGetCalibratedTimestampsEXT":
        PFN_vkGetCalibratedTimestampsKHR(
            device: vk::Device, count: u32, infos: *const vk::CalibratedTimestampInfoKHR<'_>,
            stamps: *mut u64, deviation: *mut u64,
        );
    of_device vkCreateSemaphore = b"vkCreateSemaphore": PFN_vkCreateSemaphore(
        device: vk::Device, info: *const vk::SemaphoreCreateInfo<'_>, allocator: Allocator<'_>,
        semaphore: *mut vk::Semaphore,
    ) creates "semaphores";
    of_device vkDestroySemaphore = b"vkDestroySemaphore": PFN_vkDestroySemaphore(
        device: vk::Device, semaphore: vk::Semaphore, allocator: Allocator<'_>,
    ) destroys semaphore "semaphores";
    of_device vkGetSemaphoreFdKHR = b"vkGetSemaphoreFdKHR": PFN_vkGetSemaphoreFdKHR(
        device: vk::Device, info: *const vk::SemaphoreGetFdInfoKHR<'_>, fd: *mut i32,
    );
    of_device vkImportSemaphoreFdKHR = b"vkImportSemaphoreFdKHR": PFN_vkImportSemaphoreFdKHR(
        device: vk::Device, info: *const vk::ImportSemaphoreFdInfoKHR<'_>,
    ) takes of_semaphore info;
    of_device vkGetSemaphoreCounterValue = b"vkGetSemaphoreCounterValue":
        PFN_vkGetSemaphoreCounterValue(
            device: vk::Device, semaphore: vk::Semaphore, value: *mut u64,
        );
    of_device vkGetSemaphoreCounterValueKHR = b"vkGetSemaphoreCounterValueKHR":
        PFN_vkGetSemaphoreCounterValue(
            device: vk::Device, semaphore: vk::Semaphore, value: *mut u64,
        );
    of_device vkSignalSemaphore = b"vkSignalSemaphore": PFN_vkSignalSemaphore(
        device: vk::Device, info: *const vk::SemaphoreSignalInfo<'_>,
    );
    of_device vkSignalSemaphoreKHR = b"vkSignalSemaphoreKHR": PFN_vkSignalSemaphore(
        device: vk::Device, info: *const vk::SemaphoreSignalInfo<'_>,
    );
    of_device vkWaitSemaphores = b"vkWaitSemaphores": PFN_vkWaitSemaphores(
        device: vk::Device, info: *const vk::SemaphoreWaitInfo<'_>, timeout: u64,
    );
    of_device vkWaitSemaphoresKHR = b"vkWaitSemaphoresKHR": PFN_vkWaitSemaphores(
        device: vk::Device, info: *const vk::SemaphoreWaitInfo<'_>, timeout: u64,
    );
    of_device vkQueueSubmit = b"vkQueueSubmit": PFN_vkQueueSubmit(
        queue: vk::Queue, count: u32, submits: *const vk::SubmitInfo<'_>, fence: vk::Fence,
    );
    of_device vkQueueSubmit2 = b"vkQueueSubmit2": PFN_vkQueueSubmit2(
        queue: vk::Queue, count: u32, submits: *const vk::SubmitInfo2<'_>, fence: vk::Fence,
    );
    of_device vkQueueSubmit2KHR = b"vkQueueSubmit2KHR": PFN_vkQueueSubmit2(
        queue: vk::Queue, count: u32, submits: *const vk::SubmitInfo2<'_>, fence: vk::Fence,
    );
    of_device vkQueueWaitIdle = b"vkQueueWaitIdle": PFN_vkQueueWaitIdle(queue: vk::Queue);
    of_device vkDeviceWaitIdle = b"vkDeviceWaitIdle": PFN_vkDeviceWaitIdle(device: vk::Device);
}

/// `vkCreateInstance`, which finds the next layer in its arguments.
pub(crate) unsafe extern "system" fn create_instance(
    info: *const vk::InstanceCreateInfo<'_>,
    allocator: Allocator<'_>,
    instance: *mut vk::Instance,
) -> vk::Result {
    // SAFETY: valid usage.
    let create = || unsafe { instance::create_instance(info, allocator, instance) };
    if !is_on() {
        return create();
    }
    call(
        "vkCreateInstance",
        Some("instances"),
        || None,
        create,
        || {},
    )
}
