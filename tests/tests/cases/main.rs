//! The suite's cases: what the documents say of them, and those of sync files on a driver that has
//! some.

mod coverage;
mod matrix;
mod rules;
#[cfg(feature = "vulkan")]
mod sync_files;
