//! Waiting threads that watch a device in place of its watching thread.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Result;
use crate::base::exiting::DriverCalls;
use crate::base::sync::{Instant, yield_now};
use crate::port::Watch;
use crate::port::parker::Parker;
use crate::port::watch::{RETRY, ROUND, take_in, watch};
use crate::timeline::state::Shared;
use crate::timeline::waiters::Ticket;

/// The right of a waiting thread to watch the home itself.
///
/// It lasts while no other thread waits for the home's device. The next registration notifies the
/// watching thread, which begins once this is dropped.
pub(crate) struct Lead<'w> {
    of: &'w Arc<Shared>,
    device: &'w Arc<dyn Watch>,
    ticket: Ticket,
}

impl<'w> Lead<'w> {
    /// Makes the lead of a thread that `Watcher::lead` accepted and that waits for `of`.
    ///
    /// `None` if the home has no device that is watched.
    pub(crate) fn new(of: &'w Arc<Shared>, ticket: Ticket) -> Option<Self> {
        let device = of.watch()?;
        Some(Self { of, device, ticket })
    }

    /// Watches the home instead of parking, until `until` at the latest or until a wake.
    pub(crate) fn wait(&self, parker: &Parker, until: Option<Instant>) {
        let Some(watched) = parker.watch(self.device, || self.watch(until)) else {
            return;
        };
        if let Some(pause) = self.process(&watched) {
            parker.park(Some(pause));
        }
    }

    /// False once another thread has registered, so that the watching thread must take over.
    pub(crate) fn is_needed(&self) -> bool {
        !self.device.watcher().is_wanted()
    }

    /// Watches once, until `until` and for [`ROUND`] at most, so that a dead device is noticed.
    fn watch(&self, until: Option<Instant>) -> Result<()> {
        // The wait ends when the process exits.
        let Some(_calls) = DriverCalls::begin() else {
            return Ok(());
        };
        let round = Instant::now() + ROUND;
        let until = until.map_or(round, |until| until.min(round));
        let ports = [(self.of.home(), self.ticket.value())];
        watch(&**self.device, &ports, until)
    }

    /// Processes the result of a watch. Returns a pause before the next watch if this one failed.
    fn process(&self, watched: &Result<()>) -> Option<Duration> {
        let refresh = || self.of.refresh_by(self.ticket);
        if take_in(&**self.of, watched, refresh) {
            return None;
        }
        if watched.is_err() {
            return Some(RETRY);
        }
        yield_now();
        None
    }

    /// Hands the watch to the watching thread.
    pub(crate) fn hand_over(self) {
        let of = self.of;
        drop(self);
        of.stop_leading();
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.device.watcher().stop_leading();
    }
}
