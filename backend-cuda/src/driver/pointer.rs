//! What the driver tells about an address: `cuPointerGetAttributes`.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ffi::c_uint;

use cudarc::driver::sys;

use crate::driver::table::{Code, Driver, require_function};

// From cuda.h: `CU_POINTER_ATTRIBUTE_…`.
const CONTEXT: c_uint = 1;
const MEMORY_TYPE: c_uint = 2;
const DEVICE_POINTER: c_uint = 3;
const HOST_POINTER: c_uint = 4;
const IS_MANAGED: c_uint = 8;
const DEVICE_ORDINAL: c_uint = 9;
const RANGE_START: c_uint = 11;
const RANGE_SIZE: c_uint = 12;

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

/// The memory at an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointerInfo {
    /// The context that allocated or registered it. Zero if it belongs to none.
    pub(crate) context: usize,
    pub(crate) kind: MemoryKind,
    /// The address for the streams of the current context, or zero.
    pub(crate) on_device: sys::CUdeviceptr,
    /// The address for the host, or zero.
    pub(crate) on_host: usize,
    pub(crate) device: sys::CUdevice,
    /// The first address of the allocation, or zero.
    pub(crate) begin: u64,
    /// The first address behind the allocation, or zero.
    pub(crate) end: u64,
}

/// The kind of the memory at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// Freed, or host memory that was not registered.
    Unknown,
    /// Pinned or registered.
    Host,
    Device,
    Managed,
    /// Another one, such as that of an array.
    Other,
}

impl Driver {
    /// Asks for the memory at `address`. The context is current.
    ///
    /// # Errors
    /// A driver error. The driver reports memory that it does not know as a success.
    pub(crate) fn pointer_info(&self, address: sys::CUdeviceptr) -> Result<PointerInfo, Code> {
        const NUMBERS: [c_uint; 8] = [
            CONTEXT,
            MEMORY_TYPE,
            DEVICE_POINTER,
            HOST_POINTER,
            IS_MANAGED,
            DEVICE_ORDINAL,
            RANGE_START,
            RANGE_SIZE,
        ];
        // The driver writes at most 8 bytes for each. Zeroes stay where it writes fewer.
        let mut values = [0_u64; NUMBERS.len()];
        let places = values
            .each_mut()
            .map(|value| std::ptr::from_mut(value).cast());
        // SAFETY: both lists have this length, and each place is large enough for its attribute.
        let call = unsafe {
            self.pointer_get_attributes(
                NUMBERS.len() as c_uint,
                NUMBERS.as_ptr(),
                places.as_ptr(),
                address,
            )
        };
        require_function(call, "cuPointerGetAttributes")?;
        let [
            context,
            kind,
            on_device,
            on_host,
            managed,
            device,
            begin,
            size,
        ] = values;
        Ok(PointerInfo {
            context: context as usize,
            kind: match kind as c_uint {
                0 => MemoryKind::Unknown,
                _ if managed != 0 => MemoryKind::Managed,
                HOST => MemoryKind::Host,
                DEVICE => MemoryKind::Device,
                _ => MemoryKind::Other,
            },
            on_device,
            on_host: on_host as usize,
            device: device as sys::CUdevice,
            begin,
            end: if size == 0 {
                0
            } else {
                begin.saturating_add(size)
            },
        })
    }
}
