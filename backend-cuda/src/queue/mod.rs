//! Queues: streams, who has them, and how a submission becomes calls on them.

pub(crate) mod raw_stream;
pub(crate) mod recorder;
pub(crate) mod stream;
pub(crate) mod submission;
pub(crate) mod turn;
