//! Handles that carry semaphores and memory between APIs, one type per kind.
//!
//! Drivers cannot tell the kinds apart (some take a memory handle for a semaphore and report success),
//! so the kind is part of the type, and raw descriptors enter only through `unsafe` constructors. The one exception is
//! a counter in shared memory, which needs no driver and is checked where it enters: `memory/counter/fd.rs`.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::base::error::Error;
use crate::base::info::{Info, Uuid};

mod kind;
mod sync_fd;
mod windows;

pub use kind::{HandleKind, Payload, PayloadUse, Transference};
pub use sync_fd::SyncFd;
pub use windows::{
    BinaryWin32, BinaryWin32Kmt, D3d12FenceHandle, TimelineWin32, TimelineWin32Kmt, WindowsHandle,
};

/// Where a handle comes from: what an importer must match, checked before any driver is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The exporting device, in words.
    pub device: String,
    /// Its UUID.
    pub uuid: Option<Uuid>,
    /// Its driver's UUID.
    pub driver_uuid: Option<Uuid>,
}

impl Origin {
    /// The device that `info` describes.
    #[must_use]
    pub fn of(info: &Info) -> Self {
        let device = format!("{} {}", info.backend, info.name);
        Self {
            device,
            uuid: info.uuid,
            driver_uuid: info.driver_uuid,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.uuid {
            Some(uuid) => write!(f, "{} ({uuid})", self.device),
            None => f.write_str(&self.device),
        }
    }
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* }
     $($(#[$safety:meta])+ unsafe)?) => {
        $(#[$doc])*
        ///
        /// Owned by exactly one party: a successful import consumes it, a failed one gives it back.
        #[derive(Debug)]
        pub struct $name {
            fd: OwnedFd,
            origin: Box<Origin>,
            $($(#[$field_doc])* $field: $type,)*
        }

        impl $name {
            /// Takes a descriptor in.
            ///
            /// # Safety
            /// `fd` must hold what the type says, exported by `origin`'s driver with the given
            /// properties. Drivers do not check it: a handle of another kind leads to undefined behaviour.
            $($(#[$safety])+)?
            #[allow(unsafe_code, reason = "the kind of a foreign descriptor cannot be checked")]
            #[must_use]
            pub unsafe fn from_fd(fd: OwnedFd, origin: Origin $(, $field: $type)*) -> Self {
                Self { fd, origin: Box::new(origin) $(, $field)* }
            }

            /// The exporter.
            #[must_use]
            pub fn origin(&self) -> &Origin {
                &self.origin
            }

            $($(#[$field_doc])* #[must_use] pub const fn $field(&self) -> $type { self.$field })*

            /// Gives the bare descriptor up, to a driver or to code that knows its kind.
            #[must_use]
            pub fn into_fd(self) -> OwnedFd {
                self.fd
            }
        }

        impl From<$name> for OwnedFd {
            fn from(handle: $name) -> Self {
                handle.fd
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.fd.as_fd()
            }
        }
    };
}

handle! {
    /// An opaque file descriptor that holds a timeline semaphore.
    ///
    /// What carries another kind does not pass for it, nor become it; and no bare descriptor does without `unsafe`,
    /// by which the caller vouches for its kind:
    ///
    /// ```compile_fail,E0308
    /// # use syncline_core::{BinaryFd, TimelineFd};
    /// fn import(handle: TimelineFd) {}
    /// fn pass(handle: BinaryFd) {
    ///     import(handle);
    /// }
    /// ```
    /// ```compile_fail,E0277
    /// # use syncline_core::{BinaryFd, TimelineFd};
    /// fn convert(handle: BinaryFd) -> TimelineFd {
    ///     handle.into()
    /// }
    /// ```
    /// ```compile_fail,E0133
    /// # use std::os::fd::OwnedFd;
    /// # use syncline_core::{Origin, TimelineFd};
    /// fn adopt(fd: OwnedFd, origin: Origin) -> TimelineFd {
    ///     TimelineFd::from_fd(fd, origin)
    /// }
    /// ```
    TimelineFd {}
}

handle! {
    /// An opaque file descriptor that holds a binary semaphore.
    ///
    /// What carries another kind does not pass for it, nor become it; and no bare descriptor does without `unsafe`,
    /// by which the caller vouches for its kind:
    ///
    /// ```compile_fail,E0308
    /// # use syncline_core::{BinaryFd, TimelineFd};
    /// fn import(handle: BinaryFd) {}
    /// fn pass(handle: TimelineFd) {
    ///     import(handle);
    /// }
    /// ```
    /// ```compile_fail,E0277
    /// # use syncline_core::{BinaryFd, TimelineFd};
    /// fn convert(handle: TimelineFd) -> BinaryFd {
    ///     handle.into()
    /// }
    /// ```
    /// ```compile_fail,E0133
    /// # use std::os::fd::OwnedFd;
    /// # use syncline_core::{BinaryFd, Origin};
    /// fn adopt(fd: OwnedFd, origin: Origin) -> BinaryFd {
    ///     BinaryFd::from_fd(fd, origin)
    /// }
    /// ```
    BinaryFd {}
}

handle! {
    /// An opaque file descriptor that holds device memory.
    MemoryFd {
        /// Bytes of the whole allocation.
        size: u64,
        /// Bytes of it, from its start, that are the buffer it was made for; drivers round allocations up.
        length: u64,
        /// True if it was made for one buffer alone, which an importer must say too.
        dedicated: bool
    }
    ///
    /// A `VkDevice` that imports memory of Vulkan's must allocate it as the exporter did, and make the same buffer
    /// (VUID-VkMemoryAllocateInfo-allocationSize-01742, VUID-VkMemoryDedicatedAllocateInfo-buffer-01879). It cannot ask
    /// how. So such memory was made like this:
    /// * The buffer has `length` bytes, no flags, and all usages of Vulkan 1.0 and no other. It was made for opaque file
    ///   descriptors alone.
    /// * Its sharing mode is concurrent, for all families that
    ///   [`Capabilities::queues`](crate::Capabilities::queues) lists, or exclusive where there is only one.
    /// * The memory has `size` bytes and no `VkMemoryAllocateFlagsInfo`. Its type is the first device-local one that
    ///   the buffer allows, in a heap of so many bytes; the first one allowed at all where none is device-local. Types
    ///   that are protected, lazily allocated, AMD's coherent and uncached, or NVIDIA's for RDMA do not count.
    /// * If `dedicated`, it was allocated for that buffer with `VkMemoryDedicatedAllocateInfo`, else without.
    ///
    /// Syncline's own exports are made so.
    unsafe
}

/// A failed import: the handle is still the caller's.
#[derive(Debug)]
pub struct Rejected<H> {
    /// The handle, unchanged.
    pub handle: H,
    /// Why it was refused.
    pub error: Error,
}

impl<H> fmt::Display for Rejected<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

/// Has no source: its text is the one of [`Rejected::error`].
impl<H: fmt::Debug> std::error::Error for Rejected<H> {}

impl<H> From<Rejected<H>> for Error {
    /// Keeps the reason and closes the handle.
    fn from(rejected: Rejected<H>) -> Self {
        rejected.error
    }
}
