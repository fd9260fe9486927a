//! Ends a wait of the watching thread from another thread.

use std::sync::{Condvar, Mutex};

use ash::vk;

/// A timeline semaphore that the watching thread waits for too.
pub(crate) struct WakeSemaphore {
    pub(crate) raw: vk::Semaphore,
    pub(crate) counts: Mutex<WakeCounts>,
    /// Used instead of the semaphore where the driver's wait for any semaphore is a busy loop.
    pub(crate) polling: Condvar,
}

/// How often the watching thread was woken.
#[derive(Default)]
pub(crate) struct WakeCounts {
    /// Wakes so far.
    pub(crate) signalled: u64,
    /// Wakes that the watching thread has handled.
    pub(crate) seen: u64,
}

impl WakeSemaphore {
    /// `raw` is a timeline semaphore with the value 0.
    pub(crate) fn new(raw: vk::Semaphore) -> Self {
        Self {
            raw,
            counts: Mutex::default(),
            polling: Condvar::new(),
        }
    }
}
