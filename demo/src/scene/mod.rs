//! The picture of the demo: water in perspective, with a sky and the sun.
//!
//! Vulkan draws it with a graphics pipeline, and [`mod@reference`] computes the same bits on the
//! CPU. For this, nothing may depend on how a device rounds or interpolates:
//!
//! * the shaders use 32-bit integers, which wrap, and shift to the right arithmetically;
//! * a corner of a triangle is on a multiple of 1/16 of a pixel, which every device can represent.
//!   The size of the viewport is a power of two, so no step to that position rounds;
//! * what a vertex shader gives to the fragment shader is flat: of the first corner;
//! * all corners of a strip of the surface have one depth. Only different strips can overlap.
//!
//! Vulkan leaves to the device whether a pixel is inside whose middle is on an edge. All devices
//! have the top-left rule of Direct3D, and so has the reference.

#[cfg(feature = "vulkan")]
pub mod image;
#[cfg(feature = "vulkan")]
mod pipeline;
pub mod reference;
#[cfg(feature = "vulkan")]
pub mod renderer;
#[cfg(all(test, feature = "vulkan"))]
mod tests;
mod view;

pub use view::View;

/// SPIR-V of `water.vert`; see [`spirv_words`](super::compute::spirv_words).
pub const VERTEX_SPV: &[u8] = include_bytes!("water.vert.spv");

/// SPIR-V of `water.frag`.
pub const FRAGMENT_SPV: &[u8] = include_bytes!("water.frag.spv");
