//! CUDA graphs: capture and launch.

pub(crate) mod capture;
pub(crate) mod launch;
pub(crate) mod slots;
