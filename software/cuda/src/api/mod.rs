//! The exported functions.

mod context;
mod copy;
mod device;
mod event;
mod external;
mod graph;
mod memory;
mod memory_op;
mod module;
mod observe;
mod stream;

/// A handle, or a pointer that is only given back.
pub(super) type Handle = usize;
