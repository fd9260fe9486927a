//! Memory, exported and imported as opaque file descriptors.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;
#[allow(unused_imports, reason = "for links, also in the facade")]
use syncline_core::Error;
use syncline_core::backend::kit::{ImportFd, memory_refused, size_refused};
use syncline_core::{
    Result,
    handle::{HandleKind, MemoryContent, MemoryFd, MemoryInfo, Origin, Rejected},
    image::ImageInfo,
};

use crate::device::context::Owner;
use crate::device::deferred_free::Resource;
use crate::device::open::Device;
use crate::driver::table::Code;
use crate::memory::allocation::Allocation;
use crate::memory::buffer::{Buffer, whole_words};
use crate::memory::image::{Image, describe, require_place};

impl Device {
    /// Allocates uninitialized device memory, and exports a handle of it.
    ///
    /// A Vulkan device or another CUDA device of the same GPU imports the handle, in any process.
    /// Calls `cuMemCreate`, `cuMemMap` and `cuMemExportToShareableHandle`. The allocation has the
    /// driver's granularity, which is 2 MiB on current GPUs. The handle's
    /// [content](MemoryInfo::content) is a buffer of `size` bytes. The memory is not dedicated.
    /// Importers keep it when the buffer is dropped.
    ///
    /// Freeing it does not wait for work, unlike other memory. Work of your own that uses the
    /// [address](Buffer::pointer) must [keep](crate::Recorder::keep) the buffer.
    ///
    /// # Errors
    /// Same errors as [`Device::buffer`]. [`Error::Unsupported`] if the device exports no memory.
    pub fn export_buffer(&self, size: u64) -> Result<(Buffer, MemoryFd)> {
        self.require_export(HandleKind::MemoryOpaqueFd, "export a buffer")?;
        let wanted = whole_words(self.object(), size)?;
        // The driver makes such memory also for a lost context.
        self.inner().check_health()?;
        let context = self.context();
        let device = context.device()?;
        let granule = context.driver().granularity(device);
        let granule = granule.map_err(|code| context.error(code))?;
        let whole = wanted.checked_next_multiple_of(granule).ok_or_else(|| {
            let reason = format!("the driver makes memory in units of {granule} bytes");
            size_refused(self.object(), size, &reason)
        })?;
        let _bound = context.bind_outside_capture()?;
        let mut made = None;
        context.allocate(|driver| {
            made = Some(driver.make_mapped(device, whole)?);
            Ok(())
        })?;
        let Some((mapped, fd)) = made else {
            return Err(context.error(Code::not_supported("cuMemCreate")));
        };
        let (pointer, whole) = (mapped.address(), mapped.size());
        let resource = Resource::Mapped(mapped);
        // SAFETY: just mapped with at least this many bytes, and owned by nothing else.
        let buffer = unsafe { Buffer::new(&self.inner().device_ref(), pointer, size, resource) };
        // It has no memory type of Vulkan.
        let info = MemoryInfo::new(whole, MemoryContent::Buffer(size));
        // SAFETY: just exported, with these properties.
        let handle = unsafe { MemoryFd::from_fd(fd, Origin::of(self.info()), info) };
        Ok((buffer, handle))
    }

