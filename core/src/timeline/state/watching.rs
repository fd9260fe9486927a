//! Notifications from a timeline to the thread that watches its home port.

use std::sync::Arc;

use super::locked::State;
use super::shared::Shared;
use crate::base::error::Failure;
use crate::port::watch::Watched;
use crate::port::{Port, Watch};
use crate::timeline::waiters::Ticket;

/// No value to watch, although the watching thread may still hold the timeline.
///
/// No legal value is as large.
const NO_TARGET: u64 = u64::MAX;

impl Shared {
    /// Whether the watching thread must be notified.
    ///
    /// `None` if not. `Some(true)` if the watching thread does not have the timeline yet.
    pub(super) fn needs_watch(&self, state: &mut State) -> Option<bool> {
        self.watch()?;
        let target = self.lowest_target(state)?;
        if let Some(leader) = state.leader {
            if state.waiters.are_only(leader) {
                return None;
            }
            // The watching thread takes over the leader's value, too.
            state.leader = None;
        }
        let fresh = state.watched.is_none_or(|watched| watched == NO_TARGET);
        if state.watched.is_some_and(|watched| watched <= target) {
            return None;
        }
        state.watched = Some(target);
        Some(fresh)
    }

    /// Makes the calling thread, which has just registered for `value`, watch the home itself.
    ///
    /// Returns false if it must not. Otherwise the watching thread is not needed until the next
    /// registration. See [`Watcher::lead`](crate::backend::Watcher).
    pub(super) fn try_lead(&self, state: &mut State, ticket: Ticket, value: u64) -> bool {
        let Some(device) = self.watch().filter(|device| device.lends()) else {
            return false;
        };
        let leads = state.waiters.are_only(ticket)
            && state.watched.is_none_or(|watched| watched == NO_TARGET)
            && self.lowest_target(state) == Some(value)
            && device.watcher().lead();
        if leads {
            state.leader = Some(ticket);
        }
        leads
    }

    /// Hands the watch from the leading thread to the watching thread.
    ///
    /// The leading thread goes on waiting.
    pub(crate) fn stop_leading(self: &Arc<Self>) {
        let watch = {
            let mut state = self.lock();
            state.leader = None;
            self.needs_watch(&mut state)
        };
        self.notify_watcher(watch);
    }

    /// The lowest awaited value that the device can bring without a further action of the host.
    fn lowest_target(&self, state: &State) -> Option<u64> {
        let raw = self.has_raw_claims();
        if raw {
            // Without a page the engine does not learn when a signal from outside becomes pending,
            // so it must watch for the value.
            return state.waiters.lowest();
        }
        let lowest = state.waiters.lowest_for_reached()?;
        (lowest <= self.pending_locked(state)).then_some(lowest)
    }

    pub(super) fn notify_watcher(self: &Arc<Self>, watch: Option<bool>) {
        if let (Some(fresh), Some(device)) = (watch, self.watch()) {
            device
                .watcher()
                .want(&**device, fresh.then(|| self.clone() as Arc<dyn Watched>));
        }
    }
}

impl Watched for Shared {
    fn target(&self) -> Option<u64> {
        let mut state = self.lock();
        let target = self.lowest_target(&state);
        state.watched = Some(target.unwrap_or(NO_TARGET));
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
