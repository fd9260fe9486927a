//! Memory that an application has allocated in Vulkan, as engines do.
#![allow(unsafe_code, reason = "an application's own memory is raw")]

use std::sync::Arc;

use syncline::Error;
use syncline::vulkan::ash::vk;
use syncline::vulkan::{AllocationInfo, Buffer, Device};

use crate::case::Stop;

/// The size of each buffer.
pub(crate) const BYTES: u64 = 64 << 10;

/// Memory of an application with two buffers, behind a gap.
pub(crate) struct Arena {
    device: Device,
    memory: vk::DeviceMemory,
    info: AllocationInfo,
    /// Each with its offset. They have [`BYTES`] bytes.
    buffers: [(vk::Buffer, u64); 2],
}

impl Arena {
    /// Allocates as an engine does: two buffers, then memory for both, by hand.
    pub(crate) fn new(device: &Device) -> Result<Self, Stop> {
        let raw = device.raw();
        let handles = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let failed = |code: vk::Result| Stop::from(Error::work(code));
        let mut made = Self {
            device: device.clone(),
            memory: vk::DeviceMemory::null(),
            info: AllocationInfo {
                size: 0,
                memory_type: 0,
                dedicated: false,
                exportable: true,
            },
            buffers: [(vk::Buffer::null(), 0); 2],
        };
        let (mut allowed, mut end) = (u32::MAX, 4096);
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
        // The importer's side may need more than the driver here.
        made.info.size = end.next_multiple_of(1 << 16);
        made.info.memory_type = device_local(device, allowed)?;
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(handles);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(made.info.size)
            .memory_type_index(made.info.memory_type)
            .push_next(&mut export);
        // SAFETY: a type that both buffers allow.
        made.memory = unsafe { raw.allocate_memory(&info, None) }.map_err(failed)?;
        for (buffer, offset) in made.buffers {
            // SAFETY: aligned, and within the memory.
            unsafe { raw.bind_buffer_memory(buffer, made.memory, offset) }.map_err(failed)?;
        }
        Ok(made)
    }
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
            for (buffer, _) in self.buffers {
                raw.destroy_buffer(buffer, None);
            }
            raw.free_memory(self.memory, None);
        }
    }
}

impl Arena {
    /// Adopts the memory and both buffers. They keep the arena.
    pub(crate) fn adopt(self: Arc<Self>) -> syncline::Result<Vec<Buffer>> {
        let (device, memory, info) = (self.device.clone(), self.memory, self.info);
        let buffers = self.buffers;
        // SAFETY: the arena owns it, was allocated like that, and is the owner.
        let allocation = unsafe { device.adopt_allocation(memory, &info, Some(self)) }?;
        let adopt = |(buffer, offset)| {
            // SAFETY: bound to this memory, with these properties.
            unsafe {
                allocation.adopt_buffer(buffer, offset, BYTES, vk::SharingMode::EXCLUSIVE, None)
            }
        };
        buffers.map(adopt).into_iter().collect()
    }
}
