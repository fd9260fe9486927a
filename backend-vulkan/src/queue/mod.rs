//! Queues: recording submissions and submitting them to a `VkQueue`.

pub(crate) mod choose;
pub(crate) mod command_pool;
pub(crate) mod context;
pub(crate) mod guard;
pub(crate) mod images;
pub(crate) mod raw_submission;
pub(crate) mod recorder;
pub(crate) mod recording;
pub(crate) mod submission;
pub(crate) mod submit_lists;
pub(crate) mod submitted_clock;
