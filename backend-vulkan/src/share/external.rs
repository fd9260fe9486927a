//! Timelines and memory that leave and enter as opaque file descriptors
//! (`VK_KHR_external_semaphore_fd`, `VK_KHR_external_memory_fd`).
#![allow(
    unsafe_code,
    reason = "talks to the driver, and takes descriptors from it"
)]

use std::convert::Infallible;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use ash::{khr, vk};
use syncline_core::backend::Attachment;
use syncline_core::{
    Error, HandleKind, MemoryFd, Object, Origin, Rejected, Result, TimelineFd, WindowsHandle,
};

use crate::device::file_kind::FileKind;
use crate::device::open::{Device, Inner};
use crate::device::physical::SYNC_FILES_LIMIT;
use crate::driver::error::unsupported;
use crate::memory::buffer::{Buffer, Place};
use crate::timeline::port::Semaphore;

/// Makes handles of an exportable timeline, as many as there are importers.
#[derive(Clone)]
pub struct Exporter(Arc<Semaphore>);

impl Exporter {
    /// A new handle: `vkGetSemaphoreFdKHR`.
    ///
    /// # Errors
    /// A driver error.
    pub fn export(&self) -> Result<TimelineFd> {
        let device = self.0.device();
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(self.0.raw())
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        let functions = semaphore_functions(device, "export a timeline")?;
        // SAFETY: a live timeline semaphore, made for handles of this type.
        let fd = unsafe { functions.get_semaphore_fd(&info) };
        let fd = take(device, self.0.object(), "vkGetSemaphoreFdKHR", fd)?;
        // SAFETY: just exported, as a timeline of this device.
        Ok(unsafe { TimelineFd::from_fd(fd, Origin::of(&device.info)) })
    }
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exporter({})", self.0.object())
    }
}

impl Device {
    /// A fresh counter at `initial`, for a timeline with its home here, and a handle of it.
    ///
    /// # Errors
    /// As [`Device::exportable_port`] and [`Exporter::export`].
    pub fn export_timeline(&self, initial: u64) -> Result<(Attachment, TimelineFd)> {
        let (attachment, exporter) = self.exportable_port(initial)?;
        Ok((attachment, exporter.export()?))
    }

    /// A fresh counter at `initial`, for a timeline with its home here, and what makes handles of it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device does not export timelines; a driver error.
    pub fn exportable_port(&self, initial: u64) -> Result<(Attachment, Exporter)> {
        let exports = &self.info().capabilities.exports;
        self.require(exports, HandleKind::TimelineOpaqueFd, "export a timeline")?;
        let handle = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
        let semaphore = Semaphore::new(&self.0, initial, handle)?;
        Ok((semaphore.clone().attach(initial), Exporter(semaphore)))
    }

