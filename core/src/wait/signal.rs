//! Signals of the host, which may have to wait for a moment.

use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::stage::Stage;
use crate::timeline::Timeline;
use crate::timeline::access::SignalOnly;
use crate::timeline::state::Shared;
use crate::wait::wait_stage;

/// The longest wait for memory behind a value that a counter shows. It takes a device microseconds.
const SHOWS_UNTIL: Duration = Duration::from_secs(1);

impl Timeline {
    /// Signals `value` from the host, and releases what was held for it, on this thread.
    ///
    /// Blocks for a moment, a second at most, where several devices have the timeline and a value below is signalled
    /// but not yet visible to the host.
    ///
    /// # Errors
    /// [`Error::SignalNotAboveReached`], [`Error::SignalOverlapsClaim`] or [`Error::ValueOutOfRange`],
    /// with the numbers and nothing changed; [`Error::Failed`]; a driver error, which fails the timeline.
    #[inline]
    pub fn signal(&self, value: u64) -> Result<()> {
        let shared = self.shared();
        if shared.host_signals.is_empty() {
            return shared.signal_from_host(value);
        }
        let make = || shared.signal_from_host(value);
        shared.host_signals.observe(shared, value, make)
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
    /// A host signal: checked, made through the home port, then known to be reached.
    pub(crate) fn signal_from_host(self: &Arc<Self>, value: u64) -> Result<()> {
        if self.is_counted_here() && !self.tells_ahead() {
            return self.signal_here(value);
        }
        self.refresh();
        self.wait_for_what_shows(value);
        self.signal_in_order(value, || self.claim_next(value))
    }

    /// Waits until the value that the counter shows counts as reached, if that value is below `value` (Q9).
    ///
    /// The memory behind it becomes visible a moment later. The application may know the value already, from another
    /// timeline, and its signal would be refused without reason.
    fn wait_for_what_shows(self: &Arc<Self>, value: u64) {
        if self.other_ports().next().is_none() || self.pending() == self.reached() {
            return;
        }
        if let Ok(Some(shows)) = self.home().poll()
            && self.reached() < shows
            && shows < value
        {
            // Where it does not become visible the signal is refused, or the timeline has failed.
            let _ = wait_stage(self, shows, Stage::Reached, SHOWS_UNTIL);
        }
    }
}
