//! Timeline semaphores as ports, binary semaphores, and the watch over ports.

pub(crate) mod binary;
pub(crate) mod port;
pub(crate) mod watch;
