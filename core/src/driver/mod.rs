//! What a queue needs from a backend: how it hands over submissions (`enqueue`), and the kit for that: what a
//! submission keeps, the lock of a driver's queue, pools, and the in-flight budget.

pub(crate) mod enqueue;
pub(crate) mod gate;
pub(crate) mod in_flight;
pub(crate) mod in_use;
pub(crate) mod keep;
pub(crate) mod recycled;
