//! A piece of memory that a device can reach.
#![allow(unsafe_code, reason = "maps memory")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use syncline_software_payload::Memory;

use crate::code::{Answer, Code};
use crate::context::Context;
use crate::device::Device;
use crate::virtual_memory::{Physical, Rights};

/// Memory with the address by which devices know it.
pub(crate) struct Allocation {
    /// The address of its first byte on devices.
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// The context that made it. 0 if it belongs to none.
    pub(crate) context: u64,
    /// The device of that context, or of the memory.
    device: &'static Device,
    pub(crate) kind: MemoryKind,
    /// The [`Rights`] of devices. Only those of a mapping change.
    rights: AtomicU8,
    backing: Backing,
}

/// The origin of an allocation, which determines what frees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// `cuMemAlloc`.
    Device,
    /// `cuExternalMemoryGetMappedBuffer`.
    Mapped,
    /// `cuMemHostAlloc`. Its address is the same for the host and for devices.
    Pinned {
        /// All contexts can reach it.
        portable: bool,
    },
    /// `cuMemHostRegister`.
    Registered {
        /// All contexts can reach it.
        portable: bool,
        /// Devices can only read it: `CU_MEMHOSTREGISTER_READ_ONLY`.
        read_only: bool,
    },
    /// `cuMemMap`.
    Virtual,
}

/// The kind of an access to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

enum Backing {
    /// Pages of this process.
    Own(Pages),
    External(Arc<Memory>, usize),
    Physical(Arc<Physical>),
    /// Memory of the application, which has promised to keep it.
    Application(*mut u8),
}

// SAFETY: the pointer is of memory that belongs to the process; devices reach it through checked
// accesses, as they do with any memory of an application.
unsafe impl Send for Allocation {}
// SAFETY: as for sending.
unsafe impl Sync for Allocation {}

/// Pages of zeroes, mapped for as long as this lives.
struct Pages {
    at: *mut u8,
    length: usize,
    _bytes: MachineBytes,
}

/// The bytes of all [`MachineBytes`].
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Bytes of memory of the machine that allocations may touch, until this is dropped.
///
/// All together are never more than the machine has.
pub(crate) struct MachineBytes(u64);

impl MachineBytes {
    pub(crate) fn take(bytes: u64) -> Answer<Self> {
        let with = |taken: u64| {
            taken
                .checked_add(bytes)
                .filter(|all| *all <= machine_memory())
        };
        let taken = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, with);
        taken.map(|_| Self(bytes)).map_err(|_| Code::OUT_OF_MEMORY)
    }
}

impl Drop for MachineBytes {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::AcqRel);
    }
}

/// The bytes of memory of the machine.
///
/// `/proc/meminfo` says `MemTotal:       24624000 kB`. Without it, there is no limit.
fn machine_memory() -> u64 {
    static BYTES: LazyLock<u64> = LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        total(&text).unwrap_or(u64::MAX)
    });
    *BYTES
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

impl Pages {
    /// Maps pages, which take memory of the machine once they are touched.
    fn map(size: u64) -> Answer<Self> {
        let length = usize::try_from(size).map_err(|_| Code::OUT_OF_MEMORY)?;
        let bytes = MachineBytes::take(size)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at a place of the system's choice covers no memory of this process.
        let at = unsafe { mmap_anonymous(null_mut(), length, access, flags) };
        Ok(Self {
            at: at.map_err(|_| Code::OUT_OF_MEMORY)?.cast(),
            length,
            _bytes: bytes,
        })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and unmapped here alone.
        let _ = unsafe { munmap(self.at.cast(), self.length) };
    }
}

impl Allocation {
    fn new(context: &Context, address: u64, size: u64, kind: MemoryKind, backing: Backing) -> Self {
        let rights = match kind {
            MemoryKind::Registered {
                read_only: true, ..
            } => Rights::Read,
            _ => Rights::ReadAndWrite,
        };
        Self {
            address,
            size,
            context: context.id,
            device: context.device,
            kind,
            rights: AtomicU8::new(rights as u8),
            backing,
        }
    }

