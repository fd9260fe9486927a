//! Tells Syncline about a block of memory and the buffers in it.

use std::any::Any;
use std::sync::Arc;

use syncline::vulkan::ash::vk;
use syncline::{Link, SharedBuffer, cuda, vulkan};

/// A block that an engine has allocated. `owner` frees it when it is dropped.
pub(crate) struct Block {
    pub(crate) memory: vk::DeviceMemory,
    pub(crate) size: u64,
    pub(crate) memory_type: u32,
    pub(crate) owner: Arc<dyn Any + Send + Sync>,
    /// Each with its offset in the block and its size.
    pub(crate) buffers: Vec<(vk::Buffer, u64, u64)>,
}

/// Shares all buffers of the block with CUDA, which imports the block once.
///
/// # Safety
/// The block is of the link's Vulkan device, with `VkExportMemoryAllocateInfo` for opaque file
/// descriptors. Its buffers are bound there, in exclusive sharing mode, with
/// `VkExternalMemoryBufferCreateInfo`.
pub(crate) unsafe fn share_block(
    link: &Link<vulkan::Device, cuda::Device>,
    block: Block,
) -> syncline::Result<Vec<SharedBuffer<vulkan::Device, cuda::Device>>> {
    let info = vulkan::AllocationInfo {
        size: block.size,
        memory_type: block.memory_type,
        dedicated: false,
        exportable: true,
    };
    let mut buffers = Vec::new();
    // SAFETY: the caller guarantees it, and Syncline keeps the owner as long as it uses the memory.
    unsafe {
        let memory = link
            .left()
            .adopt_allocation(block.memory, &info, Some(block.owner))?;
        for (buffer, offset, size) in block.buffers {
            buffers.push(memory.adopt_buffer(
                buffer,
                offset,
                size,
                vk::SharingMode::EXCLUSIVE,
                None,
            )?);
        }
    }
    link.share_buffers(&buffers)
}
