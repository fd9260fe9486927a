//! Queues: recording and submitting to a `VkQueue`, and command buffers.

pub(crate) mod choose;
pub(crate) mod commands;
pub(crate) mod guard;
pub(crate) mod recorder;
pub(crate) mod submission;
