//! Queues: how a submission becomes calls on a stream.

pub(crate) mod line;
pub(crate) mod recorder;
pub(crate) mod submission;
