//! What a queue needs from a backend.
//!
//! `enqueue` is the trait that hands submissions to a driver, and `home` that of its device. The
//! other modules are a kit for backends: the objects that a submission keeps, the lock of a driver
//! queue, pools, the in-flight budget, values that their first user makes, and errors of imports.

pub(crate) mod enqueue;
pub(crate) mod gate;
pub(crate) mod home;
pub(crate) mod import;
pub(crate) mod in_flight;
pub(crate) mod in_use;
pub(crate) mod keep;
pub(crate) mod once;
pub(crate) mod recycled;
