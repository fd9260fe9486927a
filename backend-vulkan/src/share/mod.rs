//! Semaphores and memory that other APIs or processes share with Vulkan.

pub(crate) mod binary;
pub(crate) mod external;
pub(crate) mod external_memory;
pub(crate) mod payload;
pub(crate) mod sync_fd;
