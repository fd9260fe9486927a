//! The raw sides: direct calls of the drivers and of the system, as a hand-written program has.

pub(crate) mod channel;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(all(feature = "cuda", feature = "vulkan"))]
pub(crate) mod frames;
#[cfg(feature = "vulkan")]
pub(crate) mod vulkan;
