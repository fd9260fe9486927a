//! Ends a wait of the thread that watches the device, from another thread.

use std::time::Duration;

use ash::vk;
use syncline_core::backend::kit::{Condvar, Mutex};

/// A timeline semaphore that the thread that watches the device waits for too.
///
/// If the driver's wait for any semaphore is a busy loop, that thread polls and sleeps
/// instead. Then a wake ends the sleep, and the semaphore stays at 0.
pub(crate) struct WakeSemaphore {
    raw: vk::Semaphore,
    counts: Mutex<WakeCounts>,
    /// Notified by a wake if the watching thread sleeps.
    sleep: Option<Condvar>,
}

/// How often the watching thread was woken.
#[derive(Default)]
struct WakeCounts {
    /// Wakes so far.
    signalled: u64,
    /// Wakes that the watching thread has handled.
    seen: u64,
}

impl WakeCounts {
    const fn is_woken(&self) -> bool {
        self.signalled > self.seen
    }
}

impl WakeSemaphore {
    /// `raw` is a timeline semaphore at 0. `sleeps` is true if the watching thread sleeps.
    pub(crate) fn new(raw: vk::Semaphore, sleeps: bool) -> Self {
        Self {
            raw,
            counts: Mutex::default(),
            sleep: sleeps.then(Condvar::default),
        }
    }

    pub(crate) const fn raw(&self) -> vk::Semaphore {
        self.raw
    }

    /// True if the watching thread sleeps between polls.
    pub(crate) const fn sleeps(&self) -> bool {
        self.sleep.is_some()
    }

    /// The value of the semaphore that the watching thread waits for.
    pub(crate) fn awaited(&self) -> u64 {
        self.counts.lock().seen + 1
    }

    /// Marks all wakes so far as handled.
    pub(crate) fn handle_wakes(&self) {
        let mut counts = self.counts.lock();
        counts.seen = counts.signalled;
    }

    /// Wakes the watching thread, unless it has an unhandled wake.
    ///
    /// `signal` signals the semaphore to its argument. The arguments of all calls increase. After
    /// an error the thread is not woken.
    ///
    /// # Errors
    /// The error of `signal`.
    pub(crate) fn wake<E>(&self, signal: impl FnOnce(u64) -> Result<(), E>) -> Result<(), E> {
        let mut counts = self.counts.lock();
        if counts.is_woken() {
            return Ok(());
        }
        match &self.sleep {
            Some(sleep) => sleep.notify_one(),
            None => signal(counts.signalled + 1)?,
        }
        counts.signalled += 1;
        Ok(())
    }

    /// Sleeps for `pause`, or until a wake. Returns true at once if there is an unhandled wake.
    pub(crate) fn sleep(&self, pause: Duration) -> bool {
        let counts = self.counts.lock();
        if counts.is_woken() {
            return true;
        }
        if let Some(sleep) = &self.sleep {
            drop(sleep.wait_timeout(counts, pause));
        }
        false
    }
}
