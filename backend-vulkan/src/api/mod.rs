//! The traits of core, implemented for this crate's devices and queues, and the clock.

pub(crate) mod clock;
pub(crate) mod device;
pub(crate) mod queue;
