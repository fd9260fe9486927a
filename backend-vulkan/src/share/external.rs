//! Timelines exported and imported as opaque file descriptors, and checks of all handles.
//!
//! Uses `VK_KHR_external_semaphore_fd`.
#![allow(
    unsafe_code,
    reason = "talks to the driver, and owns descriptors from it"
)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ash::vk;
use syncline_core::backend::kit::ImportFd;
use syncline_core::backend::{Attachment, Sharing};
use syncline_core::{
    Error, Result,
    error::Object,
    handle::{HandleKind, Origin, Rejected, TimelineFd},
};

use crate::device::file_kind::FileKind;
use crate::device::open::Device;
use crate::timeline::semaphore::Semaphore;

/// Exports handles of one timeline. Each importer takes its own handle.
#[derive(Clone)]
pub struct Exporter(Arc<Semaphore>);

impl Exporter {
    /// Exports a new handle with `vkGetSemaphoreFdKHR`.
    ///
    /// # Errors
    /// A driver error.
    pub fn export(&self) -> Result<TimelineFd> {
        let fd = self.0.export()?;
        // SAFETY: just exported, from a timeline semaphore of this device.
        Ok(unsafe { TimelineFd::from_fd(fd, Origin::of(self.0.device().info())) })
    }
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exporter({})", self.0.object())
    }
}

impl Device {
    /// Creates a timeline semaphore at `initial`, as a home port, and exports a handle of it.
    ///
    /// # Errors
    /// Same errors as [`Device::exportable_port`] and [`Exporter::export`].
    pub fn export_timeline(&self, initial: u64) -> Result<(Attachment, TimelineFd)> {
        let (attachment, exporter) = self.exportable_port(initial)?;
        Ok((attachment, exporter.export()?))
    }

    /// Creates a timeline semaphore at `initial`, as a home port, and an exporter of its handles.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device does not export timelines, or a driver error.
    pub fn exportable_port(&self, initial: u64) -> Result<(Attachment, Exporter)> {
        let exports = &self.info().capabilities.exports;
        self.require_kind(exports, HandleKind::TimelineOpaqueFd, "export a timeline")?;
        let handle = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
        let semaphore = Semaphore::new(self.inner(), initial, handle)?;
        Ok((semaphore.clone().attach(initial), Exporter(semaphore)))
    }

