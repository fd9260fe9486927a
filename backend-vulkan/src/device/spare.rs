//! A second `VkDevice` of the same GPU, which signals semaphores whose own device is lost (E3).
#![allow(unsafe_code, reason = "talks to the driver")]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ash::{khr, vk};
use syncline_core::backend::kit::{ImportFd, TeardownGuard};
use syncline_core::internal::MakerProcess;
use syncline_core::{Error, Result, error::Object};

use crate::device::native::Native;
use crate::driver::error::native;

/// A `VkDevice` with one queue, which is not used, and external semaphores.
///
/// The lost device and each [`SpareSemaphore`] hold the spare device. A semaphore drops the spare
/// device before the lost device, which holds the instance.
pub(crate) struct Spare {
    device: ash::Device,
    semaphores: khr::external_semaphore_fd::Device,
    object: Object,
    maker: MakerProcess,
}

impl Spare {
    /// Calls `vkCreateDevice` on the physical device of `lost`.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn open(lost: &Native, object: &Object) -> Result<Self> {
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(0)
            .queue_priorities(&[1.0])];
        let extensions = [khr::external_semaphore_fd::NAME.as_ptr()];
        let mut timelines =
            vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut timelines);
        // SAFETY: `info` is valid. The lost device has exported a timeline semaphore, so the
        // physical device has this extension and this feature. Every physical device has a queue
        // family 0 with a queue.
        let device = unsafe { lost.instance().create_device(lost.physical(), &info, None) }
            .map_err(|code| native(object, "vkCreateDevice", code))?;
        TeardownGuard::register();
        Ok(Self {
            semaphores: khr::external_semaphore_fd::Device::new(lost.instance(), &device),
            device,
            object: object.clone(),
            maker: MakerProcess::this(),
        })
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if self.maker.is_this()
            && let Some(_going) = TeardownGuard::begin()
        {
            // SAFETY: `open` made the device. Every semaphore of the device kept it and is gone.
            unsafe { self.device.destroy_device(None) };
        }
    }
}

/// The payload of a lost device's timeline semaphore, on a [`Spare`].
pub(crate) struct SpareSemaphore {
    spare: Arc<Spare>,
    raw: vk::Semaphore,
}

impl SpareSemaphore {
    /// Imports `handle`, which is of a timeline semaphore of the same driver.
    ///
    /// # Errors
    /// [`Error::Import`] if the system gives no duplicate. A driver error.
    pub(crate) fn import(spare: &Arc<Spare>, handle: &OwnedFd) -> Result<Self> {
        let mut timeline =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut timeline);
        // SAFETY: `info` is valid, and the device has timeline semaphores.
        let raw = unsafe { spare.device.create_semaphore(&info, None) }
            .map_err(|code| spare.failed("vkCreateSemaphore", code))?;
        let semaphore = Self {
            spare: spare.clone(),
            raw,
        };
        let fd = ImportFd::duplicate(handle)
            .map_err(|error| Error::import(&spare.object, "a timeline", error.to_string()))?;
        let info = vk::ImportSemaphoreFdInfoKHR::default()
            .semaphore(raw)
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD)
            .fd(fd.number());
        // SAFETY: an unused timeline semaphore, and a handle of a timeline semaphore of the same
        // driver.
        unsafe { spare.semaphores.import_semaphore_fd(&info) }
            .map_err(|code| spare.failed("vkImportSemaphoreFdKHR", code))?;
        fd.taken();
        Ok(semaphore)
    }

    pub(crate) const fn raw(&self) -> vk::Semaphore {
        self.raw
    }

    /// Reads the counter.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn value(&self) -> Result<u64> {
        // SAFETY: a live timeline semaphore of this device.
        unsafe { self.spare.device.get_semaphore_counter_value(self.raw) }
            .map_err(|code| self.spare.failed("vkGetSemaphoreCounterValue", code))
    }

    /// Signals `value`, which the caller has compared with the counter.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn signal(&self, value: u64) -> Result<()> {
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(self.raw)
            .value(value);
        // SAFETY: a live timeline semaphore. The lost device no longer signals it. The engine makes
        // one signal at a time, after the lower signals of this process's other devices. For
        // several processes see `Port::signal` in `timeline/port.rs`.
        unsafe { self.spare.device.signal_semaphore(&info) }
            .map_err(|code| self.spare.failed("vkSignalSemaphore", code))
    }
}

impl Spare {
    fn failed(&self, call: &'static str, code: vk::Result) -> Error {
        native(&self.object, call, code)
    }
}

impl Drop for SpareSemaphore {
    fn drop(&mut self) {
        let Some(_calls) = self.spare.maker.for_destroy() else {
            return;
        };
        // SAFETY: made here, and no submission uses it.
        unsafe { self.spare.device.destroy_semaphore(self.raw, None) };
    }
}
