//! Contexts, streams and events, and the device that has them.

pub(crate) mod context;
pub(crate) mod deferred_free;
pub(crate) mod event;
pub(crate) mod limits;
pub(crate) mod open;
pub(crate) mod raw_stream;
pub(crate) mod stream;
pub(crate) mod stream_lock;
