//! The public traits `Device` and `Queue`, and the clock.

pub(crate) mod clock;
pub(crate) mod device;
pub(crate) mod queue;
