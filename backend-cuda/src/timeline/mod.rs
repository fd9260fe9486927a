//! Ports of timelines: rings of events, counters in shared memory, imported semaphores.

pub(crate) mod counter;
pub(crate) mod external;
pub(crate) mod imported;
pub(crate) mod port;
pub(crate) mod ring;
pub(crate) mod semaphore;
pub(crate) mod visibility;
