//! The `VkDevice`: what it was made with, its `VkQueue`s, and the state that it keeps.

pub(crate) mod clock_readings;
pub(crate) mod deferred_destroy;
pub(crate) mod driver_queue;
pub(crate) mod file_kind;
pub(crate) mod native;
pub(crate) mod open;
pub(crate) mod physical;
pub(crate) mod query_pools;
pub(crate) mod wake;
