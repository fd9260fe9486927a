//! Buffers and kernels.

pub(crate) mod buffer;
pub(crate) mod module;
