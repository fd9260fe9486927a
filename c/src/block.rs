//! Blocks of memory that the program has allocated, with its buffers and images in them.

use std::ffi::c_void;

use syncline::vulkan::AllocationInfo;
use syncline::vulkan::ash::vk;
use syncline::{Buffer, Image};

use crate::handle::{Handle, sl_allocation, sl_buffer, sl_device, sl_image, sl_link};
use crate::memory::{image_info, sl_image_info};
use crate::raw::{VkBuffer, VkDeviceMemory, VkImage, to_vk};
use crate::result::{Refused, call, check_pointer, info_in, list, out, sl_result};
use crate::submit::{Data, sl_drop};

/// A VkDeviceMemory of the program.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct sl_vulkan_allocation_info {
    /// The size of this structure, which the caller sets.
    pub size: usize,
    /// The memory.
    pub memory: VkDeviceMemory,
    /// allocationSize of VkMemoryAllocateInfo.
    pub bytes: u64,
    /// memoryTypeIndex of VkMemoryAllocateInfo.
    pub memory_type: u32,
    /// 1 if it was allocated with VkMemoryDedicatedAllocateInfo.
    pub is_dedicated: u32,
    /// 1 if it was allocated with VkExportMemoryAllocateInfo for opaque file descriptors.
    pub is_exportable: u32,
    /// 0.
    pub reserved: u32,
}

fn flag(value: u32, name: &'static str) -> Result<bool, Refused> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Refused::argument(name, format!("is {other}"))),
    }
}

/// Adopts memory that the program has allocated, such as a block of its allocator.
///
/// Makes no driver call. sl_allocation_buffer and sl_allocation_image adopt what is bound to it.
/// `free_owner` is called once with `owner`, on any thread, when nothing of Syncline uses the
/// memory any more, also if this call fails. If it is null, the memory stays until then. Free the
/// handle with sl_allocation_free. SL_ERROR_UNSUPPORTED for exportable memory of a device that
/// exports none.
///
/// # Safety
///
/// The memory is of the VkDevice, as `info` says, and has no device mask. It is exportable for
/// opaque file descriptors alone, and is not imported. It stays until `free_owner` is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_allocation_adopt_vulkan(
    device: sl_device,
    info: *const sl_vulkan_allocation_info,
    owner: *mut c_void,
    free_owner: sl_drop,
    allocation: *mut sl_allocation,
) -> sl_result {
    let owner = Data::owner(owner, free_owner);
    call(|| {
        let place = out(allocation, "allocation")?;
        // SAFETY: by the contract of this function.
        let info = unsafe { info_in(info, "info")? };
        if info.memory.is_null() || info.reserved != 0 {
            let what = "has a null memory, or another reserved number than 0";
            return Err(Refused::argument("info", what));
        }
        let adopted = AllocationInfo {
            size: info.bytes,
            memory_type: info.memory_type,
            dedicated: flag(info.is_dedicated, "is_dedicated")?,
            exportable: flag(info.is_exportable, "is_exportable")?,
        };
        let device = device.get()?;
        let memory = to_vk(info.memory);
        // SAFETY: by the contract of this function.
        let made = unsafe { device.vulkan()?.adopt_allocation(memory, &adopted, owner)? };
        place.set(sl_allocation::new(made));
        Ok(())
    })
}

/// Adopts a VkBuffer that the program has bound to an allocation at `offset`.
///
/// Makes no driver call. `is_concurrent` is 1 for VK_SHARING_MODE_CONCURRENT, and 0 for an
/// exclusive one, which queues of one family use. Before its first use by Syncline, the program
/// releases a buffer that it has used to VK_QUEUE_FAMILY_EXTERNAL. `free_owner` is called as that
/// of sl_allocation_adopt_vulkan. Free the buffer with sl_buffer_free.
///
/// # Safety
///
/// `buffer` is of the same VkDevice, has `bytes` bytes, and is bound there. It stays until
/// `free_owner` is called, or as long as the memory. In exportable memory it was created with
/// VkExternalMemoryBufferCreateInfo for opaque file descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_allocation_buffer(
    allocation: sl_allocation,
    buffer: VkBuffer,
    offset: u64,
    bytes: u64,
    is_concurrent: u32,
    owner: *mut c_void,
    free_owner: sl_drop,
    adopted: *mut sl_buffer,
) -> sl_result {
    let owner = Data::owner(owner, free_owner);
    call(|| {
        let place = out(adopted, "adopted")?;
        check_pointer(buffer.cast::<u8>(), "buffer")?;
        let mode = match flag(is_concurrent, "is_concurrent")? {
            true => vk::SharingMode::CONCURRENT,
            false => vk::SharingMode::EXCLUSIVE,
        };
        let allocation = allocation.get()?;
        // SAFETY: by the contract of this function.
        let made = unsafe { allocation.adopt_buffer(to_vk(buffer), offset, bytes, mode, owner)? };
        place.set(sl_buffer::new(Buffer::Vulkan(made)));
        Ok(())
    })
}

