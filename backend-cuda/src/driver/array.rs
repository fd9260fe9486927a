//! Descriptions of arrays, of surfaces and textures, and of copies of arrays.
//!
//! Declared here because cudarc's enums differ between versions.

use std::ffi::c_uint;

use cudarc::driver::sys;

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrayDesc {
    extent: [usize; 3],
    format: c_uint,
    channels: c_uint,
    flags: c_uint,
}

impl ArrayDesc {
    /// `format` is a `CUarray_format` and the number of channels.
    ///
    /// The height is 0 for one dimension. The depth is the number of layers of layered arrays and
    /// cubes, and otherwise 0 for one and two dimensions.
    pub(crate) const fn new(
        extent: [usize; 3],
        (format, channels): (c_uint, c_uint),
        flags: c_uint,
    ) -> Self {
        Self {
            extent,
            format,
            channels,
            flags,
        }
    }
}

/// `CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MipmappedArrayDesc {
    offset: u64,
    array: ArrayDesc,
    levels: c_uint,
    reserved: [c_uint; 16],
}

const _: () = assert!(
    size_of::<MipmappedArrayDesc>() == 120,
    "the size of CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC in cuda.h"
);

impl MipmappedArrayDesc {
    pub(crate) const fn new(offset: u64, array: ArrayDesc, levels: c_uint) -> Self {
        Self {
            offset,
            array,
            levels,
            reserved: [0; 16],
        }
    }
}

/// What a surface or a texture is of: `CUDA_RESOURCE_DESC`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceDesc {
    kind: c_uint,
    /// A `CUarray` or a `CUmipmappedArray`.
    array: *const (),
    _unused: [u64; 15],
    flags: c_uint,
}

const _: () = assert!(
    size_of::<ResourceDesc>() == 144,
    "the size of CUDA_RESOURCE_DESC in cuda.h"
);

impl ResourceDesc {
    pub(crate) const fn array(array: sys::CUarray) -> Self {
        Self::new(0, array.cast_const().cast())
    }

    pub(crate) const fn mipmapped_array(array: sys::CUmipmappedArray) -> Self {
        Self::new(1, array.cast_const().cast())
    }

    const fn new(kind: c_uint, array: *const ()) -> Self {
        Self {
            kind,
            array,
            _unused: [0; 15],
            flags: 0,
        }
    }
}

/// One side of a [`Copy3d`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopySide {
    /// Where the copied region begins in the array.
    _begin: [usize; 3],
    _level: usize,
    /// `CUmemorytype`.
    kind: c_uint,
    _host: usize,
    pointer: sys::CUdeviceptr,
    array: sys::CUarray,
    _reserved: usize,
    /// The bytes from row to row, and the rows from slice to slice, of device memory.
    pitch: usize,
    height: usize,
}

impl CopySide {
    pub(crate) const fn array(array: sys::CUarray) -> Self {
        Self::new(3, 0, array, 0, 0)
    }

    /// Memory at an address of the device, also pinned memory, without gaps.
    pub(crate) const fn memory(pointer: sys::CUdeviceptr, pitch: usize, height: usize) -> Self {
        Self::new(4, pointer, std::ptr::null_mut(), pitch, height)
    }

    const fn new(
        kind: c_uint,
        pointer: sys::CUdeviceptr,
        array: sys::CUarray,
        pitch: usize,
        height: usize,
    ) -> Self {
        Self {
            _begin: [0; 3],
            _level: 0,
            kind,
            _host: 0,
            pointer,
            array,
            _reserved: 0,
            pitch,
            height,
        }
    }
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copy3d {
    from: CopySide,
    to: CopySide,
    /// The bytes of a row, the rows of a slice, and the slices.
    extent: [usize; 3],
}

const _: () = assert!(
    size_of::<Copy3d>() == 200,
    "the size of CUDA_MEMCPY3D in cuda.h"
);

impl Copy3d {
    pub(crate) const fn new(from: CopySide, to: CopySide, extent: [usize; 3]) -> Self {
        Self { from, to, extent }
    }
}
