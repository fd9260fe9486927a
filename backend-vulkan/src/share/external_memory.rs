//! Memory of buffers and images, exported and imported as opaque file descriptors.
//!
//! Uses `VK_KHR_external_memory_fd`.
#![allow(
    unsafe_code,
    reason = "talks to the driver, and owns descriptors from it"
)]

use std::os::fd::AsFd;

use ash::vk;
use syncline_core::backend::kit::memory_refused;
use syncline_core::{
    Error, Result,
    handle::{HandleKind, MemoryContent, MemoryFd, MemoryInfo, Origin, Rejected},
    image::ImageInfo,
};

use crate::device::file_kind::FileKind;
use crate::device::open::Device;
use crate::memory::allocation::{Allocation, MemoryKind};
use crate::memory::buffer::Buffer;
use crate::memory::image::Image;
use crate::memory::memory_type::is_made_by_cuda;

impl Allocation {
    /// Exports a handle of the memory, with `vkGetMemoryFdKHR`.
    ///
    /// The handle's [content](MemoryInfo::content) is [`MemoryContent::Whole`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the memory was not allocated for export, or is dedicated: see
    /// [`Device::export_buffer`] and [`Device::export_image`]. A driver error.
    /// [`Error::MadeBeforeFork`] in a forked child.
    pub fn export(&self) -> Result<MemoryFd> {
        if self.is_dedicated() {
            let reason = "it is for one resource alone, which importers would have to make again";
            return Err(Error::unsupported(self.object(), "export memory", reason));
        }
        self.export_with(MemoryContent::Whole)
    }

    /// Same as [`Allocation::export`], for memory that was made for `content`.
    fn export_with(&self, content: MemoryContent) -> Result<MemoryFd> {
        let (asked, inner) = ("export memory", self.inner());
        if !self.is_exportable() {
            let reason = "it was not allocated for export";
            return Err(Error::unsupported(self.object(), asked, reason));
        }
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(self.raw())
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let functions = inner.external().memory(asked)?;
        // SAFETY: live memory, allocated for handles of this type.
        let fd = unsafe { functions.get_memory_fd(&info) };
        let fd = inner.own_fd(self.object(), "vkGetMemoryFdKHR", fd)?;
        let origin = Origin::of(inner.info());
        let mut info = MemoryInfo::new(self.size(), content);
        info.dedicated = self.is_dedicated();
        info.memory_type = u8::try_from(self.memory_type()).ok();
        // SAFETY: just exported, and the memory has these properties. Dedicated memory is that of
        // `Device::export_buffer`, or of an image with these properties.
        Ok(unsafe { MemoryFd::from_fd(fd, origin, info) })
    }
}

impl Image {
    /// Exports a handle of the image's memory, with `vkGetMemoryFdKHR`.
    ///
    /// If the memory is for this image alone, the handle says so ([`MemoryContent::Image`]), and
    /// goes to [`Device::import_image`] or to CUDA's. Otherwise it is the handle of the whole
    /// [allocation](Allocation::export), in which an importer makes the image again at
    /// [its offset](Image::offset_in_allocation).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the memory was not allocated for export. A driver error.
    /// [`Error::MadeBeforeFork`] in a forked child.
    pub fn export(&self) -> Result<MemoryFd> {
        let memory = self.allocation();
        memory.export_with(match memory.is_dedicated() {
            true => MemoryContent::Image(*self.info()),
            false => MemoryContent::Whole,
        })
    }
}

impl Device {
    /// Creates a buffer in dedicated device-local memory, and exports a handle of that memory.
    ///
    /// Calls `vkGetMemoryFdKHR`. The buffer has all usages of Vulkan 1.0, because an importer must
    /// create an identical buffer. For other usages, adopt a buffer of your own:
    /// [`Device::adopt_allocation`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device exports no memory. Same errors as
    /// [`Device::host_buffer`].
    pub fn export_buffer(&self, size: u64) -> Result<(Buffer, MemoryFd)> {
        let asked = "export a buffer";
        let exports = &self.info().capabilities.exports;
        self.require_kind(exports, HandleKind::MemoryOpaqueFd, asked)?;
        let usage = vk::BufferUsageFlags::empty();
        let buffer = self.make_buffer(size, usage, MemoryKind::Exportable)?;
        let handle = buffer
            .allocation()
            .export_with(MemoryContent::Buffer(size))?;
        Ok((buffer, handle))
    }

