//! Private images, in memory of the crate `gpu-allocator`.

#![allow(unsafe_code, reason = "images are raw Vulkan, as in an application")]

use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use syncline::backend::Device as _;
use syncline::{Error, Result, vulkan};

/// Device memory for images.
pub struct Memory {
    allocator: Mutex<Allocator>,
    /// Dropped after the allocator, which uses it.
    pub(crate) device: vulkan::Device,
}

impl Memory {
    /// Memory of `device`.
    ///
    /// # Errors
    /// Those of the allocator.
    pub fn new(device: &vulkan::Device) -> Result<Arc<Self>> {
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: device.instance().clone(),
            device: device.raw().clone(),
            physical_device: device.physical(),
            debug_settings: Default::default(),
            buffer_device_address: false,
            allocation_sizes: Default::default(),
        });
        Ok(Arc::new(Self {
            allocator: Mutex::new(allocator.map_err(Error::work)?),
            device: device.clone(),
        }))
    }

    /// An error for a refused call.
    pub(crate) fn refused(&self, call: &'static str) -> impl Fn(vk::Result) -> Error {
        let object = self.device.object().clone();
        move |code| Error::native(&object, call, code.as_raw().into(), format!("{code:?}"))
    }
}

/// An image with one view of all of it.
pub struct Image {
    memory: Arc<Memory>,
    allocation: Option<Allocation>,
    /// The image.
    pub raw: vk::Image,
    pub(crate) view: vk::ImageView,
}

impl Image {
    /// An image without contents.
    pub(crate) fn new(
        memory: &Arc<Memory>,
        format: vk::Format,
        size: [u32; 2],
        usage: vk::ImageUsageFlags,
    ) -> Result<Self> {
        let raw = memory.device.raw();
        // After a failure, dropping it destroys the objects made so far.
        let mut image = Self {
            memory: memory.clone(),
            allocation: None,
            raw: vk::Image::null(),
            view: vk::ImageView::null(),
        };
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(format)
            .extent(vk::Extent3D {
                width: size[0],
                height: size[1],
                depth: 1,
            })
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .usage(usage);
        // SAFETY: the structure is valid.
        image.raw =
            unsafe { raw.create_image(&info, None) }.map_err(memory.refused("vkCreateImage"))?;
        // SAFETY: the image is of this device.
        let requirements = unsafe { raw.get_image_memory_requirements(image.raw) };
        let mut allocator = memory
            .allocator
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let allocation = allocator.allocate(&AllocationCreateDesc {
            name: "scene",
            requirements,
            location: MemoryLocation::GpuOnly,
            linear: false,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        });
        drop(allocator);
        let allocation = image.allocation.insert(allocation.map_err(Error::work)?);
        // SAFETY: the range is for this image alone, and is freed after it.
        unsafe { raw.bind_image_memory(image.raw, allocation.memory(), allocation.offset()) }
            .map_err(memory.refused("vkBindImageMemory"))?;
        // SAFETY: the image is bound.
        image.view = unsafe { view(memory, image.raw, format) }?;
        Ok(image)
    }
}

/// A view of a whole image with one level and one layer.
///
/// # Safety
/// The image is of the device of `memory`, has this format, and is bound.
pub(crate) unsafe fn view(
    memory: &Memory,
    image: vk::Image,
    format: vk::Format,
) -> Result<vk::ImageView> {
    let info = vk::ImageViewCreateInfo::default()
        .image(image)
        .view_type(vk::ImageViewType::TYPE_2D)
        .format(format)
        .subresource_range(whole(format));
    // SAFETY: see above.
    unsafe { memory.device.raw().create_image_view(&info, None) }
        .map_err(memory.refused("vkCreateImageView"))
}

/// The only level and layer.
pub fn whole(format: vk::Format) -> vk::ImageSubresourceRange {
    let aspect = match format {
        vk::Format::D16_UNORM => vk::ImageAspectFlags::DEPTH,
        _ => vk::ImageAspectFlags::COLOR,
    };
    vk::ImageSubresourceRange {
        aspect_mask: aspect,
        level_count: 1,
        layer_count: 1,
        ..Default::default()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let raw = self.memory.device.raw();
        // SAFETY: submissions that use the image have kept it; null handles are ignored.
        unsafe {
            raw.destroy_image_view(self.view, None);
            raw.destroy_image(self.raw, None);
        }
        if let Some(allocation) = self.allocation.take() {
            let allocator = self.memory.allocator.lock();
            // It fails only for an allocation of another allocator.
            let _ = allocator
                .unwrap_or_else(PoisonError::into_inner)
                .free(allocation);
        }
    }
}
