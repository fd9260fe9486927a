//! Buffers, images and kernels.

pub(crate) mod allocation;
pub(crate) mod buffer;
pub(crate) mod image;
pub(crate) mod module;
