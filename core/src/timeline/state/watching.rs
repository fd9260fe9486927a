//! What a timeline tells the thread that watches its home port.

use std::sync::Arc;

use super::{Shared, State};
use crate::base::error::Failure;
use crate::base::sync::Ordering;
use crate::port::watch::Watched;
use crate::port::{Port, Watch};
use crate::timeline::waiters::Ticket;

/// In the place of a value that is watched for: the watcher has nothing to look for any more, but may have the timeline in
/// its hands for a moment longer. No value is as large.
const LEFT: u64 = u64::MAX;

impl Shared {
    /// If the watcher must be told: whether the timeline is new to it.
    pub(super) fn needs_watch(&self, state: &mut State) -> Option<bool> {
        let device = self.watch()?;
        let target = self.lowest_target(state)?;
        if let Some(leader) = state.led {
            if state.waiters.are_only(leader) {
                return None;
            }
            // From here on the watcher looks for his value, too.
            state.led = None;
        }
        let fresh = state.watched.is_none_or(|watched| watched == LEFT);
        if state.watched.is_some_and(|watched| watched <= target) {
            // Told already; but a thread that could not be started may be by now.
            return device.watcher().is_blind().then_some(false);
        }
        state.watched = Some(target);
        Some(fresh)
    }

    /// True if the thread that has just registered to wait for `value` is to watch for itself from now on, see
    /// [`Watcher::lead`](crate::Watcher): that nobody has to be told then. With whoever registers besides, that ends.
    pub(super) fn leads(&self, state: &mut State, ticket: Ticket, value: u64) -> bool {
        let Some(device) = self.watch().filter(|device| device.lends()) else {
            return false;
        };
        let leads = state.waiters.are_only(ticket)
            && state.watched.is_none_or(|watched| watched == LEFT)
            && self.lowest_target(state) == Some(value)
            && device.watcher().lead();
        if leads {
            state.led = Some(ticket);
        }
        leads
    }

    /// The thread that has watched for itself leaves that to the watcher, and goes on waiting.
    pub(crate) fn stop_leading(self: &Arc<Self>) {
        let watch = {
            let mut state = self.locked.state.lock();
            state.led = None;
            self.needs_watch(&mut state)
        };
        self.tell_watcher(watch);
    }

    /// The lowest value that somebody waits for and that can come by itself.
    fn lowest_target(&self, state: &State) -> Option<u64> {
        let raw = self.seen.raw_claims.load(Ordering::Relaxed) > 0;
        if raw {
            // Nobody says when a signal from outside is pending: whoever waits for that learns it with the value.
            return state.waiters.lowest();
        }
        let lowest = state.waiters.lowest_for_reached()?;
        (lowest <= self.pending_locked(state)).then_some(lowest)
    }

    pub(super) fn tell_watcher(self: &Arc<Self>, watch: Option<bool>) {
        if let (Some(fresh), Some(device)) = (watch, self.watch()) {
            device
                .watcher()
                .want(&**device, fresh.then(|| self.clone() as Arc<dyn Watched>));
        }
    }

    /// True if nobody will notice what the home's driver signals, but for those who look themselves.
    pub(crate) fn is_unwatched(&self) -> bool {
        self.watch()
            .is_some_and(|device| device.watcher().is_blind())
    }

    /// Does what the home's watcher would do for its queues, if that cannot be started: for who waits meanwhile.
    pub(crate) fn tend_unwatched(&self) {
        if let Some(device) = self.watch().filter(|_| self.is_unwatched()) {
            device.watcher().tend();
        }
    }
}

impl Watched for Shared {
    fn target(&self) -> Option<u64> {
        let mut state = self.locked.state.lock();
        let target = self.lowest_target(&state);
        state.watched = Some(target.unwrap_or(LEFT));
        target
    }

    fn home(&self) -> &dyn Port {
        self.home()
    }

    fn watch(&self) -> Option<&Arc<dyn Watch>> {
        self.watch()
    }

    fn reached(&self) -> u64 {
        self.reached()
    }

    fn refresh(&self) -> u64 {
        self.refresh()
    }

    fn fail(&self, cause: Failure) {
        self.fail(cause);
    }
}
