//! Sync files: one signal of a binary semaphore, out of it and into the next wait of another.
#![allow(
    unsafe_code,
    reason = "talks to the driver, and relies on what only the caller knows to be pending"
)]

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use ash::vk;
use syncline_core::{HandleKind, Rejected, Result, SyncFd};

use crate::driver::error::unsupported;
use crate::share::binary::BinarySemaphore;
use crate::share::external::semaphore_functions;
use crate::share::payload::Needs;

const TYPE: vk::ExternalSemaphoreHandleTypeFlags = vk::ExternalSemaphoreHandleTypeFlags::SYNC_FD;

impl BinarySemaphore {
    /// A sync file for the signal that is pending now, or has been made: `vkGetSemaphoreFdKHR`. The transference is by copy, so the semaphore is as after
    /// a wait: unsignalled, to be signalled again, which the handle does not show. Where the signal has been made already, drivers
    /// may give −1 ([`SyncFd::fd`] is `None`). Does not wait for the signal.
    ///
    /// See *Exporting Semaphore Payloads* and `VkSemaphoreGetFdInfoKHR` (VUIDs 01132 to 01135, 03253, 03254) in the Vulkan specification.
    ///
    /// # Errors
    /// [`Error::Unsupported`](syncline_core::Error::Unsupported) if the device exports no sync files, or the semaphore was not made for them;
    /// [`Error::PayloadInUse`](syncline_core::Error::PayloadInUse) if its payload is a temporary one, or a submission that waits for it has not
    /// finished; a driver error. The signal is not consumed then.
    ///
    /// # Safety
    /// As [`BinarySemaphore::pending`]: a signal of the semaphore is pending, or has been made, and nothing else waits for it.
    pub unsafe fn export_sync_fd(&self) -> Result<SyncFd> {
        let asked = "export a sync file";
        let device = self.device();
        device.require(
            &device.0.info.capabilities.exports,
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
            return Err(unsupported(self.object(), asked, reason));
        }
        let functions = semaphore_functions(&device.0, asked)?;
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(self.raw())
            .handle_type(TYPE);
        self.with_payload(Needs::NoWait, asked, |_| {
            // SAFETY: a live binary semaphore, made for handles of this type, whose signal is pending or made by this function's contract.
            let fd = unsafe { functions.get_semaphore_fd(&info) }
                .map_err(|code| device.0.failed(self.object(), "vkGetSemaphoreFdKHR", code))?;
            // SAFETY: a fresh descriptor that the driver has given to us alone.
            let fd = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
            // SAFETY: just exported as one.
            Ok(unsafe { SyncFd::from_driver(fd) })
        })
    }

    /// Replaces the payload for one wait by the signal that a sync file holds: `vkImportSemaphoreFdKHR` with
    /// `VK_SEMAPHORE_IMPORT_TEMPORARY_BIT`, which sync files are always imported with (VUID-VkImportSemaphoreFdInfoKHR-handleType-07307). The next
    /// wait consumes that signal, which counts as pending, and the semaphore then has its permanent payload back. −1 is a signal already made. Does
    /// not wait for the signal.
    ///
    /// # Errors
    /// The handle, and: [`Error::Unsupported`](syncline_core::Error::Unsupported) with the reason, if the device imports no sync files (a host
    /// device makes a fence of them, which queues of every device can wait for);
    /// [`Error::PayloadInUse`](syncline_core::Error::PayloadInUse) if a temporary payload is there already, or a submission that signals or waits for
    /// the semaphore has not finished; [`Error::Import`](syncline_core::Error::Import) if the driver refuses it. Nothing has changed then.
    pub fn import_sync_fd(&self, handle: SyncFd) -> Result<(), Rejected<SyncFd>> {
        let asked = "import a sync file";
        let device = self.device();
        let imports = &device.0.info.capabilities.imports;
        let imported = device
            .require(imports, HandleKind::SyncFd, asked)
            .and_then(|()| {
                let fd = handle.fd().map_or(-1, |fd| fd.as_raw_fd());
                let what = || "a sync file".to_owned();
                // SAFETY: by its type a sync file, or the −1 that stands for one.
                unsafe { self.replace(HandleKind::SyncFd, TYPE, fd, asked, &what) }
            });
        match imported {
            Ok(()) => {
                // The driver owns it from now on.
                let _ = handle.into_fd().map(IntoRawFd::into_raw_fd);
                Ok(())
            }
            Err(error) => Err(Rejected { handle, error }),
        }
    }
}