    /// Allocates device memory at `address`. The host cannot access that address.
    pub(crate) fn device(context: &Context, address: u64, size: u64) -> Answer<Self> {
        let backing = Backing::Own(Pages::map(size)?);
        context.device.take(size)?;
        Ok(Self::new(
            context,
            address,
            size,
            MemoryKind::Device,
            backing,
        ))
    }

    /// Uses memory of another API from `offset` on, at `address` for devices.
    pub(crate) fn external(
        context: &Context,
        address: u64,
        size: u64,
        memory: Arc<Memory>,
        offset: usize,
    ) -> Self {
        let backing = Backing::External(memory, offset);
        Self::new(context, address, size, MemoryKind::Mapped, backing)
    }

    /// Allocates memory for the host and for devices.
    pub(crate) fn pinned(context: &Context, size: u64, portable: bool) -> Answer<Self> {
        let pages = Pages::map(size)?;
        let (address, kind) = (pages.at.addr() as u64, MemoryKind::Pinned { portable });
        Ok(Self::new(context, address, size, kind, Backing::Own(pages)))
    }

    /// Uses memory of the application, of a kind that is registered.
    pub(crate) fn registered(context: &Context, at: *mut u8, size: u64, kind: MemoryKind) -> Self {
        let address = at.addr() as u64;
        Self::new(context, address, size, kind, Backing::Application(at))
    }

    /// Maps an allocation of `cuMemCreate`. Devices have no access at first.
    pub(crate) fn mapped(address: u64, physical: Arc<Physical>) -> Self {
        Self {
            address,
            size: physical.size(),
            context: 0,
            device: physical.device,
            kind: MemoryKind::Virtual,
            rights: AtomicU8::new(Rights::None as u8),
            backing: Backing::Physical(physical),
        }
    }

    /// Changes what the device of a mapping may do with it.
    pub(crate) fn set_rights(&self, rights: Rights) {
        self.rights.store(rights as u8, Ordering::Release);
    }

    /// Returns whether it is a mapping of this memory.
    pub(crate) fn maps(&self, physical: &Arc<Physical>) -> bool {
        matches!(&self.backing, Backing::Physical(mapped) if Arc::ptr_eq(mapped, physical))
    }

    /// The device of the memory, or of the context that made it.
    pub(crate) const fn owner(&self) -> &'static Device {
        self.device
    }

    /// Returns whether it is memory of `device`.
    pub(crate) fn is_of(&self, device: &Device) -> bool {
        std::ptr::eq(self.device, device)
    }

    /// Returns whether a context of `device` can reach it.
    pub(crate) fn is_reachable(&self, device: &Device) -> bool {
        let portable = matches!(
            self.kind,
            MemoryKind::Pinned { portable: true } | MemoryKind::Registered { portable: true, .. }
        );
        portable || self.is_of(device)
    }

    /// Returns the address in this process of the `length` bytes from `address` on.
    ///
    /// `None` if they are not all within, or if devices do not have this access to them.
    pub(crate) fn alias(&self, address: u64, length: u64, access: Access) -> Option<*mut u8> {
        if !Rights::allow(self.rights.load(Ordering::Acquire), access) {
            return None;
        }
        let offset = address.checked_sub(self.address)?;
        let end = offset.checked_add(length)?;
        if end > self.size {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        let base = match &self.backing {
            Backing::Own(pages) => pages.at,
            Backing::External(memory, skipped) => memory.address().wrapping_add(*skipped),
            Backing::Physical(physical) => physical.address(),
            Backing::Application(at) => *at,
        };
        Some(base.wrapping_add(offset))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.kind == MemoryKind::Device {
            self.device.give_back(self.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_machine_is_read() {
        let text = "MemFree: 7 kB\nMemTotal:       24624000 kB\nMemFree: 1 kB\n";
        assert_eq!(total(text), Some(24_624_000 << 10));
        assert_eq!(total("MemTotal: many kB"), None);
        assert!(machine_memory() < u64::MAX);
    }
}
