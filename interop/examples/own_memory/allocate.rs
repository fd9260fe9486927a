//! What an engine's allocator does, by hand.

use std::sync::Arc;

use syncline::image::{ImageInfo, ImageType};
use syncline::vulkan;
use syncline::vulkan::ash::vk;

use crate::adopt::Block;

const HANDLES: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

/// Frees the memory, the buffers and the image when Syncline uses them no more.
struct Owned {
    device: vulkan::Device,
    memory: vk::DeviceMemory,
    buffers: Vec<vk::Buffer>,
    image: vk::Image,
}

impl Drop for Owned {
    fn drop(&mut self) {
        let raw = self.device.raw();
        // SAFETY: made by `allocate`. Syncline keeps this until nothing uses them.
        unsafe {
            self.buffers
                .iter()
                .for_each(|buffer| raw.destroy_buffer(*buffer, None));
            raw.destroy_image(self.image, None);
            raw.free_memory(self.memory, None);
        }
    }
}

/// Makes buffers of these sizes and an image, and one block of memory for all of them.
pub(crate) fn allocate(
    device: &vulkan::Device,
    sizes: &[u64],
    picture: &ImageInfo,
) -> Result<Block, vk::Result> {
    let raw = device.raw();
    let mut owned = Owned {
        device: device.clone(),
        memory: vk::DeviceMemory::null(),
        buffers: Vec::new(),
        image: vk::Image::null(),
    };
    let (mut buffers, mut end, mut allowed) = (Vec::new(), 0_u64, u32::MAX);
    for &size in sizes {
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HANDLES);
        let info = vk::BufferCreateInfo::default()
            .size(size)
            .usage(vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST)
            .push_next(&mut external);
        // SAFETY: a valid description.
        let buffer = unsafe { raw.create_buffer(&info, None) }?;
        owned.buffers.push(buffer);
        // SAFETY: just created.
        let needs = unsafe { raw.get_buffer_memory_requirements(buffer) };
        let offset = end.next_multiple_of(needs.alignment);
        buffers.push((buffer, offset, size));
        (end, allowed) = (offset + needs.size, allowed & needs.memory_type_bits);
    }
    // SAFETY: the physical device of this instance.
    let (limits, types) = unsafe {
        let (instance, physical) = (device.instance(), device.physical());
        let properties = instance.get_physical_device_properties(physical);
        let types = instance.get_physical_device_memory_properties(physical);
        (properties.limits, types)
    };
    owned.image = image(raw, picture)?;
    // SAFETY: just created.
    let needs = unsafe { raw.get_image_memory_requirements(owned.image) };
    let offset = end
        .next_multiple_of(limits.buffer_image_granularity)
        .next_multiple_of(needs.alignment);
    (end, allowed) = (offset + needs.size, allowed & needs.memory_type_bits);

    let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
    let is_local = |index: u32| {
        types.memory_types[index as usize]
            .property_flags
            .contains(local)
    };
    let fits = |index: &u32| allowed & (1 << index) != 0 && is_local(*index);
    let memory_type = (0..types.memory_type_count).find(fits);
    let memory_type = memory_type.ok_or(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)?;
    let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(HANDLES);
    let info = vk::MemoryAllocateInfo::default()
        .allocation_size(end)
        .memory_type_index(memory_type)
        .push_next(&mut export);
    // SAFETY: a memory type that the buffers and the image allow.
    owned.memory = unsafe { raw.allocate_memory(&info, None) }?;
    // SAFETY: aligned, within the memory, and of a type that they allow.
    unsafe {
        for &(buffer, offset, _) in &buffers {
            raw.bind_buffer_memory(buffer, owned.memory, offset)?;
        }
        raw.bind_image_memory(owned.image, owned.memory, offset)?;
    }
    Ok(Block {
        memory: owned.memory,
        size: end,
        memory_type,
        images: vec![(owned.image, offset, *picture)],
        owner: Arc::new(owned),
        buffers,
    })
}

/// An image with these properties, the usages for transfers, and nothing else.
fn image(raw: &vulkan::ash::Device, picture: &ImageInfo) -> Result<vk::Image, vk::Result> {
    let mut external = vk::ExternalMemoryImageCreateInfo::default().handle_types(HANDLES);
    let transfers = vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST;
    let (image_type, flags) = match picture.image_type {
        ImageType::D1 => (vk::ImageType::TYPE_1D, vk::ImageCreateFlags::empty()),
        ImageType::D3 => (vk::ImageType::TYPE_3D, vk::ImageCreateFlags::empty()),
        ImageType::Cube => (
            vk::ImageType::TYPE_2D,
            vk::ImageCreateFlags::CUBE_COMPATIBLE,
        ),
        _ => (vk::ImageType::TYPE_2D, vk::ImageCreateFlags::empty()),
    };
    let info = vk::ImageCreateInfo::default()
        .flags(flags)
        .image_type(image_type)
        .format(vk::Format::from_raw(picture.format.to_vk() as i32))
        .extent(vk::Extent3D {
            width: picture.extent.width,
            height: picture.extent.height,
            depth: picture.extent.depth,
        })
        .mip_levels(picture.levels)
        .array_layers(picture.layers)
        .samples(vk::SampleCountFlags::TYPE_1)
        .usage(transfers | vk::ImageUsageFlags::from_raw(picture.usage.bits()))
        .push_next(&mut external);
    // SAFETY: a valid description.
    unsafe { raw.create_image(&info, None) }
}
