//! Ends a sleep of the thread that watches the device, from another thread.

use std::time::Duration;

use syncline_core::backend::kit::{Condvar, Mutex};

/// A request to end the watch, which lasts until the thread that watches sees it.
#[derive(Default)]
pub(crate) struct Wake {
    requested: Mutex<bool>,
    sleep: Condvar,
}

impl Wake {
    /// Wakes the watching thread. If it does not sleep, its next sleep ends at once.
    pub(crate) fn wake(&self) {
        *self.requested.lock() = true;
        self.sleep.notify_all();
    }

    /// Sleeps for `pause`, or until a wake. Returns true if there was a wake.
    ///
    /// A pause of zero only checks for a wake.
    pub(crate) fn sleep(&self, pause: Duration) -> bool {
        let requested = self.requested.lock();
        let mut requested = if pause.is_zero() {
            requested
        } else {
            self.sleep
                .wait_timeout_while(requested, pause, |requested| !*requested)
        };
        std::mem::take(&mut *requested)
    }
}
