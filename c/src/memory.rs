//! Memory and images, their raw handles and barriers.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use syncline::error::Object;
use syncline::image::{Extent, Format, ImageInfo, ImageType, ImageUsage};
use syncline::vulkan::Contents;
use syncline::vulkan::ash::vk;
use syncline::{Buffer, Error, Image};

use crate::handle::{Handle, sl_buffer, sl_device, sl_image, sl_link};
use crate::raw::{CUmipmappedArray, VkBuffer, VkImage, from_vk};
use crate::result::{Refused, call, check_pointer, info_in, info_out, out, sl_result};

/// What a buffer is for the host, Vulkan and CUDA.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_buffer_info {
    /// The size of this structure, which the caller sets.
    pub size: usize,
    /// The size of the range in bytes.
    pub bytes: u64,
    /// Its first byte for the host, or null if the host cannot address it.
    pub host_pointer: *mut c_void,
    /// The VkBuffer, or null.
    pub vulkan_buffer: VkBuffer,
    /// Where the range begins in the VkBuffer, in bytes.
    pub vulkan_offset: u64,
    /// The address for kernels of CUDA, or 0: a CUdeviceptr.
    pub cuda_pointer: u64,
}

/// What an image is like, in the words of VkImageCreateInfo.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_image_info {
    /// The size of this structure, which the caller sets.
    pub size: usize,
    /// A VkImageType: 0, 1 or 2 for one, two or three dimensions.
    pub image_type: u32,
    /// 1 for a cube, which has two dimensions and six layers for each cube.
    pub is_cube: u32,
    /// A VkFormat.
    pub format: u32,
    /// The width of level 0 in texels.
    pub width: u32,
    /// The height. 1 for one dimension.
    pub height: u32,
    /// The depth. 1 unless there are three dimensions.
    pub depth: u32,
    /// mipLevels, at least 1.
    pub levels: u32,
    /// arrayLayers, at least 1.
    pub layers: u32,
    /// VkImageUsageFlags without those of transfers, which every image has.
    pub usage: u32,
    /// 0.
    pub reserved: u32,
}

/// The raw handles of an image.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_image_handles {
    /// The size of this structure, which the caller sets.
    pub size: usize,
    /// The VkImage, or null.
    pub vulkan_image: VkImage,
    /// The array of CUDA with all levels, or null.
    pub cuda_array: CUmipmappedArray,
}

/// What an acquire does with the contents of an image.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum sl_contents {
    /// They stay. The image was written and released before.
    SL_CONTENTS_KEEP = 0,
    /// They are undefined afterwards. For the first use of a new image.
    SL_CONTENTS_DISCARD = 1,
}

/// Makes memory that both devices of a link use, and a view of it for each.
///
/// `bytes` is a multiple of 4. It is one allocation: Vulkan or CUDA exports it, or one of the
/// devices is the host. Order all accesses with timelines of the link. Free both views with
/// sl_buffer_free; the last one frees the memory, once no submission uses it. May block for
/// milliseconds. SL_ERROR_UNSUPPORTED if the devices have no memory in common: make two by
/// sl_buffer_make, and copy with sl_buffer_copy.
#[unsafe(no_mangle)]
pub extern "C" fn sl_link_buffer(
    link: sl_link,
    bytes: u64,
    left: *mut sl_buffer,
    right: *mut sl_buffer,
) -> sl_result {
    call(|| {
        let places = (out(left, "left")?, out(right, "right")?);
        let shared = link.get()?.buffer(bytes)?;
        places.0.set(sl_buffer::new(shared.left().clone()));
        places.1.set(sl_buffer::new(shared.right().clone()));
        Ok(())
    })
}

/// Makes memory of a device that the host can address, filled with zeroes.
///
/// `bytes` is a multiple of 4. Free it with sl_buffer_free. May block for milliseconds.
/// SL_ERROR_UNSUPPORTED for another size, or one that there is no memory for.
#[unsafe(no_mangle)]
pub extern "C" fn sl_buffer_make(
    device: sl_device,
    bytes: u64,
    buffer: *mut sl_buffer,
) -> sl_result {
    call(|| {
        let place = out(buffer, "buffer")?;
        let made = Buffer::host_visible(&*device.get()?, bytes)?;
        place.set(sl_buffer::new(made));
        Ok(())
    })
}

