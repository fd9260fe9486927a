//! Handles that carry semaphores and memory between APIs, one type per kind.
//!
//! Drivers cannot distinguish the kinds: some import a memory handle as a semaphore and report
//! success. So the kind is part of the type, and a raw descriptor enters only by an `unsafe`
//! constructor. The exceptions are kinds that need no driver and are checked when they enter:
//! counters and words in shared memory (`memory/`), and sync files.

pub(crate) mod kind;
mod opaque_fd;
mod origin;
mod rejected;
mod sync_fd;

pub use kind::{HandleKind, Payload, PayloadUse};
pub use opaque_fd::{BinaryFd, MemoryContent, MemoryFd, MemoryInfo, TimelineFd};
pub use origin::Origin;
pub use rejected::Rejected;
pub use sync_fd::SyncFd;
