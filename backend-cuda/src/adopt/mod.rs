//! Adopting objects of the application, and raw handles.

pub(crate) mod raw;
pub(crate) mod word;
