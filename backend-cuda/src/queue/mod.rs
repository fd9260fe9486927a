//! Queues: submissions become calls on a stream.

pub(crate) mod queue_stream;
pub(crate) mod raw_submission;
pub(crate) mod recorder;
pub(crate) mod submission;
