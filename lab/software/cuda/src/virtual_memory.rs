//! Memory that is made apart from its addresses: `cuMemCreate` and its relatives.
//!
//! An allocation is a file, also if it is never exported. `space` has the reserved addresses, and
//! what is mapped there. None of these calls needs a context.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use syncline_software_payload as payload;

use crate::allocation::{Access, MachineBytes};
use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::device::{Device, device, devices};
use crate::table::Table;

/// The smallest unit of allocations, addresses and mappings, as on an H200.
pub(crate) const GRANULARITY: u64 = 2 << 20;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const POSIX_FILE_DESCRIPTOR: u32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: u32 = 1;
/// The handle types of Windows.
const OF_WINDOWS: u32 = 2 | 4;
/// `CU_MEM_HANDLE_TYPE_FABRIC`.
const FABRIC: u32 = 8;

/// All handles of allocations.
pub(crate) static PHYSICAL: Table<Physical> = Table::new();

/// `CUmemLocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Location {
    kind: u32,
    id: i32,
}

impl Location {
    /// Returns the device. Memory of the host is not supported.
    pub(crate) fn device(self) -> Answer<&'static Device> {
        match self.kind {
            ON_DEVICE => device(self.id),
            2..=4 => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Properties {
    kind: u32,
    handles: u32,
    location: Location,
    /// Only for Windows.
    _security: usize,
    /// Hints and requests for compression, RDMA and sparse arrays.
    _flags: [u8; 8],
}

const _: () = assert!(size_of::<Properties>() == 32, "as cuda.h has it");

impl Properties {
    /// Returns the device on which such memory is made.
    pub(crate) fn check(&self) -> Answer<&'static Device> {
        devices()?;
        // NVIDIA's driver ignores handle types that it does not know.
        if self.kind != PINNED || self.handles & OF_WINDOWS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if self.handles & FABRIC != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        self.location.device()
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessDesc {
    pub(crate) location: Location,
    flags: u32,
}

const _: () = assert!(size_of::<AccessDesc>() == 12, "as cuda.h has it");

impl AccessDesc {
    /// Returns the rights that it grants.
    pub(crate) const fn rights(self) -> Answer<Rights> {
        match self.flags {
            0 => Ok(Rights::None),
            1 => Ok(Rights::Read),
            3 => Ok(Rights::ReadAndWrite),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// The accesses to a mapping that a device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Rights {
    None = 0,
    Read = 1,
    ReadAndWrite = 3,
}

impl Rights {
    /// True if rights, stored as a number, have the access.
    pub(crate) const fn allow(stored: u8, access: Access) -> bool {
        match access {
            Access::Read => stored >= Self::Read as u8,
            Access::Write => stored == Self::ReadAndWrite as u8,
        }
    }
}

/// An allocation. Its handles and its mappings keep it.
pub(crate) struct Physical {
    memory: payload::Memory,
    file: OwnedFd,
    pub(crate) device: &'static Device,
    properties: Properties,
    /// Absent if another process has made it, or another handle of this process.
    made: Option<MachineBytes>,
}

impl Physical {
    /// `cuMemCreate`. Also made after a fault of the device, because it belongs to no context.
    pub(crate) fn create(size: u64, properties: Properties) -> Answer<Self> {
        let device = properties.check()?;
        require_granules(size)?;
        let bytes = MachineBytes::take(size)?;
        let gpu = device.twin.uuid().unwrap_or_default();
        let (memory, file) = payload::Memory::create(size, gpu).map_err(|_| Code::OUT_OF_MEMORY)?;
        device.take(size)?;
        Ok(Self {
            memory,
            file,
            device,
            properties,
            made: Some(bytes),
        })
    }

    /// `cuMemImportFromShareableHandle`: the caller keeps the descriptor.
    pub(crate) fn import(file: BorrowedFd<'_>) -> Answer<Self> {
        let memory = payload::Memory::open(file).map_err(|_| Code::UNKNOWN)?;
        let of_gpu = |device: &&Device| device.twin.uuid() == Some(memory.gpu());
        let all = devices()?;
        let device = all.iter().find(of_gpu).ok_or(Code::INVALID_DEVICE)?;
        require_granules(memory.size() as u64)?;
        let file = file.try_clone_to_owned();
        let id = all.iter().position(|one| std::ptr::eq(one, device));
        Ok(Self {
            memory,
            file: file.map_err(|_| Code::OPERATING_SYSTEM)?,
            device,
            properties: Properties {
                kind: PINNED,
                handles: POSIX_FILE_DESCRIPTOR,
                location: Location {
                    kind: ON_DEVICE,
                    id: id.unwrap_or(0) as i32,
                },
                _security: 0,
                _flags: [0; 8],
            },
            made: None,
        })
    }

    /// `cuMemExportToShareableHandle`: returns a new descriptor.
    pub(crate) fn export(&self) -> Answer<OwnedFd> {
        if self.properties.handles & POSIX_FILE_DESCRIPTOR == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if Bug::ExportsOtherMemory.is_planted() {
            let other = payload::Memory::create(self.size(), self.memory.gpu());
            return other.map(|(_, file)| file).map_err(|_| Code::OUT_OF_MEMORY);
        }
        let copy = self.file.as_fd().try_clone_to_owned();
        copy.map_err(|_| Code::OPERATING_SYSTEM)
    }

    pub(crate) const fn properties(&self) -> Properties {
        self.properties
    }

    pub(crate) const fn size(&self) -> u64 {
        self.memory.size() as u64
    }

    /// The address of its first byte in this process.
    pub(crate) const fn address(&self) -> *mut u8 {
        self.memory.address()
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if self.made.is_some() {
            self.device.give_back(self.size());
        }
    }
}

/// Returns an error unless the number is a multiple of the granularity, and not 0.
pub(crate) const fn require_granules(bytes: u64) -> Answer {
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        return Err(Code::INVALID_VALUE);
    }
    Ok(())
}

/// Returns the allocation of a handle. A wrong one is an invalid value.
pub(crate) fn find(handle: usize) -> Answer<Arc<Physical>> {
    devices()?;
    PHYSICAL.get(handle).map_err(|_| Code::INVALID_VALUE)
}