    /// Imports the timeline semaphore of `handle` as a port of this device.
    ///
    /// Calls `vkImportSemaphoreFdKHR`. The timeline then takes the semaphore's value.
    ///
    /// The handle of a binary semaphore does not compile here:
    ///
    /// ```compile_fail,E0308
    /// # use syncline_vulkan::Device;
    /// # use syncline_core::handle::BinaryFd;
    /// fn take(device: &Device, handle: BinaryFd) {
    ///     let _ = unsafe { device.import_timeline(handle) };
    /// }
    /// ```
    ///
    /// # Safety
    /// All signals of this semaphore have increasing values, including signals from other processes
    /// and from work that uses the semaphore directly (VUID-VkSemaphoreSignalInfo-value-03258,
    /// VUID-VkSubmitInfo-pSignalSemaphores-03242). One timeline ensures this for its own signals on
    /// all its devices. Two timelines over one semaphore do not know of each other.
    ///
    /// # Errors
    /// [`Error::CannotShare`] if the handle comes from another GPU or another driver, and
    /// [`Error::Unsupported`] if the device imports no timelines. Both are checked before any
    /// driver call. [`Error::Import`] if the driver refuses the handle. Each error returns the
    /// handle, still open.
    pub unsafe fn import_timeline(
        &self,
        handle: TimelineFd,
    ) -> Result<Attachment, Rejected<TimelineFd>> {
        let what = || format!("a timeline from {}", handle.origin());
        let imported = self
            .require_same_driver("a timeline", handle.origin())
            .and_then(|()| {
                let asked = "import a timeline";
                let (imports, kind) = (
                    &self.info().capabilities.imports,
                    HandleKind::TimelineOpaqueFd,
                );
                self.require_kind(imports, kind, asked)?;
                let export = || Ok(self.export_timeline(0)?.1.into_fd());
                self.require_file_kind(handle.as_fd(), kind, &what, export)?;
                let no_handle = vk::ExternalSemaphoreHandleTypeFlags::empty();
                let semaphore = Semaphore::new(self.inner(), 0, no_handle)?;
                let fd = self.duplicate(&handle, &what)?;
                let info = vk::ImportSemaphoreFdInfoKHR::default()
                    .semaphore(semaphore.raw())
                    .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD)
                    .fd(fd.number());
                let functions = self.inner().external().semaphores(asked)?;
                // SAFETY: an unused timeline semaphore. The handle's type guarantees a timeline
                // semaphore, and `require_same_driver` has checked that it is of the same driver.
                unsafe { functions.import_semaphore_fd(&info) }
                    .map_err(|code| self.import_error("vkImportSemaphoreFdKHR", code, &what))?;
                fd.taken();
                let native = self.inner().native();
                native.note_semaphore(semaphore.raw(), true);
                Ok(semaphore.attach_imported())
            });
        // The driver has taken a duplicate, so on success the original is closed here.
        imported.map_err(|error| Rejected { handle, error })
    }

    /// Duplicates a handle of `what` for an import.
    ///
    /// # Errors
    /// [`Error::Import`] with the system's reason.
    pub(crate) fn duplicate<'h>(
        &self,
        handle: &'h impl AsFd,
        what: &dyn Fn() -> String,
    ) -> Result<ImportFd<'h>> {
        ImportFd::duplicate(handle)
            .map_err(|error| Error::import(self.object(), what(), error.to_string()))
    }

    pub(crate) fn require_kind(
        &self,
        has: &[HandleKind],
        kind: HandleKind,
        asked: &str,
    ) -> Result<()> {
        if has.contains(&kind) {
            return Ok(());
        }
        let limits = &self.info().capabilities.limits;
        let of_kind = |limit: &str| limit.trim_start_matches("sharing ") == kind.carries();
        let reason = limits
            .iter()
            .find(|(limit, _)| of_kind(limit))
            .map_or("the driver does not offer it", |(_, reason)| reason);
        Err(Error::unsupported(self.object(), asked, reason))
    }

    /// Refuses a descriptor of another kind of file than this driver exports, without a driver
    /// call.
    ///
    /// NVIDIA's driver (580.159) returns an error for a pipe or a socket, but the device can create
    /// no exportable semaphore after that. The content of a file of the right kind cannot be
    /// checked. `export` exports a handle of `kind`, to compare with.
    pub(crate) fn require_file_kind(
        &self,
        handle: BorrowedFd<'_>,
        kind: HandleKind,
        what: &dyn Fn() -> String,
        export: impl FnOnce() -> Result<OwnedFd>,
    ) -> Result<()> {
        let refuse = |reason: String| Error::import(self.object(), what(), reason);
        let offered = FileKind::of(handle).map_err(|error| {
            refuse(format!(
                "descriptor {} cannot be used: {error}",
                handle.as_raw_fd()
            ))
        })?;
        if !self.info().capabilities.exports.contains(&kind) {
            // The driver exports no handle to compare with.
            return Ok(());
        }
        let own = self.inner().external().file_kinds().get_or_find(kind, || {
            let own = export()?;
            FileKind::of(own.as_fd()).map_err(|error| refuse(error.to_string()))
        })?;
        if offered == own {
            return Ok(());
        }
        Err(refuse(format!(
            "it is {offered}, and this driver's handles are {own}"
        )))
    }

    /// Refuses a handle of another physical device or another driver build.
    ///
    /// Opaque handles are valid only on the same physical device and driver build.
    pub(crate) fn require_same_driver(&self, what: &'static str, origin: &Origin) -> Result<()> {
        let info = self.info();
        let reason = match (info.uuid, origin.uuid, info.driver_uuid, origin.driver_uuid) {
            (Some(ours), Some(theirs), ..) if ours != theirs => DIFFERENT_DEVICES,
            (_, _, Some(ours), Some(theirs)) if ours != theirs => {
                "they run under different drivers"
            }
            (Some(_), Some(_), Some(_), Some(_)) => return Ok(()),
            _ => UNKNOWN,
        };
        Err(self.not_shared(what, origin, reason))
    }

    /// Refuses a handle of another physical device. For exporters whose driver has no UUID.
    pub(crate) fn require_same_gpu(&self, what: &'static str, origin: &Origin) -> Result<()> {
        match (self.info().uuid, origin.uuid) {
            (Some(ours), Some(theirs)) if ours == theirs => Ok(()),
            (Some(_), Some(_)) => Err(self.not_shared(what, origin, DIFFERENT_DEVICES)),
            _ => Err(self.not_shared(what, origin, UNKNOWN)),
        }
    }

    fn not_shared(&self, what: &'static str, origin: &Origin, reason: &str) -> Error {
        let own = describe(&Origin::of(self.info()));
        Error::cannot_share(describe(origin), own, what, reason, None)
    }
}

const DIFFERENT_DEVICES: &str = "they are different devices";
const UNKNOWN: &str = "the UUID of a device or driver is unknown";

// SAFETY: `exportable_port` makes a semaphore, and the handles are exported from it and given to
// the caller alone. The attachment is of that semaphore. The `Info` is what the driver tells.
unsafe impl Sharing for Device {
    fn name(&self) -> &Object {
        self.object()
    }

    fn export_timeline(
        &self,
        initial: u64,
        handles: usize,
    ) -> Result<(Attachment, Vec<TimelineFd>)> {
        let (attachment, exporter) = self.exportable_port(initial)?;
        let handles = (0..handles).map(|_| exporter.export());
        Ok((attachment, handles.collect::<Result<_>>()?))
    }

    unsafe fn import_timeline(
        &self,
        handle: TimelineFd,
    ) -> Result<Attachment, Rejected<TimelineFd>> {
        // SAFETY: this method has the same contract.
        unsafe { self.import_timeline(handle) }
    }
}

/// The text of one side of a refusal: the origin and its driver.
fn describe(origin: &Origin) -> String {
    match origin.driver_uuid {
        Some(driver) => format!("{origin}, driver {driver}"),
        None => format!("{origin}, driver unknown"),
    }
}
