//! The end of a timeline: it fails, or its last handle is dropped.

use std::sync::Arc;

use smallvec::SmallVec;

use super::extras::Extras;
use super::locked::State;
use super::shared::Shared;
use crate::base::error::Failure;
use crate::base::run::wake_all;
use crate::base::sync::Instant;
use crate::port::Watch;
use crate::port::attachment::DevicePort;
use crate::port::watch::LETTING_GO;
use crate::timeline::interval::Interval;
use crate::timeline::waiters::Woken;

impl Shared {
    /// Closes this side because its bridge has lost its last handle.
    ///
    /// Other sides can still bring the values in `elsewhere`, which shrinks with each call.
    pub(crate) fn close_to(&self, elsewhere: Vec<Interval>) -> Closing<'_> {
        let mut state = self.lock();
        state.elsewhere = elsewhere;
        self.close_locked(&mut state)
    }

    /// Polls the home and fails the timeline at the value found.
    pub(crate) fn fail(&self, cause: Failure) {
        // The timeline of the parent process goes on.
        if self.is_forked() {
            return;
        }
        self.refresh();
        self.fail_frozen(cause);
    }

    /// Fails the timeline at the known value. Makes no driver call.
    pub(super) fn fail_frozen(&self, cause: Failure) {
        let woken = {
            let mut state = self.lock();
            if state.failure.is_some() {
                return;
            }
            state.failure = Some(cause.clone());
            self.note_troubled();
            state.waiters.take_unserved(|_| false)
        };
        #[cfg(feature = "tracing")]
        crate::base::events::failed(self.object(), &cause);
        wake_all(woken);
        self.wake_holders();
    }

    /// Closes the timeline because its last handle is gone, so that no new claims can be made.
    ///
    /// Does nothing if another process signals it. Does nothing in a forked child (P3), where a
    /// thread of the parent may have held the locks.
    pub(crate) fn close(&self) {
        let has_other_signaller = self.extras().is_some_and(Extras::has_remote_signaller);
        if has_other_signaller || self.is_forked() {
            return;
        }
        let closing = self.close_locked(&mut self.lock());
        closing.end();
    }

    fn close_locked(&self, state: &mut State) -> Closing<'_> {
        let closed_before = std::mem::replace(&mut state.closed, true);
        self.note_troubled();
        Closing {
            woken: self.take_cancelled(state),
            is_watched: !closed_before && state.watched.is_some(),
            of: self,
        }
    }
}

/// A timeline that has just been closed, with the waiters that this ends.
#[must_use = "the waiters must be woken"]
pub(crate) struct Closing<'s> {
    of: &'s Shared,
    woken: Woken,
    is_watched: bool,
}

impl Closing<'_> {
    /// Wakes the waiters, the bridge, the publisher and held submissions. No lock may be held.
    pub(crate) fn end(self) {
        wake_all(self.woken);
        self.of.wake_holders();
        if let Some(publication) = self.of.publication() {
            publication.wake_publisher();
        }
        let home = self.of.watch().filter(|_| self.is_watched);
        let guards = self.of.ports().guards().filter_map(DevicePort::watch);
        let mut devices: SmallVec<[&Arc<dyn Watch>; 4]> = SmallVec::new();
        for device in home.into_iter().chain(guards) {
            if !devices.iter().any(|one| Arc::ptr_eq(one, device)) {
                devices.push(device);
            }
        }
        // One time limit for all of them.
        let until = Instant::now() + LETTING_GO;
        for device in devices {
            device.watcher().let_go(&**device, until);
        }
    }
}
