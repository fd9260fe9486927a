//! Buffers, images and kernels.

pub(crate) mod allocation;
pub(crate) mod buffer;
pub(crate) mod host_copy;
pub(crate) mod image;
pub(crate) mod module;
