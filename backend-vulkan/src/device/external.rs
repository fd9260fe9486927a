//! The functions that a device exports and imports handles with.

use ash::{khr, vk};
use syncline_core::internal::MakerProcess;
use syncline_core::{Error, Result, error::Object};

use crate::device::file_kind::FileKinds;
use crate::device::native::Native;
use crate::device::physical::PhysicalDevice;

/// The functions for external handles, if the device was created with the extensions.
pub(crate) struct External {
    /// The device's name in errors.
    device: Object,
    maker: MakerProcess,
    semaphores: Option<khr::external_semaphore_fd::Device>,
    memory: Option<khr::external_memory_fd::Device>,
    binary_exports: vk::ExternalSemaphoreHandleTypeFlags,
    file_kinds: FileKinds,
}

impl External {
    pub(crate) fn new(device: &Object, native: &Native, physical: &PhysicalDevice) -> Self {
        let (instance, functions) = (native.instance(), native.device());
        let enabled = physical.enabled();
        Self {
            device: device.clone(),
            maker: native.maker(),
            semaphores: enabled
                .external_semaphore_fd
                .then(|| khr::external_semaphore_fd::Device::new(instance, functions)),
            memory: enabled
                .external_memory_fd
                .then(|| khr::external_memory_fd::Device::new(instance, functions)),
            binary_exports: physical.binary_exports(),
            file_kinds: FileKinds::default(),
        }
    }

    /// The functions of `VK_KHR_external_semaphore_fd`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device was created without the extension.
    /// [`Error::MadeBeforeFork`] in a forked child.
    pub(crate) fn semaphores(&self, asked: &str) -> Result<&khr::external_semaphore_fd::Device> {
        self.maker.require(&self.device)?;
        let functions = self.semaphores.as_ref();
        functions.ok_or_else(|| self.not_enabled(asked, "VK_KHR_external_semaphore_fd"))
    }

    /// The functions of `VK_KHR_external_memory_fd`.
    ///
    /// # Errors
    /// Same errors as [`External::semaphores`].
    pub(crate) fn memory(&self, asked: &str) -> Result<&khr::external_memory_fd::Device> {
        self.maker.require(&self.device)?;
        let functions = self.memory.as_ref();
        functions.ok_or_else(|| self.not_enabled(asked, "VK_KHR_external_memory_fd"))
    }

    /// See [`PhysicalDevice::binary_exports`].
    pub(crate) const fn binary_exports(&self) -> vk::ExternalSemaphoreHandleTypeFlags {
        self.binary_exports
    }

    /// The kinds of file that the driver's own exports have.
    pub(crate) const fn file_kinds(&self) -> &FileKinds {
        &self.file_kinds
    }

    fn not_enabled(&self, asked: &str, extension: &str) -> Error {
        let reason = format!("the device was made without {extension}");
        Error::unsupported(&self.device, asked, reason)
    }
}
