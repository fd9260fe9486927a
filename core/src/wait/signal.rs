//! Host signals, which may have to wait until an earlier value is visible.

use std::sync::Arc;
use std::time::Duration;

#[allow(unused_imports, reason = "for links, also in the facade")]
use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::stage::Stage;
use crate::timeline::Timeline;
use crate::timeline::access::SignalOnly;
use crate::timeline::state::{Extras, Shared};
use crate::wait::blocking::wait_stage;

/// The longest wait until the memory written before a shown value is visible.
///
/// A device usually needs microseconds.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(1);

impl Timeline {
    /// Signals `value` from the host. Submissions held for it are released on the calling thread.
    ///
    /// May block if several devices have the timeline and a lower value is signalled but not yet
    /// visible to the host. That takes microseconds as a rule, and 1 s at most.
    ///
    /// Returns after all released submissions have gone to their drivers. That takes about 1 µs for
    /// each on the host: one million of them blocked the calling thread for 0.8 s. The closures of
    /// these submissions run in this call, too. If that is too long for a thread, signal from
    /// another one.
    ///
    /// # Errors
    /// [`Error::SignalNotAboveReached`], [`Error::SignalOverlapsClaim`] or
    /// [`Error::ValueOutOfRange`], which change nothing. [`Error::Failed`]. A driver error, which
    /// fails the timeline.
    #[inline]
    pub fn signal(&self, value: u64) -> Result<()> {
        let shared = self.shared();
        shared.require_maker()?;
        shared.signal_observed(value, || shared.signal_from_host(value))
    }
}

impl SignalOnly {
    /// Signals `value` from the host, like [`Timeline::signal`].
    ///
    /// # Errors
    /// Same errors as [`Timeline::signal`].
    pub fn signal(&self, value: u64) -> Result<()> {
        self.timeline().signal(value)
    }
}

impl Shared {
    /// Makes a host signal of `value` with `signal`, and notes it in the traces that follow it.
    ///
    /// # Errors
    /// The error of `signal`.
    #[inline]
    pub(crate) fn signal_observed(
        &self,
        value: u64,
        signal: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let observers = self.extras().map(Extras::host_signals);
        match observers.filter(|observers| !observers.is_empty()) {
            None => signal(),
            Some(observers) => observers.observe(self, value, signal),
        }
    }

    /// Checks a host signal, makes it through the home port, and notes that it is reached.
    pub(crate) fn signal_from_host(self: &Arc<Self>, value: u64) -> Result<()> {
        if self.ports().is_only_a_value() && !self.publishes_ahead() {
            return self.signal_here(value);
        }
        self.home().takes_host_signals(value)?;
        self.refresh();
        self.wait_until_visible(value);
        self.signal_in_order(value, || self.claim_next(value))
    }

    /// Waits until the value that the counter shows counts as reached, if it is below `value` (Q9).
    ///
    /// The memory written before that value becomes visible a moment later. The application may
    /// know of the value already, through another timeline. Without this wait its signal would be
    /// refused.
    fn wait_until_visible(self: &Arc<Self>, value: u64) {
        if !self.ports().has_others() || self.pending() == self.reached() {
            return;
        }
        if let Ok(Some(shown)) = self.home().poll()
            && self.reached() < shown
            && shown < value
        {
            // If the memory does not become visible, the signal is refused or the timeline has
            // failed.
            let _ = wait_stage(self, shown, Stage::Reached, VISIBILITY_TIMEOUT);
        }
    }
}
