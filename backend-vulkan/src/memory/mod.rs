//! Buffers, and deferred destroys.

pub(crate) mod buffer;
pub(crate) mod deferred_destroy;
