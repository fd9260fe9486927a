//! What the devices of this machine do together, the memory of the host, and the repository's texts.

use std::sync::{Mutex, MutexGuard, PoisonError};

mod clocks;
#[cfg(all(feature = "cuda", feature = "vulkan"))]
mod documents;
mod english;
mod memory;
mod raw_signals;
mod told;

/// Keeps the other tests of this program out. Each test that opens devices of a GPU takes this first.
///
/// NVIDIA's driver (580.159) crashed or hung where threads opened and dropped several devices at the same time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
