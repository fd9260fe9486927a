//! A piece of memory that a device can reach.
#![allow(unsafe_code, reason = "maps memory")]

use std::ptr::null_mut;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use syncline_software_payload::Memory;

use crate::code::{Answer, Code};
use crate::device::Device;

/// Memory with the address by which devices know it.
pub(crate) struct Allocation {
    /// What devices call its first byte.
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// The context that made it.
    pub(crate) context: u64,
    pub(crate) kind: Kind,
    backing: Backing,
}

/// Where an allocation comes from, which says what frees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cuMemAlloc`, or a mapped buffer of external memory.
    Device,
    /// `cuMemHostAlloc`. Its address is the same for the host and for devices.
    Pinned {
        /// All contexts can reach it.
        portable: bool,
    },
    /// `cuMemHostRegister`.
    Registered {
        /// As for pinned memory.
        portable: bool,
    },
}

enum Backing {
    /// Pages of this process, and the device whose memory they count as.
    Own(Pages, Option<&'static Device>),
    External(Arc<Memory>, usize),
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
}

impl Pages {
    fn map(size: u64) -> Answer<Self> {
        let length = usize::try_from(size).map_err(|_| Code::OUT_OF_MEMORY)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at a place of the system's choice covers no memory of this process.
        let at = unsafe { mmap_anonymous(null_mut(), length, access, flags) };
        let at = at.map_err(|_| Code::OUT_OF_MEMORY)?.cast();
        Ok(Self { at, length })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and unmapped here alone.
        let _ = unsafe { munmap(self.at.cast(), self.length) };
    }
}

impl Allocation {
    /// Device memory that devices know by `address`, behind which the host finds nothing.
    pub(crate) fn device(
        address: u64,
        size: u64,
        context: u64,
        device: &'static Device,
    ) -> Answer<Self> {
        let pages = Pages::map(size)?;
        device.take(size)?;
        Ok(Self {
            address,
            size,
            context,
            kind: Kind::Device,
            backing: Backing::Own(pages, Some(device)),
        })
    }

    /// Memory of another API from `offset` on, which devices know by `address`.
    pub(crate) const fn external(
        address: u64,
        size: u64,
        context: u64,
        memory: Arc<Memory>,
        offset: usize,
    ) -> Self {
        Self {
            address,
            size,
            context,
            kind: Kind::Device,
            backing: Backing::External(memory, offset),
        }
    }

    /// Memory for the host and for devices.
    pub(crate) fn pinned(size: u64, context: u64, portable: bool) -> Answer<Self> {
        let pages = Pages::map(size)?;
        Ok(Self {
            address: pages.at.addr() as u64,
            size,
            context,
            kind: Kind::Pinned { portable },
            backing: Backing::Own(pages, None),
        })
    }

    /// Memory of the application.
    pub(crate) fn registered(at: *mut u8, size: u64, context: u64, portable: bool) -> Self {
        Self {
            address: at.addr() as u64,
            size,
            context,
            kind: Kind::Registered { portable },
            backing: Backing::Application(at),
        }
    }

    /// True if the device can reach it in the context.
    pub(crate) fn is_reachable(&self, context: u64) -> bool {
        let portable = matches!(
            self.kind,
            Kind::Pinned { portable: true } | Kind::Registered { portable: true }
        );
        portable || self.context == context
    }

    /// Where this process finds the `length` bytes from `address` on. `None` if they are not all within.
    pub(crate) fn alias(&self, address: u64, length: u64) -> Option<*mut u8> {
        let offset = address.checked_sub(self.address)?;
        let end = offset.checked_add(length)?;
        if end > self.size {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        let base = match &self.backing {
            Backing::Own(pages, _) => pages.at,
            Backing::External(memory, skipped) => memory.address().wrapping_add(*skipped),
            Backing::Application(at) => *at,
        };
        Some(base.wrapping_add(offset))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Backing::Own(_, Some(device)) = &self.backing {
            device.give_back(self.size);
        }
    }
}
