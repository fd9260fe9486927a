//! Memory: allocating it, registering it, freeing it.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use super::Handle;
use crate::abi::{In, Out, api};
use crate::allocation::{Access, Allocation, MemoryKind};
use crate::capture;
use crate::code::{Answer, Code};
use crate::context;
use crate::current;
use crate::device::{self, require_initialized};
use crate::space;

/// `CU_MEMHOSTALLOC_PORTABLE` and `CU_MEMHOSTREGISTER_PORTABLE`.
const PORTABLE: u32 = 1;
/// Portable, mapped to devices, write-combined.
const ALLOC_FLAGS: u32 = 7;
/// `CU_MEMHOSTREGISTER_READ_ONLY`.
const READ_ONLY: u32 = 8;
/// Portable, mapped to devices, for reading only. Memory of devices (4) cannot be registered here.
const REGISTER_FLAGS: u32 = 3 | READ_ONLY;

/// Waits for all work of the context whose memory is freed, then frees it.
fn free(address: u64, is_right: fn(MemoryKind) -> bool, missing: Code) -> Answer {
    let current = current::context();
    let owner = space::owner(address).and_then(context::by_id);
    match (owner, current) {
        (Some(owner), _) => {
            owner.check()?;
            capture::permit()?;
            owner.synchronize()?;
        }
        (None, Err(code)) => return Err(code),
        (None, Ok(_)) => {
            capture::permit()?;
            return Err(missing);
        }
    }
    space::free(address, is_right, missing)
}

/// Writes one attribute of the memory at `address`, which is in `found` if it is of CUDA.
///
/// Other memory has no device (-2) and its own address for the host. Its other attributes are zero.
fn attribute(number: u32, address: u64, found: Option<&Allocation>, to: usize) -> Answer {
    const HOST: u32 = 1;
    const DEVICE: u32 = 2;
    let host = found.is_some_and(|it| {
        matches!(
            it.kind,
            MemoryKind::Pinned { .. } | MemoryKind::Registered { .. }
        )
    });
    let context = || found.and_then(|it| context::by_id(it.context));
    match number {
        1 => Out::at(to).set(context().map_or(0, |of| of.handle)),
        2 => Out::at(to).set(match (found, host) {
            (None, _) => 0,
            (_, true) => HOST,
            (_, false) => DEVICE,
        }),
        3 => Out::at(to).set(found.map_or(0, |_| address)),
        4 => Out::at(to).set(if host || found.is_none() { address } else { 0 }),
        // No function allocates managed memory.
        8 => Out::at(to).set(0_u32),
        9 => Out::at(to).set(match found {
            Some(it) => device::ordinal(it.owner())?,
            None => -2_i32,
        }),
        11 => Out::at(to).set(found.map_or(0, |it| it.address)),
        12 => Out::at(to).set(found.map_or(0, |it| it.size)),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Handles a null pointer. It needs no context, but a current one must be valid.
fn free_nothing() -> Answer {
    match current::context() {
        Err(code) if code != Code::INVALID_CONTEXT => Err(code),
        _ => Ok(()),
    }
}

api! {
    fn cuMemAlloc_v2(to: Out<u64>, bytes: usize) {
        to.set(0)?;
        let context = current::context()?;
        capture::permit()?;
        to.set(space::allocate(&context, bytes as u64)?)
    }

    fn cuMemFree_v2(address: u64) {
        if address == 0 {
            return free_nothing();
        }
        let is_right = |kind| matches!(kind, MemoryKind::Device | MemoryKind::Mapped);
        free(address, is_right, Code::INVALID_VALUE)
    }

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let used = current::context()?.device.used.load(std::sync::atomic::Ordering::Acquire);
        free.set((device::MEMORY - used) as usize)?;
        total.set(device::MEMORY as usize)
    }

    fn cuMemHostAlloc(to: Out<Handle>, bytes: usize, flags: u32) {
        to.require()?;
        let context = current::context()?;
        capture::permit()?;
        if flags & !ALLOC_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        to.set(0)?;
        if bytes == 0 {
            return Ok(());
        }
        let address = space::pin(&context, bytes as u64, flags & PORTABLE != 0)?;
        to.set(address as usize)
    }

    fn cuMemFreeHost(address: Handle) {
        if address == 0 {
            return free_nothing();
        }
        let is_pinned = |kind| matches!(kind, MemoryKind::Pinned { .. });
        free(address as u64, is_pinned, Code::INVALID_VALUE)
    }

    fn cuMemHostRegister_v2(address: *mut u8, bytes: usize, flags: u32) {
        let context = current::context()?;
        capture::permit()?;
        if flags & !REGISTER_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (portable, read_only) = (flags & PORTABLE != 0, flags & READ_ONLY != 0);
        space::register(&context, address, bytes as u64, portable, read_only)
    }

    fn cuMemHostUnregister(address: Handle) {
        let is_registered = |kind| matches!(kind, MemoryKind::Registered { .. });
        // An address within an allocation, which is not the beginning of registered memory.
        let known = space::kind(address as u64);
        if address == 0 || known.is_some_and(|(kind, begins)| !is_registered(kind) || !begins) {
            return Err(Code::INVALID_VALUE);
        }
        free(address as u64, is_registered, Code::HOST_MEMORY_NOT_REGISTERED)
    }

    fn cuMemHostGetDevicePointer_v2(to: Out<u64>, address: Handle, flags: u32) {
        let context = current::context()?;
        to.set(0)?;
        if flags != 0 || space::is_device_address(address as u64) {
            return Err(Code::INVALID_VALUE);
        }
        let found = space::find(context.device, address as u64, 1, Access::Read);
        found.ok_or(Code::INVALID_VALUE)?;
        to.set(address as u64)
    }

    fn cuPointerGetAttributes(count: u32, numbers: In<u32>, to: In<usize>, address: u64) {
        require_initialized()?;
        // Without a current context no memory is found.
        let found = current::context().ok().and_then(|_| space::allocation(address));
        let (numbers, to) = (numbers.list(count as usize)?, to.list(count as usize)?);
        for (number, to) in numbers.into_iter().zip(to) {
            attribute(number, address, found.as_deref(), to)?;
        }
        Ok(())
    }
}
