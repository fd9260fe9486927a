//! The traits of core, implemented for this crate's devices and queues.

pub(crate) mod device;
pub(crate) mod queue;
