//! Buffers, kernels, and deferred frees.

pub(crate) mod buffer;
pub(crate) mod deferred_free;
pub(crate) mod module;
