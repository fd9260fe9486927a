//! Buffers and kernels.

pub(crate) mod allocation;
pub(crate) mod buffer;
pub(crate) mod module;