/// Makes a view of a range of a buffer, which keeps its memory. Free it with sl_buffer_free.
///
/// `offset` and `bytes` are multiples of 4. SL_ERROR_UNSUPPORTED for a range that the buffer does
/// not have.
#[unsafe(no_mangle)]
pub extern "C" fn sl_buffer_view(
    buffer: sl_buffer,
    offset: u64,
    bytes: u64,
    view: *mut sl_buffer,
) -> sl_result {
    call(|| {
        let place = out(view, "view")?;
        place.set(sl_buffer::new(buffer.get()?.view(offset, bytes)?));
        Ok(())
    })
}

/// Reads the raw handles of a buffer. They are valid while a handle of the buffer lives.
///
/// A submission of the program does not keep the memory: free the buffer after it has finished, for
/// example in the free function of its data.
///
/// # Safety
///
/// `info` points to a structure whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_buffer_get_info(
    buffer: sl_buffer,
    info: *mut sl_buffer_info,
) -> sl_result {
    call(|| {
        // SAFETY: by the contract of this function.
        let place = unsafe { info_out(info, "info")? };
        let buffer = buffer.get()?;
        let words = buffer.words().map(|words| words.as_ptr().cast_mut().cast());
        let mut found = sl_buffer_info {
            size: size_of::<sl_buffer_info>(),
            bytes: buffer.size(),
            host_pointer: words.unwrap_or(null_mut()),
            vulkan_buffer: null_mut(),
            vulkan_offset: 0,
            cuda_pointer: 0,
        };
        match &*buffer {
            Buffer::Vulkan(buffer) => {
                found.vulkan_buffer = from_vk(buffer.raw());
                found.vulkan_offset = buffer.offset();
            }
            Buffer::Cuda(buffer) => found.cuda_pointer = buffer.pointer(),
            _ => {}
        }
        place.set(found);
        Ok(())
    })
}

/// Copies a buffer to another one on the calling thread. The host can address both.
///
/// It orders nothing: wait for the writes before, and submit the reads after. Blocks while it
/// copies. SL_ERROR_INVALID_ARGUMENT if the buffers are not equally large, and
/// SL_ERROR_UNSUPPORTED if the host cannot address one of them.
#[unsafe(no_mangle)]
pub extern "C" fn sl_buffer_copy(from: sl_buffer, to: sl_buffer) -> sl_result {
    call(|| {
        let (from, to) = (from.get()?, to.get()?);
        let not_addressed = || {
            let reason = "the host cannot address it";
            Error::unsupported(Object::new("memory", ""), "be copied by the host", reason)
        };
        let words = from.words().ok_or_else(not_addressed)?;
        let places = to.words().ok_or_else(not_addressed)?;
        if words.len() != places.len() {
            let what = format!("has {} bytes, and the other {}", to.size(), from.size());
            return Err(Refused::argument("to", what));
        }
        for (from, to) in words.iter().zip(places) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(())
    })
}

/// The barrier with which commands of the program acquire a buffer from CUDA or another VkDevice.
///
/// `family` is the queue family that the commands are for. `barrier` is a VkBufferMemoryBarrier or
/// a VkBufferMemoryBarrier2 whose sType is set. All fields are filled in; pNext becomes null. The
/// barrier belongs at the beginning of the commands, with all stages on both sides. `needed` is
/// false for memory that is not shared, and the barrier is then left alone.
///
/// # Safety
///
/// `barrier` points to the structure that its sType names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_buffer_acquire_barrier(
    buffer: sl_buffer,
    family: u32,
    barrier: *mut c_void,
    needed: *mut bool,
) -> sl_result {
    call(|| {
        let needed = out(needed, "needed")?;
        let buffer = buffer.get()?;
        let made = buffer.vulkan()?.acquire_barrier(family);
        // SAFETY: by the contract of this function.
        unsafe { write_buffer_barrier(made, barrier)? };
        needed.set(made.is_some());
        Ok(())
    })
}

/// The barrier that releases a buffer to CUDA or another VkDevice, at the end of the commands.
///
/// See sl_buffer_acquire_barrier.
///
/// # Safety
///
/// `barrier` points to the structure that its sType names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_buffer_release_barrier(
    buffer: sl_buffer,
    family: u32,
    barrier: *mut c_void,
    needed: *mut bool,
) -> sl_result {
    call(|| {
        let needed = out(needed, "needed")?;
        let buffer = buffer.get()?;
        let made = buffer.vulkan()?.release_barrier(family);
        // SAFETY: by the contract of this function.
        unsafe { write_buffer_barrier(made, barrier)? };
        needed.set(made.is_some());
        Ok(())
    })
}

