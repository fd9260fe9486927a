//! Traces: records of what became of each submission, on all traced queues, with one time axis.
//!
//! A queue without a trace reads one flag per submission. A traced queue puts two stamps of its
//! device's clock around the work. It records when the work was submitted and when it went to the
//! driver. Host signals of awaited timelines are recorded with their times, too.
//!
//! ```
//! # extern crate syncline_core as syncline;
//! use std::time::Duration;
//! use syncline::backend::{Device as _, Queue as _};
//! use syncline::trace::Trace;
//! use syncline::{QueueKind, host};
//!
//! # fn main() -> syncline::Result<()> {
//! let device = host::Device::new();
//! let queue = device.queue(QueueKind::Compute, "worker")?;
//! let trace = Trace::new();
//! trace.follow(&queue)?;
//! queue.submit(&[], |_| Ok(()), &[])?;
//! queue.idle(Duration::from_secs(5))?;
//! let recording = trace.finish(Duration::from_secs(5));
//! assert_eq!(recording.tracks[0].submissions.len(), 1);
//! # Ok(())
//! # }
//! ```

mod clocks;
mod follower;
mod recording;
mod session;
mod timelines;

pub use recording::{Arrow, Edge, HostSignal, Outcome, Place, Recording, Submission, Track};
pub use session::Trace;
