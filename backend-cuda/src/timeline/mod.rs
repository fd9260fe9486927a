//! Timelines as ports of the engine: rings of events, and counters in shared memory.

pub(crate) mod counter;
pub(crate) mod external;
pub(crate) mod imported;
pub(crate) mod port;
pub(crate) mod ring;
pub(crate) mod semaphore;
pub(crate) mod visibility;
