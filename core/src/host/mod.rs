//! The host backend: queues are worker threads, and work is closures.
//!
//! It needs no driver. Other backends follow it. They have a room for each of these files:
//! `device`, `worker`, `port`, `timing`.
//!
//! ```
//! # extern crate syncline_core as syncline;
//! use std::time::Duration;
//! use syncline::backend::{Device as _, Queue as _};
//! use syncline::{Error, QueueKind, host};
//!
//! # fn main() -> syncline::Result<()> {
//! let device = host::Device::new();
//! let queue = device.queue(QueueKind::Compute, "loader")?;
//! let loaded = device.timeline("loaded")?;
//! let work = |worker: &mut host::Recorder<'_>| {
//!     worker.run(|| println!("runs on the worker thread"));
//!     worker.try_run(|| Err(Error::work("the file is missing")));
//!     Ok(())
//! };
//! queue.submit(&[], work, &[loaded.signal_at(1)])?;
//! let failed = loaded.at(1).wait(Duration::from_secs(5)).unwrap_err();
//! assert!(matches!(failed.root(), Error::Work(_)));
//! # Ok(())
//! # }
//! ```

mod buffer;
mod counter_port;
mod descriptor;
mod device;
mod import;
mod port;
mod shared;
mod tasks;
mod timing;
mod worker;

pub use buffer::Buffer;
pub use counter_port::CounterPort;
pub use device::{Device, Queue};
#[cfg(syncline_loom)]
pub use port::value_port;
pub use shared::Exporter;
pub use worker::Recorder;
