//! What to create a `VkDevice` with before it is adopted, and adopting one by raw handles.
#![allow(unsafe_code, reason = "raw handles are trusted")]

use std::ffi::CStr;

use ash::vk::Handle as _;
use ash::{Device, Entry, Instance, vk};
use syncline_core::{Result, info::Info};

use crate::adopt::raw::AdoptInfo;
use crate::device::physical::{Enabled, PhysicalDevice};
use crate::driver::error::unavailable;

/// The extensions and features of a physical device that Syncline can use.
///
/// For an application that creates a `VkDevice` and has the device [adopted](crate::Device::adopt).
/// Created with these extensions and the features in [`Offer::enabled`], the device can do
/// everything that a device opened by Syncline can.
///
/// The feature `timelineSemaphore` (Vulkan 1.2, or the structure of `VK_KHR_timeline_semaphore`) is
/// always required. Every device for which an offer is returned has it. Everything else may be left
/// out, and must then be `false` in [`AdoptInfo::enabled`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Offer {
    /// The identity and capabilities of the device. CUDA knows the same GPU by [`Info::uuid`].
    pub info: Info,
    /// The device extensions to enable.
    pub extensions: Vec<&'static CStr>,
    /// The extensions as flags for [`AdoptInfo::enabled`], and the feature `hostQueryReset`.
    pub enabled: Enabled,
}

impl Offer {
    /// Queries a physical device. Creates nothing.
    ///
    /// # Errors
    /// [`Error::Unavailable`](syncline_core::Error::Unavailable) with the reason, if no device
    /// created from it could be adopted. It is then older than Vulkan 1.2, or has no timeline
    /// semaphores.
    ///
    /// # Safety
    /// `physical` belongs to `instance`, which is valid, and was created through `entry` for Vulkan
    /// 1.2 or later.
    pub unsafe fn of(
        entry: &Entry,
        instance: &Instance,
        physical: vk::PhysicalDevice,
    ) -> Result<Self> {
        // SAFETY: the caller guarantees it.
        let device = unsafe { PhysicalDevice::probe(entry, instance, physical, None) };
        device.usable()?;
        Ok(Self {
            info: device.info().clone(),
            extensions: device.extensions().to_vec(),
            enabled: device.enabled(),
        })
    }
}

/// The raw handles of a `VkDevice`, as in C, for [`AdoptInfo::from_handles`].
///
/// `ash::vk::Handle::from_raw` converts each handle from C. These handles are dispatchable, so its
/// argument is the pointer's address.
#[derive(Debug, Clone, Copy)]
pub struct Handles {
    /// The function that looks up all others.
    ///
    /// `None` takes it from the Vulkan loader of this machine (`libvulkan.so.1`). That is correct
    /// if the application's functions came from there too.
    pub get_instance_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
    /// The instance, created for Vulkan 1.2 or later.
    pub instance: vk::Instance,
    /// The physical device.
    pub physical: vk::PhysicalDevice,
    /// The device, created with the feature `timelineSemaphore`.
    pub device: vk::Device,
}

impl AdoptInfo {
    /// Looks up the functions of raw handles.
    ///
    /// The result has no queues, nothing enabled, and no owner. The caller fills these in.
    ///
    /// # Errors
    /// [`Error::Unavailable`](syncline_core::Error::Unavailable) if a handle is null, or if the
    /// loader cannot be used.
    ///
    /// # Safety
    /// The handles are live and belong together. `get_instance_proc_addr` is Vulkan's own function.
    pub unsafe fn from_handles(handles: Handles) -> Result<Self> {
        let null = [
            ("VkInstance", handles.instance.is_null()),
            ("VkPhysicalDevice", handles.physical.is_null()),
            ("VkDevice", handles.device.is_null()),
        ];
        if let Some((name, _)) = null.iter().find(|(_, null)| *null) {
            return Err(unavailable(format!(
                "the {name} to be adopted is VK_NULL_HANDLE"
            )));
        }
        let entry = match handles.get_instance_proc_addr {
            Some(get_instance_proc_addr) => {
                let functions = ash::StaticFn {
                    get_instance_proc_addr,
                };
                // SAFETY: the caller guarantees it.
                unsafe { Entry::from_static_fn(functions) }
            }
            None => crate::driver::instance::loader()?,
        };
        // SAFETY: the caller guarantees it.
        let (instance, device) = unsafe {
            let instance = Instance::load(entry.static_fn(), handles.instance);
            let device = Device::load(instance.fp_v1_0(), handles.device);
            (instance, device)
        };
        Ok(Self {
            entry,
            instance,
            physical: handles.physical,
            device,
            queues: Vec::new(),
            owner: None,
            enabled: Enabled::default(),
        })
    }
}
