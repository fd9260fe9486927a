//! Compares the suite's cases with the documents, and runs those of sync files on a special driver.

mod coverage;
mod matrix;
mod rules;
#[cfg(feature = "vulkan")]
mod sync_files;
