//! Instances, and which of their physical devices are software.
#![allow(unsafe_code, reason = "is called by the loader, and calls the driver")]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use ash::vk::{self, Handle};
use syncline_software_payload::{Twin, register_destructors};

use crate::loader::take_link;
use crate::table::{Table, lock};
use crate::{bug, calibration, surface};

/// All instances of the process that have this layer.
pub(crate) static INSTANCES: Table<Instance> = Table::new();

/// An instance, with the functions of the layer below.
pub(crate) struct Instance {
    pub(crate) raw: vk::Instance,
    /// Functions that only pass through the gate, see `gated.rs`.
    ///
    /// Later the loader returns the function of the highest layer for their names.
    passed_on: [vk::PFN_vkVoidFunction; PASSED_ON.len()],
    pub(crate) get_instance_proc_addr: vk::PFN_vkGetInstanceProcAddr,
    destroy_instance: vk::PFN_vkDestroyInstance,
    pub(crate) enumerate_device_extension_properties: vk::PFN_vkEnumerateDeviceExtensionProperties,
    pub(crate) get_physical_device_properties: vk::PFN_vkGetPhysicalDeviceProperties,
    pub(crate) get_physical_device_properties2: vk::PFN_vkGetPhysicalDeviceProperties2,
    pub(crate) get_physical_device_features2: vk::PFN_vkGetPhysicalDeviceFeatures2,
    pub(crate) get_physical_device_external_semaphore_properties:
        vk::PFN_vkGetPhysicalDeviceExternalSemaphoreProperties,
    pub(crate) get_physical_device_external_buffer_properties:
        vk::PFN_vkGetPhysicalDeviceExternalBufferProperties,
    pub(crate) get_physical_device_image_format_properties2:
        vk::PFN_vkGetPhysicalDeviceImageFormatProperties2,
    /// The software driver of each physical device, by its handle. `None` for hardware.
    twins: Mutex<BTreeMap<u64, Option<Twin>>>,
}

const PASSED_ON: [&CStr; 3] = [
    c"vkEnumeratePhysicalDevices",
    c"vkGetPhysicalDeviceCalibrateableTimeDomainsKHR",
    c"vkGetPhysicalDeviceCalibrateableTimeDomainsEXT",
];

/// Gets a function of the layer below, with the type of the caller's field.
macro_rules! next {
    ($get:expr, $handle:expr, $type:ident, $name:literal) => {{
        let name: &CStr = $name;
        $get($handle, name.as_ptr())
            .map(|function| std::mem::transmute::<unsafe extern "system" fn(), vk::$type>(function))
    }};
}
pub(crate) use next;

impl Instance {
    /// Returns `None` if a function is missing. Loaders of Vulkan 1.1 or later have all of them.
    ///
    /// # Safety
    /// `get` is the function of the layer below, and `raw` an instance that it has made.
    unsafe fn load(get: vk::PFN_vkGetInstanceProcAddr, raw: vk::Instance) -> Option<Self> {
        // SAFETY: by this function's contract; each function is taken as the type of its name.
        unsafe {
            Some(Self {
                raw,
                passed_on: PASSED_ON.map(|name| get(raw, name.as_ptr())),
                get_instance_proc_addr: get,
                destroy_instance: next!(get, raw, PFN_vkDestroyInstance, c"vkDestroyInstance")?,
                enumerate_device_extension_properties: next!(
                    get,
                    raw,
                    PFN_vkEnumerateDeviceExtensionProperties,
                    c"vkEnumerateDeviceExtensionProperties"
                )?,
                get_physical_device_properties: next!(
                    get,
                    raw,
                    PFN_vkGetPhysicalDeviceProperties,
                    c"vkGetPhysicalDeviceProperties"
                )?,
                get_physical_device_properties2: next!(
                    get,
                    raw,
                    PFN_vkGetPhysicalDeviceProperties2,
                    c"vkGetPhysicalDeviceProperties2"
                )?,
                get_physical_device_features2: next!(
                    get,
                    raw,
                    PFN_vkGetPhysicalDeviceFeatures2,
                    c"vkGetPhysicalDeviceFeatures2"
                )?,
                get_physical_device_external_semaphore_properties: next!(
                    get,
                    raw,
                    PFN_vkGetPhysicalDeviceExternalSemaphoreProperties,
                    c"vkGetPhysicalDeviceExternalSemaphoreProperties"
                )?,
                get_physical_device_external_buffer_properties: next!(
                    get,
                    raw,
                    PFN_vkGetPhysicalDeviceExternalBufferProperties,
                    c"vkGetPhysicalDeviceExternalBufferProperties"
                )?,
                get_physical_device_image_format_properties2: next!(
                    get,
                    raw,
                    PFN_vkGetPhysicalDeviceImageFormatProperties2,
                    c"vkGetPhysicalDeviceImageFormatProperties2"
                )?,
                twins: Mutex::new(BTreeMap::new()),
            })
        }
    }

