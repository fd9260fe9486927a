//! Memory that one device exports and another one imports.

#[cfg(all(feature = "cuda", feature = "vulkan"))]
use std::sync::Arc;

use syncline_core::Result;
use syncline_core::backend::Device as _;
use syncline_core::handle::{HandleKind, MemoryFd};
#[cfg(feature = "vulkan")]
use syncline_core::image::ImageInfo;

use crate::any::Device;
#[cfg(feature = "vulkan")]
use crate::any_image::Image;
use crate::buffer::Buffer;
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::negotiate::Mechanism;
#[cfg(feature = "vulkan")]
use crate::shared_buffer::STORAGE;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// A device that makes memory for others, or imports it.
#[derive(Clone, Copy)]
pub(crate) enum Side<'d> {
    #[cfg(feature = "cuda")]
    Cuda(&'d cuda::Device),
    #[cfg(feature = "vulkan")]
    Vulkan(&'d vulkan::Device),
}

impl<'d> Side<'d> {
    const fn of(device: &'d Device) -> Option<Self> {
        match device {
            Device::Host(_) => None,
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => Some(Self::Cuda(device)),
            #[cfg(feature = "vulkan")]
            Device::Vulkan(device) => Some(Self::Vulkan(device)),
        }
    }

    fn export(self, size: u64) -> Result<(Buffer, MemoryFd)> {
        Ok(match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => {
                let (buffer, handle) = device.export_buffer(size)?;
                (Buffer::Cuda(buffer), handle)
            }
            #[cfg(feature = "vulkan")]
            Self::Vulkan(device) => {
                let (buffer, handle) = device.export_buffer(size)?;
                (Buffer::Vulkan(buffer), handle)
            }
        })
    }

    fn import(self, handle: MemoryFd) -> Result<Buffer> {
        Ok(match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => Buffer::Cuda(device.import_memory(handle)?),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(device) => Buffer::Vulkan(device.import_buffer(handle)?),
        })
    }
}

/// Export of memory by one device and import by another device of the same GPU.
pub(crate) struct Pass<'d> {
    from: Side<'d>,
    to: Side<'d>,
}

impl<'d> Pass<'d> {
    /// `None` if `from` cannot export memory that `to` can import.
    pub(crate) fn of(mechanism: Mechanism, from: &'d Device, to: &'d Device) -> Option<Self> {
        let kind = &HandleKind::MemoryOpaqueFd;
        let (ours, theirs) = (from.info(), to.info());
        let can = from.id() != to.id()
            && ours.same_gpu(theirs)
            && ours.capabilities.exports.contains(kind)
            && theirs.capabilities.imports.contains(kind);
        let (from, to) = (Side::of(from)?, Side::of(to)?);
        let fits = match (from, to) {
            #[cfg(feature = "cuda")]
            (Side::Cuda(_), Side::Cuda(_)) => true,
            #[cfg(feature = "vulkan")]
            (Side::Vulkan(_), Side::Vulkan(_)) => ours.driver_uuid == theirs.driver_uuid,
            #[cfg(all(feature = "cuda", feature = "vulkan"))]
            (Side::Vulkan(_), Side::Cuda(_)) | (Side::Cuda(_), Side::Vulkan(_)) => {
                mechanism == Mechanism::ExternalTimeline
            }
        };
        let _ = mechanism;
        (can && fits).then_some(Self { from, to })
    }

    /// Allocates the memory. Returns the exporter's and the importer's view of it.
    pub(crate) fn make(&self, size: u64) -> Result<(Buffer, Buffer)> {
        let (exported, handle) = self.from.export(size)?;
        Ok((exported, self.to.import(handle)?))
    }

    /// True if CUDA makes the memory, in units of 2 MiB. Vulkan takes less for a small buffer.
    pub(crate) const fn is_made_by_cuda(&self) -> bool {
        match self.from {
            #[cfg(feature = "cuda")]
            Side::Cuda(_) => true,
            #[cfg(feature = "vulkan")]
            Side::Vulkan(_) => false,
        }
    }

