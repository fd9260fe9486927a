//! Buffers and their memory.

pub(crate) mod allocation;
pub(crate) mod buffer;
pub(crate) mod ownership;