/// # Safety
/// `place` is null, or points to the structure that its type names.
unsafe fn write_buffer_barrier(
    barrier: Option<syncline::vulkan::OwnershipBarrier>,
    place: *mut c_void,
) -> Result<(), Refused> {
    // SAFETY: by the contract of this function.
    let form = unsafe { structure_type(place)? };
    match (form, barrier) {
        (vk::StructureType::BUFFER_MEMORY_BARRIER, None)
        | (vk::StructureType::BUFFER_MEMORY_BARRIER_2, None) => {}
        (vk::StructureType::BUFFER_MEMORY_BARRIER, Some(barrier)) => {
            // SAFETY: it is this structure.
            unsafe {
                place
                    .cast::<vk::BufferMemoryBarrier<'_>>()
                    .write(barrier.into())
            };
        }
        (vk::StructureType::BUFFER_MEMORY_BARRIER_2, Some(barrier)) => {
            // SAFETY: it is this structure.
            unsafe {
                place
                    .cast::<vk::BufferMemoryBarrier2<'_>>()
                    .write(barrier.into())
            };
        }
        (other, _) => return Err(no_barrier(other, "VkBufferMemoryBarrier")),
    }
    Ok(())
}

/// # Safety
/// `place` is null, or points to a structure of Vulkan.
unsafe fn structure_type(place: *const c_void) -> Result<vk::StructureType, Refused> {
    // Both kinds of barriers have the alignment of a pointer.
    check_pointer(place.cast::<usize>(), "barrier")?;
    // SAFETY: by the contract of this function. Every such structure begins with its type.
    let form = unsafe { place.cast::<i32>().read() };
    Ok(vk::StructureType::from_raw(form))
}

fn no_barrier(form: vk::StructureType, name: &str) -> Refused {
    let what = format!(
        "has the sType {}, and is no {name} or {name}2",
        form.as_raw()
    );
    Refused::argument("barrier", what)
}

/// Frees a view of memory. The last view frees the memory once no submission of Syncline uses it.
///
/// With memory of CUDA, the call may block until all work of the context has finished, also that of
/// others, as cuMemFree does. Behind a stream that waits for a signal that is missing, it blocks
/// for ever. So print errors before you free memory.
#[unsafe(no_mangle)]
pub extern "C" fn sl_buffer_free(buffer: sl_buffer) -> sl_result {
    call(|| buffer.free())
}

/// Makes an image that both devices of a link use, and a view of it for each.
///
/// Vulkan makes it in memory of its own, and the other device imports it. Its contents are
/// undefined: the first acquire discards them. Free both views with sl_image_free. May block for
/// milliseconds. SL_ERROR_UNSUPPORTED names the property that the devices do not share.
///
/// # Safety
///
/// `info` points to a structure whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_link_image(
    link: sl_link,
    info: *const sl_image_info,
    left: *mut sl_image,
    right: *mut sl_image,
) -> sl_result {
    call(|| {
        let places = (out(left, "left")?, out(right, "right")?);
        // SAFETY: by the contract of this function.
        let info = unsafe { info_in(info, "info")? };
        let info = image_info(info)?;
        let shared = link.get()?.image(&info)?;
        places.0.set(sl_image::new(shared.left().clone()));
        places.1.set(sl_image::new(shared.right().clone()));
        Ok(())
    })
}

pub(crate) fn image_info(info: &sl_image_info) -> Result<ImageInfo, Refused> {
    if info.reserved != 0 {
        return Err(Refused::argument(
            "info",
            "has another reserved number than 0",
        ));
    }
    let refused = |name: &str, number: u32| {
        Refused::argument(
            "info",
            format!("has the {name} {number}, which is not shared"),
        )
    };
    let format = Format::from_vk(info.format).ok_or_else(|| refused("format", info.format))?;
    let image_type = match (info.image_type, info.is_cube) {
        (0, 0) => ImageType::D1,
        (1, 0) => ImageType::D2,
        (2, 0) => ImageType::D3,
        (1, 1) => ImageType::Cube,
        (_, 0) => return Err(refused("image_type", info.image_type)),
        (_, cube) => return Err(refused("is_cube", cube)),
    };
    let usage = ImageUsage::from_bits_retain(info.usage);
    let mut made = ImageInfo::d2(format, info.width, info.height, usage);
    made.image_type = image_type;
    made.extent = Extent {
        width: info.width,
        height: info.height,
        depth: info.depth,
    };
    made.levels = info.levels;
    made.layers = info.layers;
    Ok(made)
}

