//! What applications call: the traits of core for devices and queues.

pub(crate) mod device;
pub(crate) mod queue;
