//! Adopts objects of the application, and gives out raw handles.

pub(crate) mod offer;
pub(crate) mod raw;
