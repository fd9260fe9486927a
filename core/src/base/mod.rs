//! What all rooms use: locks, atomics, errors, handles, data about devices, and the run queue.

pub(crate) mod blockers;
pub(crate) mod descriptors;
pub(crate) mod error;
pub(crate) mod error_constructors;
pub(crate) mod error_kind;
#[cfg(feature = "tracing")]
pub(crate) mod events;
pub(crate) mod exiting;
pub(crate) mod file_kind;
pub(crate) mod handle;
pub(crate) mod image;
pub(crate) mod info;
pub(crate) mod object;
pub(crate) mod peer;
pub(crate) mod process;
pub(crate) mod queue_names;
pub(crate) mod run;
pub(crate) mod stage;
pub(crate) mod standby;
pub(crate) mod steps;
pub(crate) mod stored_closure;
pub(crate) mod sync;
pub(crate) mod sync_file;
pub(crate) mod timing;
