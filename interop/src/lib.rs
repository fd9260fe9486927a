//! Fences, timelines and timing queries for CUDA, Vulkan and the host, with one API.
//!
//! Applications depend on this crate. It re-exports the contract of `syncline-core` and the
//! backends. The features `cuda` and `vulkan` enable the backends and are on by default. A backend
//! whose driver is missing does no harm. This crate adds what needs more than one backend:
//!
//! * [`Device`], [`Queue`] and [`Recorder`]: enums, to choose the backend at run time.
//! * [`Inventory`]: the devices of this machine, and why a device or backend cannot be used.
//! * [`share`](fn@share) and [`connect`]: timelines and memory that two devices share.
//! * [`negotiate`]: one plan for the needs of any number of parties, before any object is made.
//! * [`process`]: endpoints between processes.
//!
//! ```
//! use std::time::Duration;
//! use syncline::backend::{Device, Queue};
//!
//! # fn main() -> syncline::Result<()> {
//! let host = syncline::host::Device::new();
//! let frames = host.timeline("frames")?;
//! let (producer, consumer) = (
//!     host.queue(syncline::QueueKind::Compute, "producer")?,
//!     host.queue(syncline::QueueKind::Compute, "consumer")?,
//! );
//! // The consumer may be submitted first. It is held until its signal is pending.
//! consumer.submit(&[frames.at(1)], |r| { r.run(|| println!("shade")); Ok(()) }, &[frames.signal_at(2)])?;
//! producer.submit(&[], |r| { r.run(|| println!("simulate")); Ok(()) }, &[frames.signal_at(1)])?;
//! frames.at(2).wait(Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! ```

pub use syncline_core::*;

#[cfg(feature = "cuda")]
pub use syncline_cuda as cuda;
#[cfg(feature = "vulkan")]
pub use syncline_vulkan as vulkan;

/// What nearly every program uses: the methods of devices and queues, and the usual types.
///
/// ```
/// use syncline::prelude::*;
/// ```
pub mod prelude {
    pub use syncline_core::backend::{Device as _, Queue as _};
    pub use syncline_core::{Error, Fence, Point, QueueKind, Timeline};

    pub use crate::{Inventory, Link, ProbeOptions, connect, share};
}

mod any;
mod binary;
mod buffer;
mod foreign;
pub mod negotiate;
mod probe;
pub mod process;
mod share;

pub use any::{Device, Queue, Recorder};
pub use binary::BinarySemaphore;
pub use buffer::{BufferDevice, Memory, SharedBuffer};
pub use negotiate::Mechanism;
pub use probe::{Candidate, Found, Inventory, ProbeOptions};
pub use share::{Link, connect, share};