    /// Imports the memory of `handle`, in which buffers and images are mapped.
    ///
    /// Calls `cuImportExternalMemory`. `owner` is kept as long as a handle of the memory, or of a
    /// buffer or image in it. Submissions keep what they use. The owner may be dropped on a thread
    /// of Syncline.
    ///
    /// # Errors
    /// [`Error::CannotShare`] if the handle comes from another GPU, and [`Error::Unsupported`] if
    /// the device imports no memory. Both are checked before any driver call. A driver error. Each
    /// error returns the handle, still open.
    pub fn import_allocation(
        &self,
        handle: MemoryFd,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Allocation, Rejected<MemoryFd>> {
        let imported = self.import(&handle, owner);
        // The driver has taken a duplicate, so on success the original is closed here.
        imported.map_err(|error| Rejected { handle, error })
    }

    /// Imports the memory of `handle` as one buffer.
    ///
    /// The buffer has the size that the handle [says](MemoryInfo::content), or that of the memory
    /// for [`MemoryContent::Whole`].
    ///
    /// # Errors
    /// Same errors as [`Device::import_allocation`]. [`Error::Import`] for memory of an image.
    pub fn import_memory(&self, handle: MemoryFd) -> Result<Buffer, Rejected<MemoryFd>> {
        let length = match handle.info().content {
            MemoryContent::Buffer(length) => length,
            _ => handle.info().size,
        };
        let imported = self
            .require_made_for(&handle, None)
            .and_then(|()| self.import(&handle, None))
            .and_then(|allocation| allocation.map(0, length));
        imported.map_err(|error| Rejected { handle, error })
    }

    /// Imports the image of `handle`, which is alone in its memory or at the memory's beginning.
    ///
    /// Same as [`Allocation::image`] at the offset 0.
    ///
    /// # Errors
    /// Same errors as [`Device::import_allocation`] and [`Allocation::image`]. [`Error::Import`]
    /// for memory of another image.
    pub fn import_image(
        &self,
        handle: MemoryFd,
        info: &ImageInfo,
    ) -> Result<Image, Rejected<MemoryFd>> {
        let imported = describe(info, self.context().driver(), self.object())
            .and_then(|_| self.require_made_for(&handle, Some(*info)))
            .and_then(|()| require_place(self.object(), handle.info().size, 0, info))
            .and_then(|()| self.import(&handle, None))
            .and_then(|allocation| allocation.image(0, info));
        imported.map_err(|error| Rejected { handle, error })
    }

    /// Refuses memory that was made for another image than `image` (X9).
    fn require_made_for(&self, handle: &MemoryFd, image: Option<ImageInfo>) -> Result<()> {
        match handle.info().content {
            MemoryContent::Image(made) if image != Some(made) => {
                let reason = format!("it was made for the image {made:?}");
                Err(memory_refused(self.object(), handle, reason))
            }
            _ => Ok(()),
        }
    }

    /// Imports a duplicate of the descriptor.
    fn import(
        &self,
        handle: &MemoryFd,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Allocation> {
        self.require(handle.origin(), HandleKind::MemoryOpaqueFd, "memory")?;
        let refused = |reason| memory_refused(self.object(), handle, reason);
        let MemoryInfo {
            size,
            content,
            dedicated,
            ..
        } = handle.info();
        if let MemoryContent::Buffer(length) = content
            && length > size
        {
            return Err(refused(format!(
                "it is said to hold a buffer of {length} bytes"
            )));
        }
        let context = self.context();
        let _bound = context.bind_outside_capture()?;
        let (mut raw, mut no_duplicate) = (null_mut(), None);
        // Called again if memory was short. Each call uses a new duplicate, because the driver may
        // have closed the previous one.
        let imported = context.allocate(|driver| {
            let duplicate = match ImportFd::duplicate(handle) {
                Ok(duplicate) => duplicate,
                Err(error) => {
                    no_duplicate = Some(error);
                    return Err(Code::not_supported("cuImportExternalMemory"));
                }
            };
            let desc = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
                type_: sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                handle: sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 {
                    fd: duplicate.number(),
                },
                size,
                flags: match dedicated {
                    true => sys::CUDA_EXTERNAL_MEMORY_DEDICATED,
                    false => 0,
                },
                reserved: [0; 16],
            };
            // SAFETY: `MemoryFd` guarantees an opaque descriptor of memory of this size. It is
            // open, and belongs to this GPU, as checked above. On success the driver takes it and
            // writes one handle.
            unsafe { driver.import_external_memory(&raw mut raw, &raw const desc) }?;
            duplicate.taken();
            Ok(())
        });
        if let Some(error) = no_duplicate {
            return Err(refused(error.to_string()));
        }
        imported?;
        // SAFETY: just imported with these properties.
        Ok(unsafe { Allocation::imported(self, raw, handle.info(), Owner::new(owner)) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use syncline_core::handle::Origin;

    use super::*;
    use crate::driver::emulated::{self, freed, imported_files, memory_handles, refuse_map_after};

    /// Drivers close a rejected descriptor, and another file may reuse its number at once.
    #[test]
    fn a_second_try_uses_a_new_descriptor() {
        let device = emulated::device();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let inode = rustix::fs::fstat(&file).unwrap().st_ino;
        let mut info = MemoryInfo::new(64, MemoryContent::Buffer(64));
        info.dedicated = true;
        // SAFETY: the emulated driver does not use the memory.
        let handle = unsafe { MemoryFd::from_fd(file.into(), Origin::of(device.info()), info) };
        // A deferred free makes the import try again when memory is short.
        device
            .context()
            .deferred_frees()
            .add(Resource::Device(4_096), 4);
        emulated::refuse_memory(1);
        let imported = device.import_memory(handle);
        assert!(imported.is_ok());
        assert_eq!(imported_files(), [inode, inode]);
    }

    #[test]
    fn exported_memory_has_the_size_that_the_driver_makes() {
        let device = emulated::device();
        let (buffer, handle) = device.export_buffer(64).unwrap();
        let info = MemoryInfo::new(2 << 20, MemoryContent::Buffer(64));
        assert_eq!((buffer.size(), handle.info()), (64, info));
        assert_eq!(handle.origin(), &Origin::of(device.info()));
        // The mapping keeps the memory.
        assert_eq!(memory_handles(), 0);
        for size in [0, 6, u64::MAX - 3] {
            device.export_buffer(size).unwrap_err();
        }
        assert_eq!((memory_handles(), freed()), (0, vec![]));
        refuse_map_after(0);
        device.export_buffer(64).unwrap_err();
        assert_eq!(memory_handles(), 0);
        assert_eq!(freed().len(), 1, "the addresses");
    }

    #[test]
    fn a_driver_without_the_functions_exports_nothing() {
        let device = emulated::device_without_platform();
        let exports = &device.info().capabilities.exports;
        assert!(exports.is_empty(), "{exports:?}");
        let error = device.export_buffer(64).unwrap_err().to_string();
        assert!(
            error.contains("the driver has no cuMemGetAllocationGranularity"),
            "{error}"
        );
    }
}
