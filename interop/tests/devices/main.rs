//! Tests across the devices of this machine, of host memory, and of the repository's texts.

use std::sync::{Mutex, MutexGuard, PoisonError};

mod clocks;
#[cfg(feature = "vulkan")]
mod descriptors;
#[cfg(all(feature = "cuda", feature = "vulkan"))]
mod documents;
mod english;
mod flat;
mod memory;
mod published_times;
mod raw_signals;
mod typed;

/// Keeps the other tests of this program out. Each test that opens a GPU takes this first.
///
/// NVIDIA's driver (580.159) crashed or hung when several threads opened and dropped devices.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