/// Reads the raw handles of an image. They are valid while a handle of the image lives.
///
/// See sl_buffer_get_info.
///
/// # Safety
///
/// `handles` points to a structure whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_image_get_handles(
    image: sl_image,
    handles: *mut sl_image_handles,
) -> sl_result {
    call(|| {
        // SAFETY: by the contract of this function.
        let place = unsafe { info_out(handles, "handles")? };
        let image = image.get()?;
        let mut found = sl_image_handles {
            size: size_of::<sl_image_handles>(),
            vulkan_image: null_mut(),
            cuda_array: null_mut(),
        };
        match &*image {
            Image::Vulkan(image) => found.vulkan_image = from_vk(image.raw()),
            Image::Cuda(image) => found.cuda_array = image.mipmapped_array(),
            _ => {}
        }
        place.set(found);
        Ok(())
    })
}

/// The barrier with which commands of the program acquire an image from CUDA or another VkDevice.
///
/// `contents` is an sl_contents, and `layout` the VkImageLayout that the commands need. `barrier`
/// is a VkImageMemoryBarrier or a VkImageMemoryBarrier2 whose sType is set. For the rest see
/// sl_buffer_acquire_barrier. An image always needs the barrier. After the first acquire of a new
/// image, call sl_image_note_contents.
///
/// # Safety
///
/// `barrier` points to the structure that its sType names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_image_acquire_barrier(
    image: sl_image,
    family: u32,
    contents: u32,
    layout: i32,
    barrier: *mut c_void,
) -> sl_result {
    call(|| {
        let contents = match contents {
            kind if kind == sl_contents::SL_CONTENTS_KEEP as u32 => Contents::Keep,
            kind if kind == sl_contents::SL_CONTENTS_DISCARD as u32 => Contents::Discard,
            other => return Err(Refused::argument("contents", format!("is {other}"))),
        };
        let image = image.get()?;
        let layout = vk::ImageLayout::from_raw(layout);
        let made = image.vulkan()?.acquire_barrier(family, contents, layout);
        // SAFETY: by the contract of this function.
        unsafe { write_image_barrier(made, barrier) }
    })
}

/// The barrier that releases an image to CUDA or another VkDevice, at the end of the commands.
///
/// `layout` is the VkImageLayout that the commands leave it in. See sl_image_acquire_barrier.
///
/// # Safety
///
/// `barrier` points to the structure that its sType names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_image_release_barrier(
    image: sl_image,
    family: u32,
    layout: i32,
    barrier: *mut c_void,
) -> sl_result {
    call(|| {
        let image = image.get()?;
        let layout = vk::ImageLayout::from_raw(layout);
        let made = image.vulkan()?.release_barrier(family, layout);
        // SAFETY: by the contract of this function.
        unsafe { write_image_barrier(made, barrier) }
    })
}

/// # Safety
/// `place` is null, or points to the structure that its type names.
unsafe fn write_image_barrier(
    barrier: syncline::vulkan::ImageBarrier,
    place: *mut c_void,
) -> Result<(), Refused> {
    // SAFETY: by the contract of this function.
    match unsafe { structure_type(place)? } {
        vk::StructureType::IMAGE_MEMORY_BARRIER => {
            // SAFETY: it is this structure.
            unsafe {
                place
                    .cast::<vk::ImageMemoryBarrier<'_>>()
                    .write(barrier.into())
            };
        }
        vk::StructureType::IMAGE_MEMORY_BARRIER_2 => {
            // SAFETY: it is this structure.
            unsafe {
                place
                    .cast::<vk::ImageMemoryBarrier2<'_>>()
                    .write(barrier.into())
            };
        }
        other => return Err(no_barrier(other, "VkImageMemoryBarrier")),
    }
    Ok(())
}

/// Says that commands of the program were submitted which acquire a new image and release it.
///
/// After that, later acquires may keep the contents.
///
/// # Safety
///
/// The commands have the barriers of sl_image_acquire_barrier and sl_image_release_barrier. Later
/// submissions that use the image wait for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_image_note_contents(image: sl_image) -> sl_result {
    call(|| {
        let image = image.get()?;
        // SAFETY: by the contract of this function.
        unsafe { image.vulkan()?.note_contents() };
        Ok(())
    })
}

/// Frees a view of an image. The last view frees it once no submission of Syncline uses it.
///
/// May block as sl_buffer_free does.
#[unsafe(no_mangle)]
pub extern "C" fn sl_image_free(image: sl_image) -> sl_result {
    call(|| image.free())
}
