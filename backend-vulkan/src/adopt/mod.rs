//! Adopting what an application already has, and raw handles out.

pub(crate) mod offer;
pub(crate) mod raw;
