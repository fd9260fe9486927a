//! Virtual memory management: allocations, addresses, mappings, and access to them.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::Arc;

use super::Handle;
use crate::abi::{In, Out, api};
use crate::bug::Bug;
use crate::code::Code;
use crate::device::devices;
use crate::space;
use crate::virtual_memory::{
    self, AccessDesc, GRANULARITY, PHYSICAL, POSIX_FILE_DESCRIPTOR, Physical, Properties,
    require_granules,
};

api! {
    fn cuMemGetAllocationGranularity(to: Out<usize>, properties: In<Properties>, option: u32) {
        devices()?;
        // One granularity for all memory, also for properties with which none can be made.
        properties.get()?;
        // The minimum, or what is recommended.
        if option > 1 {
            return Err(Code::INVALID_VALUE);
        }
        to.set(GRANULARITY as usize)
    }

    fn cuMemCreate(to: Out<Handle>, bytes: usize, properties: In<Properties>, flags: u64) {
        devices()?;
        to.require()?;
        let properties = properties.get()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let made = Physical::create(bytes as u64, properties)?;
        to.set(PHYSICAL.add(Arc::new(made)))
    }

    fn cuMemRelease(handle: Handle) {
        devices()?;
        let released = PHYSICAL.remove(handle).map_err(|_| Code::INVALID_VALUE)?;
        if Bug::ReleaseUnmaps.is_planted() {
            space::forget_mappings(&released);
        }
        // Its mappings keep the memory.
        Ok(())
    }

    fn cuMemGetAllocationPropertiesFromHandle(to: Out<Properties>, handle: Handle) {
        to.set(virtual_memory::find(handle)?.properties())
    }

    fn cuMemExportToShareableHandle(to: Out<i32>, handle: Handle, kind: u32, flags: u64) {
        let physical = virtual_memory::find(handle)?;
        to.require()?;
        if flags != 0 || kind != POSIX_FILE_DESCRIPTOR {
            return Err(Code::INVALID_VALUE);
        }
        to.set(physical.export()?.into_raw_fd())
    }

    fn cuMemImportFromShareableHandle(to: Out<Handle>, descriptor: usize, kind: u32) {
        devices()?;
        to.require()?;
        match kind {
            POSIX_FILE_DESCRIPTOR => {}
            // The types of Windows, and fabric.
            2 | 4 | 8 => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_VALUE),
        }
        // A pointer has the number of the descriptor.
        let descriptor = i32::try_from(descriptor as isize).unwrap_or(-1);
        if descriptor < 0 {
            return Err(Code::UNKNOWN);
        }
        // SAFETY: not negative. If it is not open, each system call says so.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
        to.set(PHYSICAL.add(Arc::new(Physical::import(file)?)))
    }

    fn cuMemAddressReserve(
        to: Out<u64>,
        bytes: usize,
        alignment: usize,
        _hint: u64,
        flags: u64,
    ) {
        devices()?;
        to.require()?;
        require_granules(bytes as u64)?;
        if flags != 0 || alignment != 0 && !alignment.is_power_of_two() {
            return Err(Code::INVALID_VALUE);
        }
        to.set(space::reserve(bytes as u64, GRANULARITY.max(alignment as u64))?)
    }

    fn cuMemAddressFree(address: u64, bytes: usize) {
        devices()?;
        space::free_addresses(address, bytes as u64)
    }

    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: Handle, flags: u64) {
        let physical = virtual_memory::find(handle)?;
        if flags != 0 || bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        // NVIDIA's driver maps only whole allocations.
        if offset != 0 || bytes as u64 != physical.size() {
            return Err(Code::NOT_SUPPORTED);
        }
        space::map_physical(address, physical)
    }

    fn cuMemUnmap(address: u64, bytes: usize) {
        devices()?;
        space::unmap_physical(address, bytes as u64)
    }

    fn cuMemSetAccess(address: u64, bytes: usize, access: In<AccessDesc>, count: usize) {
        devices()?;
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        for access in access.list(count)? {
            let device = access.location.device().map_err(|_| Code::INVALID_VALUE)?;
            let rights = access.rights()?;
            space::set_rights(address, bytes as u64, device, rights)?;
        }
        Ok(())
    }
}
