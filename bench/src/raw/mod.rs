//! The other side: what somebody writes by hand against the system and the drivers, with nothing in between. All of this
//! crate's `unsafe` is here.

pub(crate) mod channel;
pub(crate) mod child;
pub(crate) mod futex;
#[cfg(feature = "vulkan")]
pub(crate) mod vulkan;
