//! The host backend: queues are worker threads, work is closures.
//!
//! It needs no driver, so it is the embedded default, and it is the reference that other backends are
//! read against: `device`, `queue`, `port` and `timing` here stand beside files of the same names there.

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
