//! Buffers.

pub(crate) mod buffer;