    /// Imports the memory of `handle` as one buffer.
    ///
    /// Calls `vkAllocateMemory` with `VkImportMemoryFdInfoKHR`. The buffer has the size that the
    /// handle [says](MemoryInfo::content), or that of the memory for [`MemoryContent::Whole`]. It
    /// has all usages of Vulkan 1.0. Its memory is dedicated if the exported memory is. Queue
    /// family ownership is transferred as for the exported buffer: see [`Buffer::is_shared`].
    /// Memory that CUDA has made is imported with a memory type of this device, a device-local one
    /// if there is one.
    ///
    /// # Errors
    /// [`Error::CannotShare`] if the handle comes from another GPU or another driver, and
    /// [`Error::Unsupported`] if the device imports no memory. Both are checked before any driver
    /// call. [`Error::Unsupported`] unless the length is a positive multiple of 4.
    /// [`Error::Import`] if the memory is too small for the buffer, or if the driver refuses the
    /// handle. Also if dedicated memory has another size than the buffer requires, or is
    /// [`MemoryContent::Whole`], and for memory of an image. A driver error. Each error returns the
    /// handle, still open.
    pub fn import_buffer(&self, handle: MemoryFd) -> Result<Buffer, Rejected<MemoryFd>> {
        let imported = self.require_memory(&handle).and_then(|()| {
            let length = match handle.info().content {
                MemoryContent::Image(_) => {
                    let reason = "it was made for an image: import that image";
                    return Err(memory_refused(self.object(), &handle, reason));
                }
                MemoryContent::Buffer(length) => length,
                _ if handle.info().dedicated => {
                    let reason =
                        "it was made for one resource alone, which the handle does not say";
                    return Err(memory_refused(self.object(), &handle, reason));
                }
                // `MemoryContent::Whole`.
                _ => handle.info().size,
            };
            let usage = vk::BufferUsageFlags::empty();
            self.make_buffer(length, usage, MemoryKind::Imported(&handle, None))
        });
        // The driver has taken a duplicate, so on success the original is closed here.
        imported.map_err(|error| Rejected { handle, error })
    }

    /// Creates an image in dedicated device-local memory, and exports a handle of that memory.
    ///
    /// Calls `vkGetMemoryFdKHR`. The image has the tiling `VK_IMAGE_TILING_OPTIMAL`, the sharing
    /// mode `VK_SHARING_MODE_EXCLUSIVE`, the usages of `info`, and those for transfers. For other
    /// images, adopt an image of your own: [`Allocation::adopt_image`]. Its contents are undefined.
    /// So the first submission that acquires it discards them. CUDA takes no image with both levels
    /// and layers ([`ImageInfo::check`]).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device exports no memory. Also if such an image cannot be
    /// shared ([`ImageInfo::check_within_vulkan`]), or if the driver has or exports no such image.
    /// The error names the field of `VkImageCreateInfo`. A driver error.
    pub fn export_image(&self, info: &ImageInfo) -> Result<(Image, MemoryFd)> {
        let exports = &self.info().capabilities.exports;
        self.require_kind(exports, HandleKind::MemoryOpaqueFd, "export an image")?;
        let image = self.make_image(info, MemoryKind::Exportable)?;
        let handle = image.export()?;
        Ok((image, handle))
    }

    /// Creates an identical image in the memory of `handle`.
    ///
    /// Calls `vkAllocateMemory` with `VkImportMemoryFdInfoKHR`. The image is acquired and released
    /// as the exported one.
    ///
    /// # Errors
    /// Same errors as [`Device::import_buffer`]. [`Error::Import`] unless the handle was exported
    /// for an image with equal properties. The errors of [`Device::export_image`] for such images.
    /// Each error returns the handle, still open.
    pub fn import_image(
        &self,
        handle: MemoryFd,
        info: &ImageInfo,
    ) -> Result<Image, Rejected<MemoryFd>> {
        let imported = self.import_alone(&handle, info, None);
        // The driver has taken a duplicate, so on success the original is closed here.
        imported.map_err(|error| Rejected { handle, error })
    }

    fn import_alone(
        &self,
        handle: &MemoryFd,
        info: &ImageInfo,
        exporter: Option<&Allocation>,
    ) -> Result<Image> {
        self.require_memory(handle)?;
        let reason = match handle.info().content {
            MemoryContent::Image(made) if made == *info => {
                return self.make_image(info, MemoryKind::Imported(handle, exporter));
            }
            MemoryContent::Image(made) => format!("it was made for another image: {made:?}"),
            _ => "it was not made for an image".into(),
        };
        Err(memory_refused(self.object(), handle, reason))
    }

