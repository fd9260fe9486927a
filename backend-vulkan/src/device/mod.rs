//! Opened devices.

pub(crate) mod open;
