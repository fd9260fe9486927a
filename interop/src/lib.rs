//! Fences, timelines and timing queries for CUDA, Vulkan and the host, in one vocabulary.
//!
//! This is the crate that applications depend on. It re-exports the contract of `syncline-core`
//! and the backends behind features (`cuda` and `vulkan`, both on by default, each harmless where its
//! driver is absent), and adds what needs more than one of them:
//!
//! * [`Device`], [`Queue`] and [`Recorder`] as enums, so that an application picks at run time.
//! * [`Inventory`]: what is there, and the reason for what is not.
//! * [`share`] and [`connect`]: timelines and memory that two devices use together.
//! * [`negotiate`]: what any number of parties need, reconciled before anything is made.
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
//! // The consumer may come first: what waits is held until its signal is on the way.
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
pub use buffer::{Memory, SharedBuffer};
pub use negotiate::Mechanism;
pub use probe::{Found, Inventory, ProbeOptions};
pub use share::{Link, connect, share};
