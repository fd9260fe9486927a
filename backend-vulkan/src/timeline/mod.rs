//! Timeline semaphores as ports, binary semaphores, and the watch over ports.

pub(crate) mod port;
pub(crate) mod raw_binary;
pub(crate) mod watch;
