//! Clocks of devices, times on them, and their conversion to the host's clock.
//!
//! [`TimestampCounter`] and [`Rounds`] convert a reading of a counter to a time in nanoseconds.
//! [`Clock`] converts that time to the host's clock, with a bound of the error. A clock samples
//! both clocks together now and then. It keeps the samples in a [`Map`].
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
mod counter;
mod device_clock;
mod estimate;
mod history;
mod map;
mod sample;
mod time;
#[cfg(test)]
mod truth;

pub use comparison::{Comparison, Finding};
pub use counter::{Rounds, TimestampCounter};
pub use device_clock::Clock;
pub use estimate::Estimate;
pub(crate) use history::History;
pub use map::{Drift, Map};
pub(crate) use sample::SameClock;
pub use sample::{Effort, HostClock, Sample, Sampled, Sampler};
pub use time::{Axis, Elapsed, Time};
