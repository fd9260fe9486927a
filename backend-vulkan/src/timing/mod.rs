//! Timestamp queries, and the clock of the device.

pub(crate) mod clock;
pub(crate) mod stamp;
