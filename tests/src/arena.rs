//! Memory that an application has allocated in Vulkan, as engines do.
#![allow(unsafe_code, reason = "an application's own memory is raw")]

use std::sync::{Arc, Weak};

use syncline::Error;
use syncline::image::ImageInfo;
use syncline::vulkan::ash::vk;
use syncline::vulkan::{AllocationInfo, Buffer, Device, Image};

use crate::case::Stop;

/// The size of each buffer.
pub(crate) const BYTES: u64 = 64 << 10;

/// Memory of an application with two buffers, behind a gap, and perhaps an image behind them.
pub(crate) struct Arena {
    device: Device,
    memory: vk::DeviceMemory,
    info: AllocationInfo,
    /// Each with its offset. They have [`BYTES`] bytes.
    buffers: Vec<(vk::Buffer, u64)>,
    image: Option<(vk::Image, u64)>,
}

impl Arena {
    /// Allocates as an engine does: two buffers, then memory for both, by hand.
    pub(crate) fn new(device: &Device) -> Result<Self, Stop> {
        Self::make(device, 2, None)
    }

    /// Adopts an image of two dimensions, behind two buffers or `alone` in its memory.
    ///
    /// `described` are its properties, or a lie. The image keeps the arena.
    pub(crate) fn image(
        device: &Device,
        info: ImageInfo,
        described: &ImageInfo,
        alone: bool,
    ) -> Result<(Image, Weak<Self>), Stop> {
        let arena = Arc::new(Self::make(device, if alone { 0 } else { 2 }, Some(info))?);
        let Some((image, offset)) = arena.image else {
            return Stop::fail("the arena has no image");
        };
        let (is_dropped, memory) = (Arc::downgrade(&arena), arena.memory);
        let info = arena.info;
        // SAFETY: the arena owns it, was allocated like that, and is the owner.
        let allocation = unsafe { device.adopt_allocation(memory, &info, Some(arena)) }?;
        // SAFETY: bound to this memory, with these properties.
        let image = unsafe { allocation.adopt_image(image, offset, described, None) }?;
        Ok((image, is_dropped))
    }

    /// Without buffers the memory is dedicated to the image.
    fn make(device: &Device, buffers: usize, image: Option<ImageInfo>) -> Result<Self, Stop> {
        let raw = device.raw();
        let handles = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let failed = |code: vk::Result| Stop::from(Error::work(code));
        let mut made = Self {
            device: device.clone(),
            memory: vk::DeviceMemory::null(),
            info: AllocationInfo {
                size: 0,
                memory_type: 0,
                dedicated: buffers == 0,
                exportable: true,
            },
            buffers: vec![(vk::Buffer::null(), 0); buffers],
            image: None,
        };
        let (mut allowed, mut end) = (u32::MAX, 4096 * buffers as u64);
        for (buffer, offset) in &mut made.buffers {
            let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(handles);
            let info = vk::BufferCreateInfo::default()
                .size(BYTES)
                .usage(vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST)
                .push_next(&mut external);
            // SAFETY: a valid description, of exclusive sharing mode.
            *buffer = unsafe { raw.create_buffer(&info, None) }.map_err(failed)?;
            // SAFETY: just created.
            let needs = unsafe { raw.get_buffer_memory_requirements(*buffer) };
            allowed &= needs.memory_type_bits;
            *offset = u64::next_multiple_of(end, needs.alignment);
            end = *offset + needs.size;
        }
        if let Some(info) = image {
            let raw_image = exclusive_image(device, &info).map_err(failed)?;
            // From here on dropping `made` destroys it.
            let (_, offset) = made.image.insert((raw_image, 0));
            // SAFETY: just created.
            let needs = unsafe { raw.get_image_memory_requirements(raw_image) };
            allowed &= needs.memory_type_bits;
            // SAFETY: the physical device of this instance.
            let limits = unsafe {
                let instance = device.instance();
                instance.get_physical_device_properties(device.physical())
            };
            let granularity = limits.limits.buffer_image_granularity;
            *offset = end
                .next_multiple_of(granularity)
                .next_multiple_of(needs.alignment);
            end = *offset + needs.size;
        }
        // The importer's side may need more than the driver here.
        let unit = if made.info.dedicated { 1 } else { 1 << 16 };
        made.info.size = end.next_multiple_of(unit);
        made.info.memory_type = device_local(device, allowed)?;
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(handles);
        let image = made.image.map(|(image, _)| image).unwrap_or_default();
        let mut alone = vk::MemoryDedicatedAllocateInfo::default().image(image);
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(made.info.size)
            .memory_type_index(made.info.memory_type)
            .push_next(&mut export);
        if made.info.dedicated {
            info = info.push_next(&mut alone);
        }
        // SAFETY: a type that all of them allow.
        made.memory = unsafe { raw.allocate_memory(&info, None) }.map_err(failed)?;
        for &(buffer, offset) in &made.buffers {
            // SAFETY: aligned, and within the memory.
            unsafe { raw.bind_buffer_memory(buffer, made.memory, offset) }.map_err(failed)?;
        }
        if let Some((image, offset)) = made.image {
            // SAFETY: as above.
            unsafe { raw.bind_image_memory(image, made.memory, offset) }.map_err(failed)?;
        }
        Ok(made)
    }
}

