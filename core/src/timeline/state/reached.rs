//! Polling the ports, and waking waiters when the value has grown.

use std::sync::Arc;

use super::locked::State;
use super::recovery::RecoveryMode;
use super::shared::Shared;
use crate::base::error::{Error, Result};
use crate::base::exiting::is_exiting;
use crate::base::run::{DeferWakes, call_backend, wake_all};
use crate::base::stage::Stage;
use crate::base::sync::MutexGuard;
use crate::timeline::waiters::{Ticket, Woken};

impl Shared {
    /// Polls the home, unless no signal is outstanding. Returns the reached value.
    #[inline]
    pub(crate) fn refresh(&self) -> u64 {
        self.refresh_from(0, Self::advance)
    }

    /// Polls the home. Returns the reached value, or the failure.
    #[inline]
    pub(crate) fn value(&self) -> Result<u64> {
        self.require_maker()?;
        let value = self.refresh();
        match self.failure() {
            None => Ok(value),
            Some(cause) => Err(Error::failed(self.object(), value + 1, cause)),
        }
    }

    /// Same as [`Shared::refresh`], but usually does not call the waker of `waiter`.
    ///
    /// Calls that waker only if the timeline has other waiters.
    pub(crate) fn refresh_by(&self, waiter: Ticket) -> u64 {
        self.refresh_from(0, |of, value| of.advance_by(value, waiter))
    }

    /// Same as [`Shared::refresh`], but for values below `least` it polls no port except the home.
    ///
    /// Calls `advance` with a new value.
    #[inline(always)]
    fn refresh_from(&self, least: u64, advance: impl FnOnce(&Self, u64)) -> u64 {
        let reached = self.reached();
        let outside = self.has_raw_claims();
        let outstanding = self.pending() > reached || outside;
        // A forked child must not call its parent's driver, and an exiting process no driver.
        if !outstanding || self.is_forked() || self.failure().is_some() || is_exiting() {
            return reached;
        }
        if outside {
            self.refresh_pending();
        }
        let poll = || self.ports().poll(least);
        let polled = call_backend(self.object(), "Port::poll", poll);
        if outside
            && let Ok(Some(value)) = polled
            && value != u64::MAX
            && self.check_after_poll(value)
        {
            return self.reached();
        }
        match polled {
            // The usual case: no new value.
            Ok(Some(value)) if value <= reached => reached,
            Ok(Some(value)) if value != u64::MAX && !self.held_index().is_queue_position() => {
                advance(self, value);
                self.reached()
            }
            news => self.handle_polled(news),
        }
    }

    /// Takes over the value that signallers outside the engine report as pending, and wakes its
    /// waiters.
    #[inline(never)]
    pub(super) fn refresh_pending(&self) {
        let elsewhere = || self.home().pending_elsewhere();
        match call_backend(self.object(), "SharedPort::pending_elsewhere", elsewhere) {
            Ok(pending) if pending <= self.pending() => {}
            Ok(pending) => {
                let woken = {
                    let mut state = self.lock();
                    if state.failure.is_some() {
                        return;
                    }
                    self.raise_pending(pending);
                    self.take_settled(&mut state)
                };
                wake_all(woken);
            }
            Err(error) => {
                self.handle_polled(Err(error));
            }
        }
    }

    /// Handles the result of a poll other than a plainly higher value.
    #[inline(never)]
    fn handle_polled(&self, polled: Result<Option<u64>>) -> u64 {
        match polled {
            Ok(Some(u64::MAX)) => {
                self.advance_to_last(u64::MAX);
                self.fail_frozen(Arc::new(Error::device_lost(
                    self.object(),
                    "reading the counter",
                    -1,
                    "the counter reads all ones",
                )));
            }
            // A queue's position. The driver may be so fast that the signals of the submission are
            // not promoted yet, and the position must not become visible before them.
            Ok(Some(value)) => {
                self.advance(value.min(self.promoted()));
            }
            Ok(None) => {}
            Err(error) => {
                self.advance_to_last(u64::MAX);
                if let Some(lost) = self.ports().own_loss(&error) {
                    // The device's watching thread makes the missing signals, and no others.
                    self.fail_with_dependents(&lost.into_cause());
                } else if self.home().is_lost() {
                    self.fail_with_dependents(&error.into_cause());
                    self.recover(RecoveryMode::InTurn);
                } else {
                    self.fail_frozen(error.into_cause());
                }
            }
        }
        self.reached()
    }

    /// Notes what is reached, at most `most`, before the timeline fails (E1).
    ///
    /// A failed poll may be of another port than the home. So the home is polled once more.
    pub(super) fn advance_to_last(&self, most: u64) {
        let last = call_backend(self.object(), "Port::poll", || {
            Ok(self.ports().last_value())
        });
        let value = last.unwrap_or(0).min(most);
        self.advance(if self.held_index().is_queue_position() {
            value.min(self.promoted())
        } else {
            value
        });
    }

