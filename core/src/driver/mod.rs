//! What a queue needs from a backend: the lock of a driver's queue, pools, and the in-flight budget.

pub(crate) mod gate;
pub(crate) mod in_use;
pub(crate) mod recycled;
pub(crate) mod room;
