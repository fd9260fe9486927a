//! Tells Syncline about a block of memory, and the buffers and images in it.

use std::any::Any;
use std::sync::Arc;

use syncline::image::ImageInfo;
use syncline::vulkan::ash::vk;
use syncline::{Link, SharedBuffer, SharedImage, cuda, vulkan};

/// A block that an engine has allocated. `owner` frees it when it is dropped.
pub(crate) struct Block {
    pub(crate) memory: vk::DeviceMemory,
    pub(crate) size: u64,
    pub(crate) memory_type: u32,
    pub(crate) owner: Arc<dyn Any + Send + Sync>,
    /// Each with its offset in the block and its size.
    pub(crate) buffers: Vec<(vk::Buffer, u64, u64)>,
    /// Each with its offset in the block, and what it was created with.
    pub(crate) images: Vec<(vk::Image, u64, ImageInfo)>,
}

/// What Vulkan and CUDA use, in the order of the block.
pub(crate) struct Shared {
    pub(crate) buffers: Vec<SharedBuffer<vulkan::Device, cuda::Device>>,
    pub(crate) images: Vec<SharedImage<vulkan::Device, cuda::Device>>,
}

/// Shares all buffers and images of the block with CUDA.
///
/// # Safety
/// The block is of the link's Vulkan device, with `VkExportMemoryAllocateInfo` for opaque file
/// descriptors. Its buffers and images are bound there, in exclusive sharing mode, with
/// `VkExternalMemoryBufferCreateInfo` and `VkExternalMemoryImageCreateInfo`. The images have no
/// other properties than they say, besides the usages for transfers.
pub(crate) unsafe fn share_block(
    link: &Link<vulkan::Device, cuda::Device>,
    block: Block,
) -> syncline::Result<Shared> {
    let info = vulkan::AllocationInfo {
        size: block.size,
        memory_type: block.memory_type,
        dedicated: false,
        exportable: true,
    };
    let exclusive = vk::SharingMode::EXCLUSIVE;
    let (mut buffers, mut images) = (Vec::new(), Vec::new());
    // SAFETY: the caller guarantees it, and Syncline keeps the owner as long as it uses the memory.
    unsafe {
        let vulkan = link.left();
        let memory = vulkan.adopt_allocation(block.memory, &info, Some(block.owner))?;
        for (buffer, offset, size) in block.buffers {
            buffers.push(memory.adopt_buffer(buffer, offset, size, exclusive, None)?);
        }
        for (image, offset, info) in block.images {
            images.push(memory.adopt_image(image, offset, &info, None)?);
        }
    }
    let images = images.iter().map(|image| link.share_image(image));
    Ok(Shared {
        buffers: link.share_buffers(&buffers)?,
        images: images.collect::<syncline::Result<_>>()?,
    })
}
