//! Sync files: exporting the signal of a binary semaphore, and importing it into another.
#![allow(
    unsafe_code,
    reason = "talks to the driver; only the caller knows that a signal is pending"
)]

use std::os::fd::{FromRawFd, OwnedFd};

use ash::vk;
use syncline_core::backend::kit::ImportFd;
use syncline_core::{
    Error, Result,
    handle::{HandleKind, Rejected, SyncFd},
};

use crate::share::binary::BinarySemaphore;
use crate::timeline::raw_binary::Needs;

const TYPE: vk::ExternalSemaphoreHandleTypeFlags = vk::ExternalSemaphoreHandleTypeFlags::SYNC_FD;

impl BinarySemaphore {
    /// Exports a sync file of the signal that is pending or already made.
    ///
    /// Calls `vkGetSemaphoreFdKHR` and does not wait for the signal. Sync files have copy
    /// transference: the semaphore is afterwards in the same state as after a wait. It is
    /// unsignalled and can be signalled again, which does not affect the handle. For a signal that
    /// was already made, drivers may return −1 ([`SyncFd::fd`] is `None`).
    ///
    /// See *Exporting Semaphore Payloads* and `VkSemaphoreGetFdInfoKHR` (VUIDs 01132 to 01135,
    /// 03253, 03254) in the Vulkan specification.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device exports no sync files, or the semaphore was not made
    /// for them. [`Error::PayloadInUse`] if it has a temporary payload, or if a submission that
    /// waits for it has not finished. A driver error. The signal is not consumed then.
    ///
    /// # Safety
    /// Same as [`BinarySemaphore::pending`]: a signal of the semaphore is pending or already made,
    /// and nothing else waits for it.
    pub unsafe fn export_sync_fd(&self) -> Result<SyncFd> {
        let asked = "export a sync file";
        let device = self.device();
        device.require_kind(
            &device.info().capabilities.exports,
            HandleKind::SyncFd,
            asked,
        )?;
        if !self.exports().contains(TYPE) {
            let reason = if self.exports().is_empty() {
                "it was made elsewhere; export it there"
            } else {
                "it was made for opaque descriptors, which this driver does not combine with sync files; make it with \
                 Device::exportable_binary for these"
            };
            return Err(Error::unsupported(self.object(), asked, reason));
        }
        let functions = device.inner().external().semaphores(asked)?;
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(self.raw())
            .handle_type(TYPE);
        self.inner().with_payload(Needs::NoWait, asked, |_| {
            // SAFETY: a live binary semaphore, made for handles of this type. The caller guarantees
            // that its signal is pending or made.
            let fd = unsafe { functions.get_semaphore_fd(&info) }.map_err(|code| {
                device
                    .inner()
                    .failed(self.object(), "vkGetSemaphoreFdKHR", code)
            })?;
            // SAFETY: a new descriptor, which nothing else owns.
            let fd = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
            // SAFETY: just exported as a sync file.
            Ok(unsafe { SyncFd::from_driver(fd) })
        })
    }

    /// Imports the signal of a sync file as a temporary payload, for one wait.
    ///
    /// Calls `vkImportSemaphoreFdKHR` with `VK_SEMAPHORE_IMPORT_TEMPORARY_BIT`, which sync files
    /// require (VUID-VkImportSemaphoreFdInfoKHR-handleType-07307). The signal counts as pending,
    /// and −1 stands for a signal that was already made. The next wait consumes the signal. Then
    /// the semaphore has its permanent payload back. Does not wait for the signal.
    ///
    /// # Errors
    /// Each error returns the handle, and the semaphore is unchanged:
    ///
    /// * [`Error::Unsupported`] with the reason, if the device imports no sync files. A host device
    ///   makes a fence of a sync file, and queues of every device can wait for that fence.
    /// * [`Error::PayloadInUse`] if the semaphore has a temporary payload already, or if a
    ///   submission that signals or waits for it has not finished.
    /// * [`Error::Import`] if the driver refuses the handle.
    pub fn import_sync_fd(&self, handle: SyncFd) -> Result<(), Rejected<SyncFd>> {
        let asked = "import a sync file";
        let device = self.device();
        let imports = &device.info().capabilities.imports;
        let imported = device
            .require_kind(imports, HandleKind::SyncFd, asked)
            .and_then(|()| {
                let what = || "a sync file".to_owned();
                let fd = handle.fd();
                let fd = fd.as_ref().map(|fd| device.duplicate(fd, &what));
                let fd = fd.transpose()?;
                let number = fd.as_ref().map_or(-1, ImportFd::number);
                // SAFETY: the handle's type guarantees a sync file, or −1 for a signal that was
                // made.
                unsafe { self.replace(HandleKind::SyncFd, TYPE, number, asked, &what) }?;
                if let Some(fd) = fd {
                    fd.taken();
                }
                Ok(())
            });
        // The driver has taken a duplicate, so on success the original is closed here.
        imported.map_err(|error| Rejected { handle, error })
    }
}
