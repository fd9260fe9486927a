//! The contract of Syncline and the engine behind it.
//!
//! One vocabulary of fences, timelines and timing queries for every API:
//!
//! * [`backend`] is the contract itself: what a device, a queue and a port are, in one file.
//! * [`Timeline`], [`Point`] and [`Fence`] are concrete types. A timeline holds one small host-side
//!   state and one [`backend::Port`] per device that takes part in it.
//! * The engine answers queries, wakes threads, holds submissions whose waits nobody has signalled
//!   yet, and carries failures. It is written once, here; a backend only moves values to and from its driver.
//! * [`host`] is the embedded backend and the reference: real worker threads, no driver.
//!
//! This crate names neither CUDA nor Vulkan. Applications depend on the crate `syncline`, which
//! puts all backends behind one set of enums.

pub mod backend;
pub mod clock;
pub mod host;
pub mod trace;

mod api;
mod base;
mod driver;
mod fence;
mod held;
mod link;
mod memory;
mod port;
mod queue;
mod timeline;
mod wait;

pub use api::stopwatch::Stopwatch;
pub use base::blockers::{Blockers, Signaller, Step};
pub use base::error::{Error, Failure, Object, Result, WorkError};
pub use base::handle::{
    BinaryFd, BinaryWin32, BinaryWin32Kmt, D3d12FenceHandle, HandleKind, MemoryFd, Origin, Payload,
    PayloadUse, Rejected, SyncFd, TimelineFd, TimelineWin32, TimelineWin32Kmt, Transference,
    WindowsHandle,
};
pub use base::info::{BackendKind, Capabilities, DeviceId, Info, QueueFamily, QueueKind, Uuid};
pub use base::peer::{PeerExit, PeerLoss};
pub use base::process::Process;
pub use base::stage::Stage;
#[cfg(syncline_loom)]
pub use base::sync::Memory;
pub use fence::Fence;
pub use link::publish::WeakTimeline;
pub use memory::counter::CounterFd;
pub use memory::{SharedWords, WordsFd};
pub use port::watch::Watcher;
pub use queue::{Held, SubmissionQueue, Submitted};
pub use timeline::Timeline;
pub use timeline::access::{SignalOnly, WaitOnly};
pub use timeline::claim::Claim;
pub use timeline::point::{KeptPoint, Point, Signal};
pub use wait::future;
pub use wait::notify::Notification;
pub use wait::{WaitMode, wait_all, wait_any};
