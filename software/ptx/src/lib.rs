//! A parser and an interpreter of PTX, for kernels of integers.
//!
//! [`Module::parse`] reads a text and refuses everything that the interpreter cannot run.
//! [`Entry::run`] runs a kernel of the module on a [`Machine`], which is the memory and the clock that
//! the kernel sees.
//!
//! # What runs
//!
//! Kernels without floating point, shared memory, textures, calls and barriers. The instructions are
//! integer arithmetic, logic, comparisons, conversions, branches, loads and stores of kernel
//! parameters and of global memory, atomics on global memory, fences, `nanosleep`, `griddepcontrol`
//! and `trap`. An instruction is also refused when the PTX version or the target of the module is
//! older than the instruction, because NVIDIA's driver refuses it too.
//!
//! # How a grid runs
//!
//! The threads of a block run in warps of 32, in lockstep. Where the threads of a warp branch apart,
//! the thread that is furthest behind continues first, so that the threads meet again. Warps run
//! one after another. A warp that takes long is set aside after a few thousand instructions,
//! and so is the part of a warp that does: a thread can therefore wait for another thread of its
//! block. As on a GPU, a grid can have more blocks than are resident at once.

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
pub use machine::{Fault, Machine};
pub use module::{Entry, Module, Param};
