//! Timeline semaphores as ports of the engine, binary semaphores, and watching ports.

pub(crate) mod binary;
pub(crate) mod port;
pub(crate) mod watch;
