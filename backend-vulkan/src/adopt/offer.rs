//! What an application needs to know before it makes the `VkDevice` that is to be adopted, and adopting one by bare handles.
#![allow(unsafe_code, reason = "raw handles are trusted")]

use std::ffi::CStr;

use ash::vk::Handle as _;
use ash::{Device, Entry, Instance, vk};
use syncline_core::{Info, Result};

use crate::adopt::raw::AdoptInfo;
use crate::device::physical::{Enabled, PhysicalDevice};
use crate::driver::error::unavailable;

/// What a physical device offers of all that Syncline can use, for an application that makes its `VkDevice` itself and has
/// it [adopted](crate::Device::adopt): made with these extensions and the features of [`Offer::enabled`], it can do whatever
/// a device opened by Syncline can.
///
/// The feature `timelineSemaphore` (Vulkan 1.2, or `VK_KHR_timeline_semaphore`'s structure) is always needed, and always offered where
/// this is returned. Everything else may be left out; what was left out is to be `false` in [`AdoptInfo::enabled`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Offer {
    /// What the device is and could do. [`Info::uuid`] is what CUDA knows the same GPU by.
    pub info: Info,
    /// The device extensions to enable.
    pub extensions: Vec<&'static CStr>,
    /// What stands for them in [`AdoptInfo::enabled`], and the feature `hostQueryReset`.
    pub enabled: Enabled,
}

impl Offer {
    /// Asks a physical device. Makes nothing.
    ///
    /// # Errors
    /// [`Error::Unavailable`](syncline_core::Error::Unavailable) with the reason, if no device made of it could be adopted:
    /// it is older than Vulkan 1.2, or has no timeline semaphores.
    ///
    /// # Safety
    /// `physical` belongs to `instance`, which is valid, was made through `entry`, and for Vulkan 1.2 or later.
    pub unsafe fn of(
        entry: &Entry,
        instance: &Instance,
        physical: vk::PhysicalDevice,
    ) -> Result<Self> {
        // SAFETY: the caller guarantees it.
        let device = unsafe { PhysicalDevice::probe(entry, instance, physical, None) };
        match device.rejected {
            Some(reason) => Err(reason),
            None => Ok(Self {
                info: device.info,
                extensions: device.extensions,
                enabled: device.enabled,
            }),
        }
    }
}

/// A `VkDevice` as C has it, for [`AdoptInfo::from_handles`].
///
/// `ash::vk::Handle::from_raw` makes each of a handle from C: of a pointer's address for these, which are dispatchable.
#[derive(Debug, Clone, Copy)]
pub struct Handles {
    /// Where the functions are found; `None` finds them in the Vulkan loader of this machine (`libvulkan.so.1`), which is right
    /// wherever the application's own came from there.
    pub get_instance_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
    /// The instance, made for Vulkan 1.2 or later.
    pub instance: vk::Instance,
    /// The physical device.
    pub physical: vk::PhysicalDevice,
    /// The device, made with the feature `timelineSemaphore`.
    pub device: vk::Device,
}

impl AdoptInfo {
    /// The functions behind bare handles, looked up by name. No queue is among them, nothing is said to be enabled, and there is no owner:
    /// fill in what there is.
    ///
    /// # Errors
    /// [`Error::Unavailable`](syncline_core::Error::Unavailable) if a handle is null, or if the loader cannot be used.
    ///
    /// # Safety
    /// The handles are live and belong together, and what looks up functions is Vulkan's own.
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
