//! The payload of a binary semaphore, and importing a temporary payload.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::os::fd::RawFd;

use ash::vk;
#[allow(unused_imports, reason = "for links, also in the facade")]
use syncline_core::Error;
use syncline_core::{
    Result,
    handle::{BinaryFd, HandleKind, Payload, Rejected},
};

use crate::share::binary::BinarySemaphore;
use crate::timeline::raw_binary::Needs;

impl BinarySemaphore {
    /// The payload that the next recorded signal or wait will use.
    ///
    /// A temporary payload is gone once a submission that waits for it is with the driver. Waits
    /// that the application submits itself, through [`BinarySemaphore::raw`], are not known here.
    #[must_use]
    pub fn payload(&self) -> Payload {
        let temporary = self.inner().payload().temporary();
        temporary.map_or(Payload::Permanent, Payload::Temporary)
    }

    /// Imports a temporary payload from a handle.
    ///
    /// Calls `vkImportSemaphoreFdKHR` with `VK_SEMAPHORE_IMPORT_TEMPORARY_BIT`. The next wait
    /// consumes a signal of the temporary payload. Then the semaphore has its permanent payload
    /// back, in the state that it had. Until that wait, signals are made on the temporary payload,
    /// because opaque handles have reference transference. Does not wait for a signal.
    ///
    /// The types refuse the payload of a timeline
    /// (VUID-VkImportSemaphoreFdInfoKHR-flags-03323):
    ///
    /// ```compile_fail,E0308
    /// # use syncline_vulkan::BinarySemaphore;
    /// # use syncline_core::handle::TimelineFd;
    /// fn replace(semaphore: &BinarySemaphore, handle: TimelineFd) {
    ///     let _ = semaphore.import_temporary(handle);
    /// }
    /// ```
    ///
    /// See *Importing Semaphore Payloads* in the Vulkan specification.
    ///
    /// # Errors
    /// The handle, with the same errors as [`Device::import_binary`](crate::Device::import_binary),
    /// or [`Error::PayloadInUse`]:
    ///
    /// * The semaphore has a temporary payload already.
    /// * A submission that signals or waits for the semaphore has not finished. It has finished
    ///   once its [end](syncline_core::Submitted::end) is reached, or the fence of
    ///   [`BinarySemaphore::pending`] is complete.
    ///
    /// The semaphore is unchanged then.
    pub fn import_temporary(&self, handle: BinaryFd) -> Result<(), Rejected<BinaryFd>> {
        let asked = "import a temporary payload";
        let device = self.device();
        let kind = HandleKind::BinaryOpaqueFd;
        let what = || format!("a binary semaphore from {}", handle.origin());
        let imported = device
            .require_same_driver("a binary semaphore", handle.origin())
            .and_then(|()| {
                device.require_kind(&device.info().capabilities.imports, kind, asked)?;
                device.require_binary_file(&handle, &what)?;
                let type_ = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
                let fd = device.duplicate(&handle, &what)?;
                // SAFETY: the handle's type guarantees a binary semaphore. `require_same_driver`
                // has checked that it is of the same driver.
                unsafe { self.replace(kind, type_, fd.number(), asked, &what) }?;
                fd.taken();
                Ok(())
            });
        // The driver has taken a duplicate, so on success the original is closed here.
        imported.map_err(|error| Rejected { handle, error })
    }

    /// Imports a temporary payload. The driver owns `fd` after a success.
    ///
    /// # Safety
    /// `fd` is a handle of this type, which the device imports, of a binary semaphore.
    pub(crate) unsafe fn replace(
        &self,
        kind: HandleKind,
        type_: vk::ExternalSemaphoreHandleTypeFlags,
        fd: RawFd,
        asked: &str,
        what: &dyn Fn() -> String,
    ) -> Result<()> {
        let device = self.device();
        let functions = device.inner().external().semaphores(asked)?;
        let info = vk::ImportSemaphoreFdInfoKHR::default()
            .semaphore(self.raw())
            .flags(vk::SemaphoreImportFlags::TEMPORARY)
            .handle_type(type_)
            .fd(fd);
        self.inner().with_payload(Needs::Unused, asked, |payload| {
            // SAFETY: the caller guarantees it. No submission that this crate knows of uses the
            // semaphore. None can begin to, because the payload's lock is held.
            unsafe { functions.import_semaphore_fd(&info) }
                .map_err(|code| device.import_error("vkImportSemaphoreFdKHR", code, what))?;
            payload.set_temporary(kind);
            Ok(())
        })
    }
}
