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
pub mod future;
pub mod host;
pub mod trace;

mod access;
mod blockers;
mod bridge;
mod claim;
mod counter;
mod error;
mod exiting;
mod fence;
mod file_kind;
mod gate;
mod graph;
mod handle;
mod in_use;
mod info;
mod lane;
mod names;
mod notify;
mod once;
mod peer;
mod point;
mod process;
mod publish;
mod recycled;
mod room;
mod run;
mod shared_memory;
mod state;
mod stopwatch;
mod sync;
mod sync_file;
mod timeline;
mod times;
mod wait;
mod waiters;
mod watch;

pub use access::{SignalOnly, WaitOnly};
pub use blockers::{Blockers, Signaller, Step};
pub use claim::Claim;
pub use error::{Error, Failure, Object, Result, WorkError};
pub use fence::Fence;
pub use handle::{
    BinaryFd, BinaryWin32, BinaryWin32Kmt, CounterFd, D3d12FenceHandle, HandleKind, MemoryFd,
    Origin, Payload, PayloadUse, Rejected, SyncFd, TimelineFd, TimelineWin32, TimelineWin32Kmt,
    Transference, WindowsHandle,
};
pub use info::{BackendKind, Capabilities, DeviceId, Info, QueueFamily, QueueKind, Uuid};
pub use lane::{Held, Lane, Submitted};
pub use notify::Notification;
pub use peer::{PeerExit, PeerLoss};
pub use point::{KeptPoint, Point, Signal};
pub use process::Process;
pub use publish::WeakTimeline;
pub use shared_memory::{SharedWords, WordsFd};
pub use stopwatch::Stopwatch;
#[cfg(syncline_loom)]
pub use sync::Memory;
pub use timeline::Timeline;
pub use wait::{WaitMode, wait_all, wait_any};
pub use waiters::Stage;
pub use watch::Watcher;
