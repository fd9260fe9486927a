//! Queues: submissions become calls on a stream.

pub(crate) mod graph_launch;
pub(crate) mod queue_stream;
pub(crate) mod raw_submission;
pub(crate) mod recorder;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod steps;
pub(crate) mod submission;