    /// Exports the memory of an image of another `VkDevice` of this process, and imports it here.
    ///
    /// The import keeps the image's allocation, and so the owner of adopted memory.
    ///
    /// # Errors
    /// Same errors as [`Image::export`], [`Device::import_image`] and [`Allocation::image`].
    pub fn import_image_of(&self, image: &Image) -> Result<Image> {
        let (allocation, info) = (image.allocation(), image.info());
        let imported = match allocation.is_dedicated() {
            true => self.import_alone(&image.export()?, info, Some(allocation))?,
            false => {
                let imported = self.import_allocation_of(allocation)?;
                imported.image(image.offset_in_allocation(), info)?
            }
        };
        Ok(imported.imported_of(image))
    }

    /// Imports memory that holds several buffers and images.
    ///
    /// Calls `vkAllocateMemory` with `VkImportMemoryFdInfoKHR`. [`Allocation::buffer`] and
    /// [`Allocation::image`] make what is in the memory again.
    ///
    /// # Errors
    /// Same errors as [`Device::import_buffer`]. [`Error::Import`] for dedicated memory, which
    /// `import_buffer` or `import_image` takes. Each error returns the handle, still open.
    pub fn import_allocation(&self, handle: MemoryFd) -> Result<Allocation, Rejected<MemoryFd>> {
        let imported = self.import_for(&handle, None);
        // The driver has taken a duplicate, so on success the original is closed here.
        imported.map_err(|error| Rejected { handle, error })
    }

    /// Exports memory of another `VkDevice` of this process, and imports it here.
    ///
    /// The import keeps `allocation`, and so the owner of adopted memory.
    ///
    /// # Errors
    /// Same errors as [`Allocation::export`] and [`Device::import_allocation`].
    pub fn import_allocation_of(&self, allocation: &Allocation) -> Result<Allocation> {
        self.import_for(&allocation.export()?, Some(allocation))
    }

    fn import_for(&self, handle: &MemoryFd, exporter: Option<&Allocation>) -> Result<Allocation> {
        self.require_memory(handle)?;
        if handle.info().dedicated {
            let reason = "it was made for one resource alone: import that buffer or image";
            return Err(memory_refused(self.object(), handle, reason));
        }
        let (size, kind) = (handle.info().size, MemoryKind::Imported(handle, exporter));
        let memory_type = self.imported_type(handle, || self.types_of_shared_buffers())?;
        // SAFETY: buffers are checked when they are bound. The memory type is the exporter's, or
        // one of theirs.
        unsafe { Allocation::allocate(self, size, memory_type, None, kind) }
    }

    /// Refuses memory of another GPU or driver, or what is no memory.
    ///
    /// CUDA's driver has no UUID. It is the same driver if the GPU is the same, and then its
    /// descriptors are of the same kind.
    fn require_memory(&self, handle: &MemoryFd) -> Result<()> {
        self.inner().require_maker()?;
        if is_made_by_cuda(handle) {
            self.require_same_gpu("memory", handle.origin())?;
        } else {
            self.require_same_driver("memory", handle.origin())?;
        }
        let imports = &self.info().capabilities.imports;
        self.require_kind(imports, HandleKind::MemoryOpaqueFd, "import memory")?;
        self.require_memory_file(handle)
    }

    /// Refuses a descriptor of another kind of file than this driver exports for memory.
    ///
    /// See [`Device::require_file_kind`]. A regular file with memory is at least as large as the
    /// allocation.
    fn require_memory_file(&self, handle: &MemoryFd) -> Result<()> {
        let refuse = |reason: String| {
            Error::import(
                self.object(),
                format!(
                    "memory of {} bytes from {}",
                    handle.info().size,
                    handle.origin()
                ),
                reason,
            )
        };
        if let MemoryContent::Buffer(length) = handle.info().content
            && length > handle.info().size
        {
            return Err(refuse(format!(
                "it is said to hold a buffer of {length} bytes"
            )));
        }
        let offered = FileKind::of(handle.as_fd()).map_err(|error| refuse(error.to_string()))?;
        let kind = HandleKind::MemoryOpaqueFd;
        if !self.info().capabilities.exports.contains(&kind) {
            // The driver exports no handle to compare with.
            return Ok(());
        }
        let own = self.inner().external().file_kinds().get_or_find(kind, || {
            let (_, own) = self.export_buffer(4)?;
            FileKind::of(own.as_fd()).map_err(|error| refuse(error.to_string()))
        })?;
        if !offered.matches(&own) {
            return Err(refuse(format!(
                "it is {offered}, and this driver's memory is {own}"
            )));
        }
        match offered.size() {
            Some(bytes) if bytes < handle.info().size => Err(refuse(format!("it is {offered}"))),
            _ => Ok(()),
        }
    }
}
