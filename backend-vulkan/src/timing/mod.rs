//! Timestamp queries, and the device's clock as the driver reads it.

pub(crate) mod clock;
pub(crate) mod stamp;
