//! What all rooms use: locks and atomics, errors, plain data about devices, handles, and the run queue.

pub(crate) mod blockers;
pub(crate) mod error;
pub(crate) mod exiting;
pub(crate) mod file_kind;
pub(crate) mod handle;
pub(crate) mod info;
pub(crate) mod names;
pub(crate) mod once;
pub(crate) mod peer;
pub(crate) mod process;
pub(crate) mod run;
pub(crate) mod stage;
pub(crate) mod steps;
pub(crate) mod sync;
pub(crate) mod sync_file;
pub(crate) mod timing;
