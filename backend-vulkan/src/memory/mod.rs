//! Buffers and their memory.

pub(crate) mod buffer;
