//! An image of Vulkan, as an array.
#![allow(unsafe_code, reason = "calls the driver, as the baseline")]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::ptr::null_mut;

use cudarc::driver::sys;
use syncline::cuda::Buffer;

use super::table::{Table, judge};
use super::{Calls, Stream};
use crate::side::Outcome;

/// An image of 32-bit integers with one level, in imported memory.
///
/// It is dropped while the context of its [`Hand`](super::Hand) is current, after its last work.
pub(crate) struct Image {
    table: &'static Table,
    memory: sys::CUexternalMemory,
    levels: sys::CUmipmappedArray,
    array: sys::CUarray,
    extent: [usize; 2],
}

impl Image {
    /// Imports `bytes` of memory, which are of a `VkImage` alone.
    pub(crate) fn import(
        calls: &Calls,
        handle: OwnedFd,
        bytes: u64,
        extent: [usize; 2],
    ) -> Outcome<Self> {
        let table = calls.table;
        // After a failure, dropping it destroys the objects made so far.
        let mut made = Self {
            table,
            memory: null_mut(),
            levels: null_mut(),
            array: null_mut(),
            extent,
        };
        let desc = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            handle: sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 {
                fd: handle.as_raw_fd(),
            },
            size: bytes,
            flags: sys::CUDA_EXTERNAL_MEMORY_DEDICATED,
            reserved: [0; 16],
        };
        // SAFETY: an open descriptor of dedicated memory of this size, on the same GPU. The driver
        // takes it on success.
        judge("cuImportExternalMemory", unsafe {
            (table.import_external_memory)(&raw mut made.memory, &raw const desc)
        })?;
        // The driver owns it now.
        let _ = handle.into_raw_fd();
        let desc = sys::CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
            offset: 0,
            arrayDesc: sys::CUDA_ARRAY3D_DESCRIPTOR {
                Width: extent[0],
                Height: extent[1],
                Depth: 0,
                Format: sys::CUarray_format::CU_AD_FORMAT_SIGNED_INT32,
                NumChannels: 1,
                Flags: sys::CUDA_ARRAY3D_SURFACE_LDST,
            },
            numLevels: 1,
            reserved: [0; 16],
        };
        // SAFETY: memory that was just imported, of an image with these properties.
        judge("cuExternalMemoryGetMappedMipmappedArray", unsafe {
            (table.get_mapped_mipmapped_array)(&raw mut made.levels, made.memory, &raw const desc)
        })?;
        // SAFETY: an array with one level.
        judge("cuMipmappedArrayGetLevel", unsafe {
            (table.mipmapped_array_get_level)(&raw mut made.array, made.levels, 0)
        })?;
        Ok(made)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: made here, and no longer used.
        unsafe {
            if !self.levels.is_null() {
                let _ = (self.table.mipmapped_array_destroy)(self.levels);
            }
            if !self.memory.is_null() {
                let _ = (self.table.destroy_external_memory)(self.memory);
            }
        }
    }
}

impl Calls {
    /// `cuMemcpyDtoDAsync` of a buffer to one of the same size.
    ///
    /// The caller keeps both until the stream is idle.
    pub(crate) fn copy(&self, from: &Buffer, to: &Buffer, stream: Stream) -> Outcome<()> {
        let (to, from, bytes) = (to.pointer(), from.pointer(), from.size() as usize);
        // SAFETY: two buffers of this size, and a live stream of the current context.
        judge("cuMemcpyDtoDAsync", unsafe {
            (self.table.memcpy_dtod_async)(to, from, bytes, stream)
        })
    }

    /// `cuMemcpy3DAsync` of the start of a buffer to all of an image.
    ///
    /// The caller keeps both until the stream is idle.
    pub(crate) fn copy_to_image(&self, from: &Buffer, to: &Image, stream: Stream) -> Outcome<()> {
        let [width, height] = to.extent;
        let mut copy = MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
        let at = copy.as_mut_ptr();
        // SAFETY: in bounds of the structure, whose zeros are valid except for the two types.
        unsafe {
            (*at).srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
            (*at).srcDevice = from.pointer();
            (*at).srcPitch = 4 * width;
            (*at).srcHeight = height;
            (*at).dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_ARRAY;
            (*at).dstArray = to.array;
            (*at).WidthInBytes = 4 * width;
            (*at).Height = height;
            (*at).Depth = 1;
        }
        // SAFETY: the buffer has this many words, the image this extent, and both are alive. The
        // stream is a live one of the current context.
        judge("cuMemcpy3DAsync", unsafe {
            (self.table.memcpy_3d_async)(copy.as_ptr(), stream)
        })
    }
}
