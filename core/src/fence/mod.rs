//! Fences: positions of queues that can be recorded again, with the semantics of CUDA events.

mod cell;
pub(crate) mod mark;

pub use cell::Fence;
