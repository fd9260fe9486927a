//! Clocks of devices, times on them, and their conversion to the host's clock.
//!
//! A device writes times of its own clock, in nanoseconds. [`Clock`] converts them to the host's
//! clock, with a bound of the error. For that it samples both clocks together now and then, and
//! keeps the samples in a [`Map`].
//!
//! ```
//! # extern crate syncline_core as syncline;
//! use std::time::Duration;
//! use syncline::backend::{Device as _, Queue as _};
//! use syncline::{QueueKind, host};
//!
//! # fn main() -> syncline::Result<()> {
//! let device = host::Device::new();
//! let queue = device.queue(QueueKind::Compute, "worker")?;
//! let (begin, end) = (device.clocked_fence("begin")?, device.clocked_fence("end")?);
//! queue.record(&begin)?;
//! queue.submit(&[], |_| Ok(()), &[])?;
//! queue.record(&end)?;
//! end.wait(Duration::from_secs(5))?;
//! println!("it took {}", end.time()?.since(&begin.time()?)?);
//! println!("it ended at {} of the host's clock", end.time()?.to_host()?);
//! # Ok(())
//! # }
//! ```

mod check;
mod compare;
mod comparison;
pub(crate) mod counter;
mod device_clock;
mod estimate;
mod history;
mod map;
pub(crate) mod sample;
mod time;
#[cfg(test)]
mod truth;

pub use comparison::{Comparison, Finding};
pub use device_clock::Clock;
pub use estimate::Estimate;
pub(crate) use history::History;
pub use map::{Drift, Map};
pub(crate) use sample::SameClock;
pub use sample::{HostClock, Sample, Sampled};
pub use time::{Axis, Elapsed, Time};