/// An image that may be in memory for export.
fn exclusive_image(device: &Device, info: &ImageInfo) -> Result<vk::Image, vk::Result> {
    let mut external = vk::ExternalMemoryImageCreateInfo::default()
        .handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
    let transfers = vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST;
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::from_raw(info.format.to_vk() as i32))
        .extent(vk::Extent3D {
            width: info.extent.width,
            height: info.extent.height,
            depth: 1,
        })
        .mip_levels(info.levels)
        .array_layers(info.layers)
        .samples(vk::SampleCountFlags::TYPE_1)
        .usage(transfers | vk::ImageUsageFlags::from_raw(info.usage.bits()))
        .push_next(&mut external);
    // SAFETY: a valid description of an image that the device shares.
    unsafe { device.raw().create_image(&info, None) }
}

/// True if the device says that it exports images of two dimensions with these properties.
pub(crate) fn exports_images(device: &Device, info: &ImageInfo) -> bool {
    let handle_type = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
    let mut handles = vk::PhysicalDeviceExternalImageFormatInfo::default().handle_type(handle_type);
    let transfers = vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST;
    let asked = vk::PhysicalDeviceImageFormatInfo2::default()
        .format(vk::Format::from_raw(info.format.to_vk() as i32))
        .ty(vk::ImageType::TYPE_2D)
        .usage(transfers | vk::ImageUsageFlags::from_raw(info.usage.bits()))
        .push_next(&mut handles);
    let mut answer = vk::ExternalImageFormatProperties::default();
    let mut found = vk::ImageFormatProperties2::default().push_next(&mut answer);
    // SAFETY: valid structures, and the physical device of this instance.
    let has = unsafe {
        let instance = device.instance();
        instance.get_physical_device_image_format_properties2(device.physical(), &asked, &mut found)
    };
    let can = answer.external_memory_properties.external_memory_features;
    has.is_ok() && can.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE)
}

/// The first device-local memory type of these, as an engine takes it.
fn device_local(device: &Device, allowed: u32) -> Result<u32, Stop> {
    // SAFETY: the physical device of this instance.
    let types = unsafe {
        let instance = device.instance();
        instance.get_physical_device_memory_properties(device.physical())
    };
    let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
    let mut all = (0..).zip(types.memory_types_as_slice());
    let found = all.find(|(index, memory_type)| {
        allowed & (1 << index) != 0 && memory_type.property_flags.contains(local)
    });
    found.map_or_else(|| Stop::fail("no memory type fits"), |(index, _)| Ok(index))
}

impl Drop for Arena {
    fn drop(&mut self) {
        let raw = self.device.raw();
        // SAFETY: made here, and the library keeps this as long as it uses them.
        unsafe {
            for &(buffer, _) in &self.buffers {
                raw.destroy_buffer(buffer, None);
            }
            if let Some((image, _)) = self.image {
                raw.destroy_image(image, None);
            }
            raw.free_memory(self.memory, None);
        }
    }
}

impl Arena {
    /// Adopts the memory and both buffers. They keep the arena.
    pub(crate) fn adopt(self: Arc<Self>) -> syncline::Result<Vec<Buffer>> {
        let (device, memory, info) = (self.device.clone(), self.memory, self.info);
        let buffers = self.buffers.clone();
        // SAFETY: the arena owns it, was allocated like that, and is the owner.
        let allocation = unsafe { device.adopt_allocation(memory, &info, Some(self)) }?;
        let adopt = |(buffer, offset)| {
            // SAFETY: bound to this memory, with these properties.
            unsafe {
                allocation.adopt_buffer(buffer, offset, BYTES, vk::SharingMode::EXCLUSIVE, None)
            }
        };
        buffers.into_iter().map(adopt).collect()
    }
}
