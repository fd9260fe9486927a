//! Timelines as ports of the engine: rings of events, and counters in shared memory.

pub(crate) mod counter;
pub(crate) mod event;
pub(crate) mod own_event;
pub(crate) mod port;
pub(crate) mod ring;
pub(crate) mod visibility;
