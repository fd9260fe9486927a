//! The `VkDevice`: what it was created with, its `VkQueue`s, and its state.

pub(crate) mod application_memory;
pub(crate) mod clock_readings;
pub(crate) mod deferred_destroy;
pub(crate) mod driver_queue;
pub(crate) mod external;
pub(crate) mod file_kind;
pub(crate) mod inner;
pub(crate) mod limits;
pub(crate) mod memory_pool;
pub(crate) mod native;
pub(crate) mod open;
pub(crate) mod physical;
pub(crate) mod query_pools;
pub(crate) mod spare;
pub(crate) mod wake;
