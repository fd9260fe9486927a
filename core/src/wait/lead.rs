//! Threads that wait and watch for themselves.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Result;
use crate::base::sync::{Instant, system_time, yield_now};
use crate::port::Watch;
use crate::port::parker::Parker;
use crate::port::watch::{RETRY, ROUND, take_in};
use crate::timeline::state::Shared;
use crate::timeline::waiters::Ticket;

/// A thread that waits for a value and watches for it itself, while no other thread waits for anything
/// of the device. A thread that registers tells the watching thread, which starts once this is dropped.
pub(crate) struct Lead<'w> {
    of: &'w Arc<Shared>,
    device: &'w Arc<dyn Watch>,
    ticket: Ticket,
}

impl<'w> Lead<'w> {
    /// For a thread that leads (`Watcher::lead`) on the home device of `of`, where it waits with this ticket.
    pub(crate) fn new(of: &'w Arc<Shared>, ticket: Ticket) -> Option<Self> {
        let device = of.watch()?;
        Some(Self { of, device, ticket })
    }

    /// Has this thread watch, in place of being parked, until `until` or until it is woken.
    pub(crate) fn wait(&self, parker: &Parker, until: Option<Instant>) {
        let Some(watched) = parker.watch(self.device, || self.watch(until)) else {
            return;
        };
        if let Some(pause) = self.take_in(&watched) {
            parker.park(Some(pause));
        }
    }

    /// False once another thread has registered.
    pub(crate) fn goes_on(&self) -> bool {
        !self.device.watcher().is_wanted()
    }

    /// One watch, until `until` at the latest. Lasts [`ROUND`] at most, so that a dead device is noticed.
    fn watch(&self, until: Option<Instant>) -> Result<()> {
        let round = Instant::now() + ROUND;
        let until = until.map_or(round, |until| until.min(round));
        self.device
            .watch(&[(self.of.home(), self.ticket.value())], system_time(until))
    }

    /// What it has told. For how long not to watch again, if that was nothing.
    fn take_in(&self, watched: &Result<()>) -> Option<Duration> {
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

    /// The watching thread goes on with it. True if the system would not start that one.
    pub(crate) fn hand_over(self) -> bool {
        let of = self.of;
        drop(self);
        of.stop_leading();
        of.is_unwatched()
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.device.watcher().stop_leading();
    }
}