    /// The function of the layer below that only passes through the gate.
    pub(crate) fn passed_on(&self, name: &CStr) -> vk::PFN_vkVoidFunction {
        let at = PASSED_ON.iter().position(|known| *known == name)?;
        self.passed_on[at]
    }

    /// Returns the software driver that a physical device belongs to, or `None` for hardware.
    ///
    /// # Safety
    /// A physical device of this instance.
    pub(crate) unsafe fn twin(&self, physical: vk::PhysicalDevice) -> Option<Twin> {
        if let Some(known) = lock(&self.twins).get(&physical.as_raw()) {
            return *known;
        }
        let mut properties = vk::PhysicalDeviceProperties::default();
        // SAFETY: by this function's contract.
        unsafe { (self.get_physical_device_properties)(physical, &raw mut properties) };
        // The layer needs timelines of the driver.
        let serves = properties.device_type == vk::PhysicalDeviceType::CPU
            && properties.api_version >= vk::API_VERSION_1_2;
        let twin = serves.then(|| {
            let mut driver = vk::PhysicalDeviceDriverProperties::default();
            let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
            // SAFETY: by this function's contract, and the device has Vulkan 1.2.
            unsafe { (self.get_physical_device_properties2)(physical, &raw mut all) };
            match driver.driver_id {
                vk::DriverId::MESA_LLVMPIPE => Twin::Lavapipe,
                vk::DriverId::GOOGLE_SWIFTSHADER => Twin::SwiftShader,
                _ => Twin::Other,
            }
        });
        lock(&self.twins).insert(physical.as_raw(), twin);
        twin
    }
}

/// `vkCreateInstance`: requests at least Vulkan 1.2, which has timelines, from the drivers.
pub(crate) unsafe extern "system" fn create_instance(
    info: *const vk::InstanceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    instance: *mut vk::Instance,
) -> vk::Result {
    let settings = bug::planted().map(drop);
    let settings = settings.and(calibration::offset().map(drop));
    if let Err(reason) = settings.and(surface::planned().map(drop)) {
        // Not `eprintln!`, which panics if standard error cannot be written.
        let _ = writeln!(std::io::stderr(), "software layer: {reason}");
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    }
    // SAFETY: valid usage: a create info with the loader's link in its chain.
    let (mut info, link) = unsafe {
        let link = take_link::<Option<vk::PFN_vkGetInstanceProcAddr>>(
            (*info).p_next,
            vk::StructureType::LOADER_INSTANCE_CREATE_INFO,
        );
        (*info, link)
    };
    let Some(get) = link.map(|link| link.get_instance_proc_addr) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // SAFETY: valid usage: null or an application info.
    let mut application =
        unsafe { info.p_application_info.as_ref() }.map_or_else(Default::default, |told| *told);
    application.api_version = application.api_version.max(vk::API_VERSION_1_2);
    info.p_application_info = &raw const application;
    // SAFETY: the function of the layer below; valid usage for the rest.
    unsafe {
        let Some(create) = next!(
            get,
            vk::Instance::null(),
            PFN_vkCreateInstance,
            c"vkCreateInstance"
        ) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let created = create(&raw const info, allocator, instance);
        register_destructors();
        if created != vk::Result::SUCCESS {
            return created;
        }
        if let Some(known) = Instance::load(get, *instance) {
            INSTANCES.insert(*instance, Arc::new(known));
            return vk::Result::SUCCESS;
        }
        if let Some(destroy) = next!(get, *instance, PFN_vkDestroyInstance, c"vkDestroyInstance") {
            destroy(*instance, allocator);
        }
        vk::Result::ERROR_INITIALIZATION_FAILED
    }
}

/// `vkDestroyInstance`.
pub(crate) unsafe extern "system" fn destroy_instance(
    raw: vk::Instance,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: valid usage: null, or a live instance that is used no more.
    unsafe {
        if let Some(instance) = INSTANCES.remove(raw) {
            (instance.destroy_instance)(raw, allocator);
        }
    }
}
