//! Memory that is made apart from its addresses, so that it can be exported: `cuMemCreate`.
//!
//! None of these calls needs a context.
#![allow(
    unsafe_code,
    reason = "talks to the driver, and owns descriptors from it"
)]

use std::ffi::c_uint;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use cudarc::driver::sys::{CUdevice, CUdeviceptr};

use crate::driver::table::{Code, Driver, require_function};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FILE_DESCRIPTOR: c_uint = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: c_uint = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_uint = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_AND_WRITE: c_uint = 3;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
const MINIMUM: c_uint = 0;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Location {
    kind: c_uint,
    id: CUdevice,
}

/// `CUmemAllocationProp`. Declared here because cudarc's enums differ between versions.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllocationProp {
    kind: c_uint,
    handles: c_uint,
    location: Location,
    /// Only for Windows.
    _security: usize,
    _flags: [u8; 8],
}

const _: () = assert!(
    size_of::<AllocationProp>() == 32,
    "the size of CUmemAllocationProp in cuda.h"
);

/// `CUmemAccessDesc`. Declared here as above.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessDesc {
    location: Location,
    flags: c_uint,
}

const _: () = assert!(
    size_of::<AccessDesc>() == 12,
    "the size of CUmemAccessDesc in cuda.h"
);

/// The address and the size of mapped memory. Owns both, and is given back by [`Driver::unmap`].
#[derive(Debug)]
pub(crate) struct Mapped {
    address: CUdeviceptr,
    size: usize,
}

impl Mapped {
    pub(crate) const fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// The size of the whole allocation in bytes.
    pub(crate) const fn size(&self) -> u64 {
        self.size as u64
    }
}

/// A handle of `cuMemCreate`, released when it is dropped. Mappings keep the memory.
struct Handle<'d> {
    driver: &'d Driver,
    raw: u64,
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `make_mapped`, and released only here.
        let _ = unsafe { self.driver.mem_release(self.raw) };
    }
}

/// Reserved addresses without memory, freed when they are dropped.
struct Addresses<'d> {
    driver: &'d Driver,
    begin: CUdeviceptr,
    size: usize,
}

impl Drop for Addresses<'_> {
    fn drop(&mut self) {
        // SAFETY: reserved with this size, and nothing is mapped there.
        let _ = unsafe { self.driver.mem_address_free(self.begin, self.size) };
    }
}

/// Memory of the device that is exported as a descriptor.
const fn exported(device: CUdevice) -> AllocationProp {
    AllocationProp {
        kind: PINNED,
        handles: FILE_DESCRIPTOR,
        location: Location {
            kind: ON_DEVICE,
            id: device,
        },
        _security: 0,
        _flags: [0; 8],
    }
}

impl Driver {
    /// The unit of sizes for [`Driver::make_mapped`]. 2 MiB on current GPUs.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn granularity(&self, device: CUdevice) -> Result<usize, Code> {
        let (prop, mut bytes) = (exported(device), 0);
        // SAFETY: reads the properties and writes one number.
        let told = unsafe {
            self.mem_get_allocation_granularity(&raw mut bytes, &raw const prop, MINIMUM)
        };
        require_function(told, "cuMemGetAllocationGranularity")?;
        Ok(bytes.max(1))
    }

    /// Makes device memory of `size` bytes, which the device can read and write.
    ///
    /// The size is a multiple of the [granularity](Driver::granularity). The contents are not
    /// initialized. Returns the mapping and a descriptor of the memory.
    ///
    /// # Errors
    /// A driver error. Nothing is left then.
    pub(crate) fn make_mapped(
        &self,
        device: CUdevice,
        size: usize,
    ) -> Result<(Mapped, OwnedFd), Code> {
        let prop = exported(device);
        let mut raw = 0;
        // SAFETY: reads the properties and writes one handle.
        let made = unsafe { self.mem_create(&raw mut raw, size, &raw const prop, 0) };
        require_function(made, "cuMemCreate")?;
        let handle = Handle { driver: self, raw };
        let fd = self.export(&handle)?;
        let mut begin = 0;
        // SAFETY: writes one address.
        let reserved = unsafe { self.mem_address_reserve(&raw mut begin, size, 0, 0, 0) };
        require_function(reserved, "cuMemAddressReserve")?;
        let addresses = Addresses {
            driver: self,
            begin,
            size,
        };
        // SAFETY: reserved above with this size, and nothing is mapped there. The memory has this
        // size.
        let mapped = unsafe { self.mem_map(begin, size, 0, handle.raw, 0) };
        require_function(mapped, "cuMemMap")?;
        // From here on, the addresses are freed after the memory is unmapped.
        std::mem::forget(addresses);
        let mapped = Mapped {
            address: begin,
            size,
        };
        let access = AccessDesc {
            location: prop.location,
            flags: READ_AND_WRITE,
        };
        // SAFETY: mapped above as a whole. Reads one description.
        let allowed = unsafe { self.mem_set_access(begin, size, &raw const access, 1) };
        match require_function(allowed, "cuMemSetAccess") {
            Ok(()) => Ok((mapped, fd)),
            Err(code) => {
                // SAFETY: no work has the address yet.
                let _ = unsafe { self.unmap(mapped) };
                Err(code)
            }
        }
    }

    /// Exports a new descriptor, which is closed in processes that this one starts.
    fn export(&self, handle: &Handle<'_>) -> Result<OwnedFd, Code> {
        const EXPORT: &str = "cuMemExportToShareableHandle";
        let mut fd: RawFd = -1;
        // SAFETY: a live handle. Writes one descriptor, which has the type that is asked for.
        let exported = unsafe {
            self.mem_export_to_shareable_handle(
                (&raw mut fd).cast(),
                handle.raw,
                FILE_DESCRIPTOR,
                0,
            )
        };
        require_function(exported, EXPORT)?;
        if fd < 0 {
            return Err(Code::not_supported(EXPORT));
        }
        // SAFETY: a new descriptor, which nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // No document says whether that one is closed on exec. A duplicate is.
        Ok(fd.try_clone().unwrap_or(fd))
    }

    /// Unmaps memory and frees its addresses. Waits for nothing.
    ///
    /// # Errors
    /// A driver error. The addresses stay reserved then.
    ///
    /// # Safety
    /// No work that is in flight uses the mapping. `cuMemUnmap` does not wait for such work, which
    /// would fault.
    pub(crate) unsafe fn unmap(&self, mapped: Mapped) -> Result<(), Code> {
        let Mapped { address, size } = mapped;
        // SAFETY: mapped by `make_mapped` with this size, and nothing uses it, as the caller
        // guarantees.
        let unmapped = unsafe { self.mem_unmap(address, size) };
        require_function(unmapped, "cuMemUnmap")?;
        // SAFETY: reserved with this size, and nothing is mapped there any more.
        let freed = unsafe { self.mem_address_free(address, size) };
        require_function(freed, "cuMemAddressFree")
    }
}
