//! Semaphores, memory and events shared with other APIs or processes.

pub(crate) mod binary;
pub(crate) mod external;
pub(crate) mod external_memory;
pub(crate) mod interprocess;
pub(crate) mod own_event;
