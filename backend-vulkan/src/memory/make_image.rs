//! Makes images: what the driver can share, and where a `VkImage` is bound.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::sync::Arc;

use ash::vk;
use syncline_core::image::{ImageInfo, ImageType, ImageUsage};
use syncline_core::{Error, Result};

use crate::device::open::Device;
use crate::memory::allocation::{Allocation, MemoryKind};
use crate::memory::image::Image;
use crate::memory::unbound::{Needs, Resource, Unbound};

/// What a `VkImage` is created with.
fn create_info(info: &ImageInfo) -> vk::ImageCreateInfo<'static> {
    let (image_type, flags) = match info.image_type {
        ImageType::D1 => (vk::ImageType::TYPE_1D, vk::ImageCreateFlags::empty()),
        ImageType::D3 => (vk::ImageType::TYPE_3D, vk::ImageCreateFlags::empty()),
        ImageType::Cube => (
            vk::ImageType::TYPE_2D,
            vk::ImageCreateFlags::CUBE_COMPATIBLE,
        ),
        _ => (vk::ImageType::TYPE_2D, vk::ImageCreateFlags::empty()),
    };
    let transfers = vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST;
    vk::ImageCreateInfo::default()
        .flags(flags)
        .image_type(image_type)
        .format(vk::Format::from_raw(
            info.format.to_vk().try_into().unwrap_or_default(),
        ))
        .extent(vk::Extent3D {
            width: info.extent.width,
            height: info.extent.height,
            depth: info.extent.depth,
        })
        .mip_levels(info.levels)
        .array_layers(info.layers)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(vk::ImageTiling::OPTIMAL)
        .usage(transfers | vk::ImageUsageFlags::from_raw(info.usage.bits()))
        .sharing_mode(vk::SharingMode::EXCLUSIVE)
        .initial_layout(vk::ImageLayout::UNDEFINED)
}

/// A `VkImage` without memory.
struct UnboundImage<'d> {
    unbound: Unbound<'d>,
    raw: vk::Image,
    info: ImageInfo,
}

impl UnboundImage<'_> {
    /// Calls `vkCreateImage`, and asks what memory the image needs.
    ///
    /// `is_import` says whether the memory is imported, rather than exported.
    ///
    /// # Errors
    /// [`Error::Unsupported`] that names a field of `VkImageCreateInfo`. A driver error.
    fn new<'d>(device: &'d Device, info: &ImageInfo, is_import: bool) -> Result<UnboundImage<'d>> {
        let inner = device.inner();
        inner.require_maker()?;
        info.check_within_vulkan(device.object())?;
        let mut external = vk::ExternalMemoryImageCreateInfo::default()
            .handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let create = create_info(info);
        let dedicated_only = device.require_image(info, &create, is_import)?;
        let create = create.push_next(&mut external);
        // SAFETY: `create` is valid. The driver has said that it shares such images as these
        // handles.
        let raw = unsafe { inner.raw().create_image(&create, None) };
        let raw = raw.map_err(|code| inner.failed(inner.object(), "vkCreateImage", code))?;
        // SAFETY: just created on this device.
        let mut unbound = unsafe { Unbound::new(device, Resource::Image(raw)) };
        if dedicated_only {
            unbound.require_dedicated();
        }
        let info = *info;
        Ok(UnboundImage { unbound, raw, info })
    }

    /// Binds it to the memory at `at`.
    ///
    /// # Safety
    /// Same as [`Unbound::bind`].
    unsafe fn bind(self, allocation: Allocation, at: u64, is_import: bool) -> Result<Image> {
        // SAFETY: the caller guarantees it.
        unsafe { self.unbound.bind(&allocation, at) }?;
        let place = at..at + self.unbound.needs().memory().size;
        let image = Image::made(allocation, self.raw, place, self.info, is_import);
        self.unbound.into_bound();
        Ok(image)
    }
}

impl Device {
    /// Makes an image in an allocation of its own. Does not consume an imported handle.
    pub(crate) fn make_image(&self, info: &ImageInfo, kind: MemoryKind<'_>) -> Result<Image> {
        let is_import = matches!(kind, MemoryKind::Imported(..));
        let made = UnboundImage::new(self, info, is_import)?;
        let allocation = made.unbound.allocate(kind)?;
        // SAFETY: allocated just now, for this image, on this device.
        unsafe { made.bind(allocation, 0, is_import) }
    }

