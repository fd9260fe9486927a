//! Opened devices and their contexts.

pub(crate) mod context;
pub(crate) mod open;
