//! Times that streams write, and the clock of the GPU.

pub(crate) mod clock;
pub(crate) mod stamp;
