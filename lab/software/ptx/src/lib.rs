//! A parser and an interpreter of PTX, for kernels of integers.
//!
//! [`Module::parse`] reads a text and refuses everything that the interpreter cannot run.
//! [`Entry::run`] runs a kernel of the module on a [`Machine`]: the memory and the clock that the
//! kernel sees.
//!
//! # What runs
//!
//! Kernels without floating point, shared memory, vectors of memory, calls and barriers. The
//! instructions are integer arithmetic, logic, comparisons, conversions, branches, loads and stores
//! of kernel parameters and of global memory, atomics on global memory, fences, `nanosleep`,
//! `griddepcontrol` and `trap`. An instruction is also refused when the PTX version or the target
//! of the module is older than the instruction, because NVIDIA's driver refuses it too.
//!
//! Surfaces and textures are objects in registers of 64 bits:
//!
//! | instruction | what runs |
//! |---|---|
//! | `suld.b`, `sust.b` | `.1d`, `.2d`, `.3d`, `.a1d`, `.a2d`; up to 16 bytes; `.trap`, `.clamp`, `.zero` |
//! | `tex`, `tex.base`, `tex.level` | the same geometries; `.v4` of `.u32`, `.s32` or `.f32`; coordinates and levels are `.s32` |
//!
//! `tex` gives the bits of a texel, without a filter. Outside of the texture it gives zero, and
//! `tex.level` the nearest texel of the level, or zero without such a level. A result of `.f32`
//! needs registers of type `.b32`, because there are none of `.f32`.
//!
//! # How a grid runs
//!
//! The threads of a block run in warps of 32, in lockstep. Where the threads of a warp branch
//! apart, the threads that are furthest behind continue first, so that all meet again. After some
//! hundred instructions the other threads get a turn.
//!
//! Warps run one after another on the calling thread. A warp is set aside after a thousand
//! instructions, and another warp continues. So a thread can wait for any other thread of its
//! block. As on a GPU, a grid can have more blocks than are resident at once: a thread that waits
//! for a thread of a later block may wait for ever.

#![forbid(unsafe_code)]

mod error;
mod launch;
mod lexer;
mod machine;
mod module;
mod op;
mod parse;
mod run;
mod types;

pub use error::{ParseError, Refusal};
pub use launch::{Launch, LaunchError};
pub use machine::{Fault, Geometry, Images, Machine};
pub use module::{Entry, Module, Param};
