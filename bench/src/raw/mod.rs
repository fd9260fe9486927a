//! The raw sides: direct calls of the drivers and of the system.
//!
//! The `unsafe` code of this crate is here, except for that of the kernels and of the allocator.

pub(crate) mod channel;
#[cfg_attr(
    not(feature = "cuda"),
    allow(dead_code, reason = "only raw CUDA hangs")
)]
pub(crate) mod child;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(all(feature = "cuda", feature = "vulkan"))]
pub(crate) mod frames;
pub(crate) mod futex;
pub(crate) mod held;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
pub(crate) mod least;
pub(crate) mod packets;
#[cfg(feature = "vulkan")]
pub(crate) mod vulkan;
