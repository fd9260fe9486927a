//! Timeline semaphores as ports, the watch over ports, and binary semaphores.

pub(crate) mod attach;
pub(crate) mod port;
pub(crate) mod raw_binary;
pub(crate) mod semaphore;
pub(crate) mod watch;
