//! Timestamp queries, and reading the device's clock through the driver.

pub(crate) mod clock;
pub(crate) mod stamp;