    /// False if [`Shared::refresh`] would find nothing new for a waiter for `value`.
    ///
    /// A polling wait calls this before each refresh. Reads two cache lines if no driver needs to
    /// be asked, and one of them never changes.
    #[inline]
    pub(crate) fn is_worth_a_look(&self, value: u64) -> bool {
        self.reached() >= value
            || !self.ports().engine_signals_all()
            || self.is_troubled()
            || self.has_raw_claims()
    }

    /// Same as [`Shared::refresh`], but only a load if `value` is known to be reached.
    ///
    /// May leave the known value unchanged if the home is below `value`.
    #[inline]
    pub(crate) fn refresh_to(&self, value: u64) {
        if self.reached() < value {
            self.refresh_from(value, Self::advance);
        }
    }

    /// Polls once if there is a driver to poll. True if `value` is reached.
    #[inline]
    pub(crate) fn looks_reached(&self, value: u64) -> bool {
        if !self.ports().is_only_a_value() {
            self.refresh_to(value);
        }
        self.reached() >= value
    }

    /// Same as [`Shared::looks_reached`], but never inlined.
    ///
    /// `None` for a value out of the legal range (T7), without a poll.
    #[inline(never)]
    pub(crate) fn look_for(&self, value: u64) -> Option<bool> {
        (value <= self.largest_legal()).then(|| self.looks_reached(value))
    }

    /// Polls what [`Shared::refresh_to`] may leave out. Call it before reporting how far the
    /// timeline is.
    pub(crate) fn refresh_below(&self) {
        if self.ports().has_others() {
            self.refresh();
        }
    }

    /// Same as [`Shared::refresh_to`], but polls only if a wait for `stage` needs it.
    ///
    /// Only the counter shows a pending signal from outside the engine.
    #[inline]
    pub(crate) fn refresh_for(&self, stage: Stage, value: u64) {
        let asks = match stage {
            Stage::Reached => true,
            Stage::Pending => self.pending() < value && self.has_raw_claims(),
        };
        if asks {
            self.refresh_to(value);
        }
    }

    /// Notes that `value` is reached.
    ///
    /// Wakes its waiters and releases held submissions on the calling thread.
    pub(crate) fn advance(&self, value: u64) {
        if self.ports().is_only_a_value() && self.publishes_ahead() {
            return self.advance_in_order(value);
        }
        if let Some(state) = self.reach(value) {
            self.wake_settled(state);
        }
    }

    /// Same as [`Shared::advance`], under the lock that orders host signals.
    ///
    /// For a published timeline: another process may answer before the value is visible here. A
    /// host signal that results from the answer must come after this value.
    #[cold]
    fn advance_in_order(&self, value: u64) {
        // Meanwhile only threads and eventfds are woken, and the rest after the lock is released.
        let _deferred = DeferWakes::new();
        let _order = self.lock_host_signals();
        if let Some(state) = self.reach(value) {
            self.wake_settled(state);
        }
    }

    /// Same as [`Shared::advance`], but usually does not call the waker of `waiter`.
    ///
    /// Calls that waker only if the timeline has other waiters.
    fn advance_by(&self, value: u64, waiter: Ticket) {
        if let Some(mut state) = self.reach(value) {
            let reached = state.reached;
            let Some(own) = state.waiters.take_only(waiter, reached) else {
                return self.wake_settled(state);
            };
            drop(state);
            drop(own);
        }
    }

    /// Wakes the waiters whose value is reached. Not inlined, because usually there is none.
    #[inline(never)]
    fn wake_settled(&self, mut state: MutexGuard<'_, State>) {
        let woken = self.take_settled(&mut state);
        drop(state);
        wake_all(woken);
    }

    /// Notes that `value` is reached, as far as it may become visible.
    ///
    /// Returns the lock if there may be waiters to wake.
    #[inline(always)]
    fn reach(&self, value: u64) -> Option<MutexGuard<'_, State>> {
        if value <= self.reached() {
            return None;
        }
        let value = self.publish_ahead(value);
        let mut state = self.lock();
        if state.failure.is_some() || value <= state.reached {
            return None;
        }
        self.set_reached(&mut state, value);
        // Usually there is no waiter.
        (!state.waiters.is_empty()).then_some(state)
    }

    /// Same as [`Shared::advance`], for a caller that has just signalled its claim of `value`.
    ///
    /// The claim ends.
    ///
    /// The caller wakes the returned waiters once it holds no lock.
    #[must_use]
    pub(super) fn advance_by_owner(&self, value: u64) -> Woken {
        let visible = self.publish_ahead(value);
        let mut state = self.lock();
        if state.failure.is_some() {
            return Woken::new();
        }
        // Usually true. Another thread may have polled the driver meanwhile.
        if visible > state.reached {
            self.set_reached(&mut state, visible);
        }
        self.raise_pending(value);
        self.lock_claims().remove(value);
        self.take_settled(&mut state)
    }
}
