//! Buffers, images and their memory.

pub(crate) mod adopted;
pub(crate) mod allocation;
pub(crate) mod buffer;
pub(crate) mod from_application;
#[cfg(feature = "gpu-allocator")]
pub(crate) mod gpu_allocator;
pub(crate) mod image;
pub(crate) mod make_buffer;
pub(crate) mod make_image;
pub(crate) mod memory_type;
pub(crate) mod ownership;
pub(crate) mod unbound;
