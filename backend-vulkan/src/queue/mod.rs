//! Queues: a `VkQueue`, command buffers, and how a submission becomes a call.

pub(crate) mod commands;
pub(crate) mod driver_queue;
pub(crate) mod recorder;
pub(crate) mod submission;