    /// Asks the driver whether it has and shares such images.
    ///
    /// Returns true if they need dedicated memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] that names the field and the limit. A driver error.
    fn require_image(
        &self,
        info: &ImageInfo,
        create: &vk::ImageCreateInfo<'_>,
        is_import: bool,
    ) -> Result<bool> {
        use vk::ExternalMemoryFeatureFlags as Features;
        let refuse = |field: String, reason: String| {
            let asked = format!("share an image with {field}");
            Error::unsupported(self.object(), asked, reason)
        };
        let asked = vk::PhysicalDeviceImageFormatInfo2::default()
            .format(create.format)
            .ty(create.image_type)
            .tiling(create.tiling)
            .usage(create.usage)
            .flags(create.flags);
        let ask = |asked: &vk::PhysicalDeviceImageFormatInfo2<'_>,
                   found: &mut vk::ImageFormatProperties2<'_>| {
            // SAFETY: all structures are valid, and the physical device is of this instance.
            unsafe {
                self.instance()
                    .get_physical_device_image_format_properties2(self.physical(), asked, found)
            }
        };
        let mut handle_type = vk::PhysicalDeviceExternalImageFormatInfo::default()
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        // Lavapipe needs the answer's structure whenever it is asked for handles.
        let mut handles = vk::ExternalImageFormatProperties::default();
        let mut found = vk::ImageFormatProperties2::default().push_next(&mut handles);
        let answer = ask(&asked.push_next(&mut handle_type), &mut found);
        let most = found.image_format_properties;
        let handles = handles.external_memory_properties.external_memory_features;
        let refused = vk::Result::ERROR_FORMAT_NOT_SUPPORTED;
        let shares = match answer {
            Ok(()) => handles.contains(match is_import {
                true => Features::IMPORTABLE,
                false => Features::EXPORTABLE,
            }),
            // Perhaps the driver has such images, and only does not share them.
            Err(code) if code == refused => {
                match ask(&asked, &mut vk::ImageFormatProperties2::default()) {
                    Err(code) if code == refused => {
                        let field = format!(
                            "imageType {:?}, format {:?}, usage {:?}",
                            info.image_type, info.format, info.usage
                        );
                        let reason = "the driver has no such images in VK_IMAGE_TILING_OPTIMAL";
                        return Err(refuse(field, reason.into()));
                    }
                    _ => false,
                }
            }
            Err(code) => {
                let call = "vkGetPhysicalDeviceImageFormatProperties2";
                return Err(self.inner().failed(self.object(), call, code));
            }
        };
        if !shares {
            let reason = "the driver does not share such images as opaque file descriptors";
            return Err(refuse(format!("format {:?}", info.format), reason.into()));
        }
        let (extent, mut largest) = (info.extent, most.max_extent);
        let attachment = ImageUsage::COLOR_ATTACHMENT
            | ImageUsage::DEPTH_ATTACHMENT
            | ImageUsage::INPUT_ATTACHMENT;
        if info.usage.intersects(attachment) {
            // VUID-VkImageCreateInfo-usage-00964 and 00965.
            // SAFETY: the physical device of this instance.
            let device = unsafe {
                self.instance()
                    .get_physical_device_properties(self.physical())
            };
            let limits = device.limits;
            largest.width = largest.width.min(limits.max_framebuffer_width);
            largest.height = largest.height.min(limits.max_framebuffer_height);
        }
        for (field, count, most) in [
            ("extent.width", extent.width, largest.width),
            ("extent.height", extent.height, largest.height),
            ("extent.depth", extent.depth, most.max_extent.depth),
            ("mipLevels", info.levels, most.max_mip_levels),
            ("arrayLayers", info.layers, most.max_array_layers),
        ] {
            if count > most {
                let reason = format!("the driver has at most {most}");
                return Err(refuse(format!("{field} {count}"), reason));
            }
        }
        let (size, most) = (info.size(), most.max_resource_size);
        if size > most {
            let vk::Extent3D {
                width,
                height,
                depth,
            } = create.extent;
            let field = format!(
                "extent {width}×{height}×{depth}, mipLevels {}, arrayLayers {}, format {:?}",
                info.levels, info.layers, info.format
            );
            let reason = format!("it has {size} bytes, and maxResourceSize is {most}");
            return Err(refuse(field, reason));
        }
        Ok(handles.contains(Features::DEDICATED_ONLY))
    }
}

impl Allocation {
    /// Creates a `VkImage` at `offset` in shared memory, like that of [`Device::export_image`].
    ///
    /// The offset is a multiple of the image's alignment and of `bufferImageGranularity`. Other
    /// images and buffers may be in the same allocation. What is put behind the image begins at a
    /// multiple of `bufferImageGranularity`, which is not checked.
    ///
    /// # Errors
    /// The errors of [`Device::export_image`] for such images. [`Error::Unsupported`] for memory
    /// that is not shared or is dedicated, a memory type that such an image cannot have, an offset
    /// that is not aligned, and for an image that needs more bytes than there are behind the
    /// offset.
    pub fn image(&self, offset: u64, info: &ImageInfo) -> Result<Image> {
        let device = self.device();
        device.inner().require_maker()?;
        let refuse = |reason| self.refuse_image(offset, reason);
        if !self.is_shared() {
            return Err(refuse(NOT_SHARED.into()));
        }
        let is_import = !self.is_exportable();
        let made = UnboundImage::new(&device, info, is_import)?;
        // SAFETY: the physical device is of this instance.
        let properties = unsafe {
            let physical = device.physical();
            device.instance().get_physical_device_properties(physical)
        };
        let granularity = properties.limits.buffer_image_granularity;
        if !offset.is_multiple_of(granularity) {
            let reason = format!("bufferImageGranularity is {granularity}");
            return Err(refuse(reason));
        }
        made.unbound.fits(self, offset).map_err(refuse)?;
        // SAFETY: as checked: the memory type, the size and the alignment. It is not dedicated.
        unsafe { made.bind(self.clone(), offset, is_import) }
    }

