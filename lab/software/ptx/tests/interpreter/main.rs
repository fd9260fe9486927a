//! The interpreter: single instructions, whole kernels, and what is refused.
#![allow(clippy::unwrap_used, reason = "a helper of tests")]

mod common;
mod grids;
mod images;
mod kernels;
mod opcodes;
mod refusals;
