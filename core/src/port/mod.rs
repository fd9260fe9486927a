//! What a timeline needs from a device: the thread that watches for its signals.

pub(crate) mod watch;
