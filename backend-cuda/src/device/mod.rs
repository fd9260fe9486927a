//! The device with its context, streams and events.

pub(crate) mod capture_mode;
pub(crate) mod context;
pub(crate) mod deferred_free;
pub(crate) mod event;
pub(crate) mod inner;
pub(crate) mod limits;
pub(crate) mod observers;
pub(crate) mod open;
pub(crate) mod raw_stream;
pub(crate) mod stream;
pub(crate) mod stream_lock;
pub(crate) mod user_object;
pub(crate) mod wake;
