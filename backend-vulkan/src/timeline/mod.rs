//! Timelines as ports of the engine: timeline semaphores, and the watch over them.

pub(crate) mod port;
pub(crate) mod watch;
