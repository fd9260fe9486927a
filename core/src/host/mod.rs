//! The host backend: queues are worker threads, and work is closures.
//!
//! It needs no driver. It is the reference for other backends, whose rooms have the parts of
//! `device`, `queue`, `port` and `timing` here.

mod descriptor;
mod device;
mod port;
mod queue;
mod shared;
mod tasks;
mod timing;

pub use device::Device;
pub use queue::{Queue, Recorder};
pub use shared::{CounterPort, Exporter};