/// Adopts a VkImage that the program has bound to an exportable allocation at `offset`.
///
/// Calls vkGetImageMemoryRequirements2. `free_owner` is called as that of
/// sl_allocation_adopt_vulkan. Free the image with sl_image_free. SL_ERROR_UNSUPPORTED for an image
/// that devices cannot share; the text says why.
///
/// # Safety
///
/// `image` is of the same VkDevice and bound there. It stays until `free_owner` is called, or as
/// long as the memory. It was created as `info` says, with the usages for transfers, with optimal
/// tiling and exclusive sharing mode, with VkExternalMemoryImageCreateInfo for opaque file
/// descriptors, and with no other usage or flag. A first use that keeps its contents finds it in
/// VK_IMAGE_LAYOUT_GENERAL, released to VK_QUEUE_FAMILY_EXTERNAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_allocation_image(
    allocation: sl_allocation,
    image: VkImage,
    offset: u64,
    info: *const sl_image_info,
    owner: *mut c_void,
    free_owner: sl_drop,
    adopted: *mut sl_image,
) -> sl_result {
    let owner = Data::owner(owner, free_owner);
    call(|| {
        let place = out(adopted, "adopted")?;
        check_pointer(image.cast::<u8>(), "image")?;
        // SAFETY: by the contract of this function.
        let info = image_info(unsafe { info_in(info, "info")? })?;
        let allocation = allocation.get()?;
        // SAFETY: by the contract of this function.
        let made = unsafe { allocation.adopt_image(to_vk(image), offset, &info, owner)? };
        place.set(sl_image::new(Image::Vulkan(made)));
        Ok(())
    })
}

/// Frees a handle of an allocation. Its buffers, images and their shares live on.
#[unsafe(no_mangle)]
pub extern "C" fn sl_allocation_free(allocation: sl_allocation) -> sl_result {
    call(|| allocation.free())
}

/// Shares adopted buffers with the other device of a link, and makes a view of each for both.
///
/// The other device imports each allocation once, if its buffers are next to each other in the
/// list. `left` and `right` have `count` elements, which get the views of the link's devices. Free
/// each of them with sl_buffer_free. All views keep the memory. May block for milliseconds.
/// SL_ERROR_UNSUPPORTED for memory that is dedicated or not exportable, for an offset or size that
/// is no multiple of 4, and if the other device cannot import the memory.
///
/// # Safety
///
/// The lists have `count` elements, and do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_link_share_buffers(
    link: sl_link,
    buffers: *const sl_buffer,
    count: usize,
    left: *mut sl_buffer,
    right: *mut sl_buffer,
) -> sl_result {
    call(|| {
        // SAFETY: by the contract of this function.
        let buffers = unsafe { list(buffers, count, "buffers")? };
        if count > 0 {
            check_pointer(left, "left")?;
            check_pointer(right, "right")?;
        }
        let link = link.get()?;
        let buffers = buffers.iter().map(|buffer| {
            let buffer = buffer.get()?;
            Ok(buffer.vulkan()?.clone())
        });
        let buffers = buffers.collect::<Result<Vec<_>, Refused>>()?;
        for (index, shared) in link.share_buffers(&buffers)?.iter().enumerate() {
            // SAFETY: both lists have that many elements.
            unsafe {
                left.add(index).write(sl_buffer::new(shared.left().clone()));
                right
                    .add(index)
                    .write(sl_buffer::new(shared.right().clone()));
            }
        }
        Ok(())
    })
}

/// Shares an adopted image with the other device of a link, and makes a view for both.
///
/// The other device imports the allocation. Free both views with sl_image_free. They keep the
/// memory. May block for milliseconds. SL_ERROR_UNSUPPORTED for memory that is not exportable, and
/// if the other device cannot import it.
#[unsafe(no_mangle)]
pub extern "C" fn sl_link_share_image(
    link: sl_link,
    image: sl_image,
    left: *mut sl_image,
    right: *mut sl_image,
) -> sl_result {
    call(|| {
        let places = (out(left, "left")?, out(right, "right")?);
        let (link, image) = (link.get()?, image.get()?);
        let shared = link.share_image(image.vulkan()?)?;
        places.0.set(sl_image::new(shared.left().clone()));
        places.1.set(sl_image::new(shared.right().clone()));
        Ok(())
    })
}