    /// Adopts a `VkImage` that the application has bound to this memory at `offset`.
    ///
    /// Calls `vkGetImageMemoryRequirements2`. Syncline never destroys it. `owner` is kept as long
    /// as a handle of the image lives, and while a submission uses it. It may be dropped on a
    /// thread of Syncline.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an image that cannot be shared
    /// ([`ImageInfo::check_within_vulkan`]), for memory that is not shared, and if the driver says
    /// that such an image cannot be at this offset. [`Error::MadeBeforeFork`] in a forked child.
    ///
    /// # Safety
    /// * `image` belongs to the same `VkDevice`, and is bound to this memory at `offset`. It lives
    ///   until its owner is dropped; without one, as long as the
    ///   [adopted](Device::adopt_allocation) memory.
    /// * It was created with the properties of `info`, which include `VK_IMAGE_TILING_OPTIMAL` and
    ///   `VK_SHARING_MODE_EXCLUSIVE`, with the usages for transfers, and with
    ///   `VkExternalMemoryImageCreateInfo` for opaque file descriptors. It has no other usages and
    ///   flags, because the other side maps the memory as an image with these.
    /// * A first submission here that [keeps](crate::Contents::Keep) its contents finds it in
    ///   `VK_IMAGE_LAYOUT_GENERAL`, released to `VK_QUEUE_FAMILY_EXTERNAL`.
    pub unsafe fn adopt_image(
        &self,
        image: vk::Image,
        offset: u64,
        info: &ImageInfo,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Image> {
        self.inner().require_maker()?;
        info.check_within_vulkan(self.object())?;
        let refuse = |reason| self.refuse_image(offset, reason);
        if !self.is_shared() {
            return Err(refuse(NOT_SHARED.into()));
        }
        let resource = Resource::Image(image);
        // SAFETY: the caller guarantees that it is an image of this device.
        let needs = unsafe { Needs::of(resource, self.inner()) };
        needs.fits(resource, self, offset).map_err(refuse)?;
        let place = offset..offset + needs.memory().size;
        Ok(Image::adopted(self, image, place, *info, owner))
    }

    fn refuse_image(&self, offset: u64, reason: String) -> Error {
        let asked = format!("hold an image at offset {offset}");
        Error::unsupported(self.object(), asked, reason)
    }
}

/// The reason why an allocation holds no images.
const NOT_SHARED: &str = "it can neither be exported nor was it imported";

#[cfg(test)]
mod tests {
    use syncline_core::image::Format;

    use super::*;

    /// The name of a format in the Vulkan headers, without `VK_FORMAT_`.
    fn name_in_vulkan(format: Format) -> String {
        let own = format!("{format:?}");
        // `Rgba8Unorm` has the texel `RGBA8` and the kind of numbers `UNORM`.
        let at = own.rfind(char::is_uppercase).unwrap_or_default();
        let (texel, kind) = (own[..at].to_uppercase(), own[at..].to_uppercase());
        let bits = texel.trim_start_matches(char::is_alphabetic);
        if format.is_compressed() {
            format!("{}_{kind}_BLOCK", texel.replace("RGBA", "_RGBA"))
        } else if bits.parse::<u32>().is_ok() {
            let channels = texel.trim_end_matches(char::is_numeric).chars();
            let channels: String = channels.map(|channel| format!("{channel}{bits}")).collect();
            format!("{channels}_{kind}")
        } else {
            format!("{texel}_{kind}_PACK32")
        }
    }

    #[test]
    fn a_format_has_the_number_of_its_name() {
        for format in Format::ALL {
            let info = create_info(&ImageInfo::d2(*format, 1, 1, ImageUsage::empty()));
            assert_eq!(format!("{:?}", info.format), name_in_vulkan(*format));
        }
    }

    #[test]
    fn a_usage_has_the_bit_of_its_name() {
        use vk::ImageUsageFlags as Vulkan;
        let pairs = [
            (ImageUsage::SAMPLED, Vulkan::SAMPLED),
            (ImageUsage::STORAGE, Vulkan::STORAGE),
            (ImageUsage::COLOR_ATTACHMENT, Vulkan::COLOR_ATTACHMENT),
            (
                ImageUsage::DEPTH_ATTACHMENT,
                Vulkan::DEPTH_STENCIL_ATTACHMENT,
            ),
            (ImageUsage::INPUT_ATTACHMENT, Vulkan::INPUT_ATTACHMENT),
        ];
        assert_eq!(pairs.len(), ImageUsage::all().iter().count());
        for (own, vulkan) in pairs {
            assert_eq!(own.bits(), vulkan.as_raw());
        }
    }
}
