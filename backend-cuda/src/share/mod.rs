//! Semaphores, memory and events that other APIs or processes share with CUDA.

pub(crate) mod binary;
pub(crate) mod external;
pub(crate) mod external_memory;
pub(crate) mod interprocess;
pub(crate) mod own_event;
