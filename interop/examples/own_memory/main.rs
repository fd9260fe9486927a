//! Memory that the application has allocated in Vulkan, as engines do, is shared with CUDA.

#![allow(unsafe_code, reason = "allocates and adopts raw memory")]

mod adopt;

use std::sync::Arc;
use std::time::Duration;

use adopt::{Block, share_block};
use syncline::prelude::*;
use syncline::vulkan;
use syncline::vulkan::ash::vk;

const PATIENCE: Duration = Duration::from_secs(30);
const HANDLES: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

fn main() -> syncline::Result<()> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let (cuda, vulkan) = inventory.pair()?; // or `adopt` the application's own devices
    let link = share(&vulkan, &cuda)?;
    let block = allocate(&vulkan, &[1 << 16, 4096]).map_err(syncline::Error::work)?;
    // SAFETY: allocated below, as `share_block` demands.
    let shared = unsafe { share_block(&link, block) }?;
    let [vertices, commands] = &shared[..] else {
        return Ok(());
    };

    let line = link.timeline("line")?;
    let (graphics, compute) = (
        vulkan.queue(QueueKind::Compute, "graphics")?,
        cuda.queue(QueueKind::Compute, "compute")?,
    );
    // CUDA writes the vertices and the last 64 bytes of the commands. Vulkan reads both.
    let (to, tail) = (vertices.right().clone(), commands.view(4032, 64)?);
    let last = tail.right().clone();
    compute.submit(
        &[],
        move |stream| {
            stream.memset_d32(&to, 7)?;
            stream.memset_d32(&last, 9) // or launch a kernel with `last.pointer()`
        },
        &[line.signal_at(1)],
    )?;
    let seen = vulkan.host_buffer(64, Default::default())?;
    let (from, to) = (tail.left().clone(), seen.clone());
    graphics.submit(
        &[line.at(1)],
        move |recorder| recorder.copy_buffer(&from, &to), // acquires and releases them, too
        &[line.signal_at(2)],
    )?;
    line.at(2).wait(PATIENCE)?;
    let word = seen
        .as_words()
        .map(|words| words[15].load(std::sync::atomic::Ordering::Relaxed));
    println!(
        "vertices of CUDA at {:#x}, the last command is {word:?}",
        vertices.right().pointer()
    );
    compute.idle(PATIENCE)?;
    graphics.idle(PATIENCE)
}

/// Frees the memory and the buffers when Syncline uses them no more.
struct Owned {
    device: vulkan::Device,
    memory: vk::DeviceMemory,
    buffers: Vec<vk::Buffer>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        let raw = self.device.raw();
        // SAFETY: made by `allocate`. Syncline keeps this until nothing uses them.
        unsafe {
            self.buffers
                .iter()
                .for_each(|buffer| raw.destroy_buffer(*buffer, None));
            raw.free_memory(self.memory, None);
        }
    }
}

/// What an engine's allocator does: buffers, and one block of memory for all of them.
fn allocate(device: &vulkan::Device, sizes: &[u64]) -> Result<Block, vk::Result> {
    let raw = device.raw();
    let mut owned = Owned {
        device: device.clone(),
        memory: vk::DeviceMemory::null(),
        buffers: Vec::new(),
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
    let types = unsafe {
        let instance = device.instance();
        instance.get_physical_device_memory_properties(device.physical())
    };
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
    // SAFETY: a memory type that all buffers allow.
    owned.memory = unsafe { raw.allocate_memory(&info, None) }?;
    for &(buffer, offset, _) in &buffers {
        // SAFETY: aligned, within the memory, and of a type that the buffer allows.
        unsafe { raw.bind_buffer_memory(buffer, owned.memory, offset) }?;
    }
    Ok(Block {
        memory: owned.memory,
        size: end,
        memory_type,
        owner: Arc::new(owned),
        buffers,
    })
}