    /// The counter behind a handle: `vkImportSemaphoreFdKHR`. Its value is what the port polls.
    ///
    /// A binary semaphore's does not come in here:
    ///
    /// ```compile_fail,E0308
    /// # use syncline_vulkan::Device;
    /// # use syncline_core::BinaryFd;
    /// fn take(device: &Device, handle: BinaryFd) {
    ///     let _ = unsafe { device.import_timeline(handle) };
    /// }
    /// ```
    ///
    /// # Safety
    /// The signals of this counter have ever greater values, from this process, from other processes and from work that uses the
    /// semaphore itself (VUID-VkSemaphoreSignalInfo-value-03258, VUID-VkSubmitInfo-pSignalSemaphores-03242). One timeline sees to that for its
    /// signals, on whichever of its devices. Two timelines over one counter know nothing of each other.
    ///
    /// # Errors
    /// The handle, and: [`Error::CannotShare`], before the driver is asked, if it comes from another
    /// GPU or another driver; [`Error::Unsupported`] if the device does not import timelines;
    /// [`Error::Import`] if the driver refuses it.
    pub unsafe fn import_timeline(
        &self,
        handle: TimelineFd,
    ) -> Result<Attachment, Rejected<TimelineFd>> {
        let reject = |error, handle| Err(Rejected { handle, error });
        let semaphore = self
            .require_same("a timeline", handle.origin())
            .and_then(|()| {
                let imports = &self.info().capabilities.imports;
                self.require(imports, HandleKind::TimelineOpaqueFd, "import a timeline")?;
                let what = || format!("a timeline from {}", handle.origin());
                self.require_file_kind(handle.as_fd(), HandleKind::TimelineOpaqueFd, &what)?;
                Semaphore::new(&self.0, 0, vk::ExternalSemaphoreHandleTypeFlags::empty())
            });
        let semaphore = match semaphore {
            Ok(semaphore) => semaphore,
            Err(error) => return reject(error, handle),
        };
        let info = vk::ImportSemaphoreFdInfoKHR::default()
            .semaphore(semaphore.raw())
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD)
            .fd(handle.as_fd().as_raw_fd());
        let imported = semaphore_functions(&self.0, "import a timeline").and_then(|functions| {
            // SAFETY: an unused timeline semaphore, and by its type a handle of a timeline of the same driver.
            unsafe { functions.import_semaphore_fd(&info) }.map_err(|code| {
                let what = || format!("a timeline from {}", handle.origin());
                self.import_error("vkImportSemaphoreFdKHR", code, &what)
            })
        });
        match imported {
            Ok(()) => {
                // The driver owns it from now on.
                let _ = handle.into_fd().into_raw_fd();
                Ok(semaphore.attach_imported())
            }
            Err(error) => reject(error, handle),
        }
    }

    /// A buffer in dedicated device-local memory, and a handle of that memory: `vkGetMemoryFdKHR`.
    /// All usages of Vulkan 1.0 are among its uses, as an importer makes the same buffer.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device does not export memory, for a size of 0, and for a usage that is not one of Vulkan 1.0;
    /// a driver error.
    pub fn export_buffer(
        &self,
        size: u64,
        usage: vk::BufferUsageFlags,
    ) -> Result<(Buffer, MemoryFd)> {
        let asked = "export a buffer";
        let exports = &self.info().capabilities.exports;
        self.require(exports, HandleKind::MemoryOpaqueFd, asked)?;
        let buffer = self.make_buffer(size, usage, Place::Exportable)?;
        let memory = buffer.parts();
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(memory.memory)
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let functions = self
            .0
            .external_memory
            .as_ref()
            .ok_or_else(|| not_enabled(&self.0, asked, "VK_KHR_external_memory_fd"))?;
        // SAFETY: live memory, made for handles of this type.
        let fd = unsafe { functions.get_memory_fd(&info) };
        let fd = take(&self.0, &memory.object, "vkGetMemoryFdKHR", fd)?;
        let origin = Origin::of(self.info());
        // SAFETY: just exported, with these properties.
        let handle =
            unsafe { MemoryFd::from_fd(fd, origin, memory.allocated, size, memory.dedicated) };
        Ok((buffer, handle))
    }

    /// A buffer in the memory behind a handle, of the [length](MemoryFd::length) that the exported buffer has: `vkAllocateMemory` with
    /// `VkImportMemoryFdInfoKHR`. It is dedicated where the exported memory is, and its usages are all those of Vulkan 1.0.
    ///
    /// It [is shared](Buffer::is_exported) as the exported buffer is.
    ///
    /// # Errors
    /// The handle, still open, and: [`Error::CannotShare`], before the driver is asked, if it comes from another GPU or another
    /// driver; [`Error::Unsupported`] if the device does not import memory, or for a length of 0; [`Error::Import`] if the memory is too
    /// small for the buffer, if dedicated memory is not exactly as large as the buffer requires, or if the driver refuses it; a
    /// driver error.
    pub fn import_buffer(&self, handle: MemoryFd) -> Result<Buffer, Rejected<MemoryFd>> {
        let kind = HandleKind::MemoryOpaqueFd;
        let imported = self.require_same("memory", handle.origin()).and_then(|()| {
            let imports = &self.info().capabilities.imports;
            self.require(imports, kind, "import memory")?;
            self.require_memory(&handle)?;
            let usage = vk::BufferUsageFlags::empty();
            self.make_buffer(handle.length(), usage, Place::Imported(&handle))
        });
        // The driver has taken a duplicate, so on success ours is closed here.
        imported.map_err(|error| Rejected { handle, error })
    }

    /// Refuses a descriptor of another kind of file than the memory that this driver exports, as
    /// [`Device::require_file_kind`] does. Files of memory are as large as the allocation, or larger.
    fn require_memory(&self, handle: &MemoryFd) -> Result<()> {
        let refuse = |reason: String| Error::Import {
            object: self.object().clone(),
            what: format!("memory of {} bytes from {}", handle.size(), handle.origin()),
            reason,
        };
        if handle.length() > handle.size() {
            let length = handle.length();
            return Err(refuse(format!(
                "it is said to hold a buffer of {length} bytes"
            )));
        }
        let offered = FileKind::of(handle.as_fd()).map_err(|error| refuse(error.to_string()))?;
        let own = match self.0.memory_file_kind.get() {
            Some(own) => *own,
            None if self
                .info()
                .capabilities
                .exports
                .contains(&HandleKind::MemoryOpaqueFd) =>
            {
                let (_, own) = self.export_buffer(1, vk::BufferUsageFlags::empty())?;
                let own = FileKind::of(own.as_fd()).map_err(|error| refuse(error.to_string()))?;
                *self.0.memory_file_kind.get_or_init(|| own)
            }
            // Nothing to compare with.
            None => return Ok(()),
        };
        if !offered.matches(&own) {
            return Err(refuse(format!(
                "it is {offered}, and this driver's memory is {own}"
            )));
        }
        match offered.size() {
            Some(bytes) if bytes < handle.size() => Err(refuse(format!("it is {offered}"))),
            _ => Ok(()),
        }
    }

    /// Refuses a handle of Windows, whatever it holds: on this platform drivers know none.
    ///
    /// # Errors
    /// Always: the handle, and [`Error::Unsupported`] with the reason. The driver is not asked.
    pub fn import_windows<H: WindowsHandle>(&self, handle: H) -> Result<Infallible, Rejected<H>> {
        handle.refuse(self.object())
    }

    pub(crate) fn require(&self, has: &[HandleKind], kind: HandleKind, asked: &str) -> Result<()> {
        if has.contains(&kind) {
            return Ok(());
        }
        let limits = &self.info().capabilities.limits;
        let what = match kind {
            HandleKind::MemoryOpaqueFd => "sharing memory",
            HandleKind::BinaryOpaqueFd => "sharing binary semaphores",
            HandleKind::SyncFd => SYNC_FILES_LIMIT,
            _ => "sharing timelines",
        };
        let reason = limits
            .iter()
            .find(|(limit, _)| *limit == what)
            .map_or("the driver does not offer it", |(_, reason)| reason);
        Err(unsupported(self.object(), asked, reason))
    }

    /// Refuses descriptors of another kind of file than this driver's own exports, without asking the
    /// driver: NVIDIA's (580.159) answers a pipe or a socket with an error, but no exportable semaphore
    /// can be made on the device after that. What a right kind of file holds, nobody can tell.
    pub(crate) fn require_file_kind(
        &self,
        handle: BorrowedFd<'_>,
        kind: HandleKind,
        what: &dyn Fn() -> String,
    ) -> Result<()> {
        let refuse = |reason: String| Error::Import {
            object: self.object().clone(),
            what: what(),
            reason,
        };
        let offered = FileKind::of(handle).map_err(|error| {
            refuse(format!(
                "descriptor {} cannot be used: {error}",
                handle.as_raw_fd()
            ))
        })?;
        let known = match kind {
            HandleKind::BinaryOpaqueFd => &self.0.binary_file_kind,
            _ => &self.0.timeline_file_kind,
        };
        let own = match known.get() {
            Some(own) => own,
            None if self.info().capabilities.exports.contains(&kind) => {
                let own = match kind {
                    HandleKind::BinaryOpaqueFd => {
                        FileKind::of(self.binary_semaphore("")?.export()?.as_fd())
                    }
                    _ => FileKind::of(self.export_timeline(0)?.1.as_fd()),
                };
                let own = own.map_err(|error| refuse(error.to_string()))?;
                known.get_or_init(|| own)
            }
            // Nothing to compare with.
            None => return Ok(()),
        };
        if offered == *own {
            return Ok(());
        }
        Err(refuse(format!(
            "it is {offered}, and this driver's handles are {own}"
        )))
    }

    /// Opaque handles only fit the same physical device and the same driver build.
    pub(crate) fn require_same(&self, what: &'static str, origin: &Origin) -> Result<()> {
        let info = self.info();
        let reason = match (info.uuid, origin.uuid, info.driver_uuid, origin.driver_uuid) {
            (Some(ours), Some(theirs), ..) if ours != theirs => "they are different devices",
            (_, _, Some(ours), Some(theirs)) if ours != theirs => {
                "they run under different drivers"
            }
            (Some(_), Some(_), Some(_), Some(_)) => return Ok(()),
            _ => "the UUID of a device or driver is unknown",
        };
        Err(Error::CannotShare {
            left: describe(origin),
            right: describe(&Origin::of(info)),
            what,
            reason: reason.to_owned(),
        })
    }
}

/// Both sides of a refusal, with what they were compared by.
fn describe(origin: &Origin) -> String {
    match origin.driver_uuid {
        Some(driver) => format!("{origin}, driver {driver}"),
        None => format!("{origin}, driver unknown"),
    }
}

pub(crate) fn semaphore_functions<'d>(
    device: &'d Inner,
    asked: &str,
) -> Result<&'d khr::external_semaphore_fd::Device> {
    let functions = device.external_semaphores.as_ref();
    functions.ok_or_else(|| not_enabled(device, asked, "VK_KHR_external_semaphore_fd"))
}

fn not_enabled(device: &Inner, asked: &str, extension: &str) -> Error {
    let reason = format!("the device was made without {extension}");
    unsupported(&device.object, asked, reason)
}

/// A descriptor that the driver gave away.
pub(crate) fn take(
    device: &Inner,
    object: &Object,
    call: &'static str,
    fd: Result<RawFd, vk::Result>,
) -> Result<OwnedFd> {
    let fd = fd.map_err(|code| device.failed(object, call, code))?;
    if fd < 0 {
        return Err(device.failed(object, call, vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
    }
    // SAFETY: a fresh descriptor that the driver has given to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