    /// Imports the whole allocation, and makes the importer's view of each of the buffers in it.
    #[cfg(feature = "vulkan")]
    pub(crate) fn import(
        &self,
        allocation: &vulkan::Allocation,
        buffers: &[vulkan::Buffer],
    ) -> Result<Vec<Buffer>> {
        match self.to {
            #[cfg(feature = "cuda")]
            Side::Cuda(to) => {
                let exporter = Some(Arc::new(allocation.clone()) as _);
                let whole = to.import_allocation(allocation.export()?, exporter)?;
                let view = |of: &vulkan::Buffer| whole.buffer(of.offset_in_allocation(), of.size());
                buffers
                    .iter()
                    .map(|of| Ok(Buffer::Cuda(view(of)?)))
                    .collect()
            }
            Side::Vulkan(to) => {
                let whole = to.import_allocation_of(allocation)?;
                let view = |of: &vulkan::Buffer| {
                    whole.range(of.offset_in_allocation(), of.size(), STORAGE)
                };
                buffers
                    .iter()
                    .map(|of| Ok(Buffer::Vulkan(view(of)?)))
                    .collect()
            }
        }
    }

    /// Makes an image. Returns the exporter's and the importer's view of it.
    ///
    /// `None` if the exporter is not Vulkan, which alone makes images.
    #[cfg(feature = "vulkan")]
    pub(crate) fn make_image(&self, info: &ImageInfo) -> Result<Option<(Image, Image)>> {
        #[allow(irrefutable_let_patterns, reason = "refutable with CUDA")]
        let Side::Vulkan(from) = self.from else {
            return Ok(None);
        };
        self.check_image(info)?;
        let (exported, handle) = from.export_image(info)?;
        let imported = match self.to {
            #[cfg(feature = "cuda")]
            Side::Cuda(to) => Image::Cuda(to.import_image(handle, info)?),
            Side::Vulkan(to) => {
                // Takes a handle of its own: both images know of each other then.
                drop(handle);
                Image::Vulkan(to.import_image_of(&exported)?)
            }
        };
        Ok(Some((Image::Vulkan(exported), imported)))
    }

    /// Refuses an image that CUDA does not share, before Vulkan makes it.
    #[cfg(feature = "vulkan")]
    fn check_image(&self, info: &ImageInfo) -> Result<()> {
        match self.to {
            #[cfg(feature = "cuda")]
            Side::Cuda(to) => info.check(to.object()),
            Side::Vulkan(to) => info.check_within_vulkan(to.object()),
        }
    }

    /// Imports the memory of an image of the application, and makes the importer's view of it.
    #[cfg(feature = "vulkan")]
    pub(crate) fn import_image(&self, image: &vulkan::Image) -> Result<Image> {
        self.check_image(image.info())?;
        Ok(match self.to {
            #[cfg(feature = "cuda")]
            Side::Cuda(to) => {
                let exporter = Some(Arc::new(image.allocation().clone()) as _);
                let whole = to.import_allocation(image.export()?, exporter)?;
                Image::Cuda(whole.image(image.offset_in_allocation(), image.info())?)
            }
            Side::Vulkan(to) => Image::Vulkan(to.import_image_of(image)?),
        })
    }

    pub(crate) const fn how(&self) -> &'static str {
        match (self.from, self.to) {
            #[cfg(all(feature = "cuda", feature = "vulkan"))]
            (Side::Vulkan(_), Side::Cuda(_)) => {
                "device memory exported by Vulkan, imported by CUDA"
            }
            #[cfg(feature = "vulkan")]
            (Side::Vulkan(_), Side::Vulkan(_)) => {
                "device memory exported by one VkDevice, imported by the other"
            }
            #[cfg(all(feature = "cuda", feature = "vulkan"))]
            (Side::Cuda(_), Side::Vulkan(_)) => {
                "device memory exported by CUDA, imported by Vulkan"
            }
            #[cfg(feature = "cuda")]
            (Side::Cuda(_), Side::Cuda(_)) => {
                "device memory exported by one CUDA device, imported by the other"
            }
        }
    }
}
