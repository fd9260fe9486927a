//! Signals: claims, their promotion, and signals from the host.

use std::sync::Arc;

use super::claims::Claims;
use super::locked::State;
use super::shared::Shared;
use crate::base::error::{Error, Object, Result};
use crate::base::exiting::{exit_error, is_exiting};
use crate::base::run::{DeferWakes, call_backend, wake_all};
use crate::port::ByEngine;
use crate::timeline::interval::Interval;

/// A claim that was just made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewClaim {
    pub(crate) interval: Interval,
    /// True if its predecessor is pending.
    pub(crate) is_next: bool,
}

impl Shared {
    /// Claims `value` for a submission whose highest wait for this timeline is `own_wait`, or 0.
    ///
    /// The caller has [checked](Shared::check_signal_range) that the value is in the legal range.
    /// Wakes nothing and makes no driver call, so a queue may call it under its lock.
    ///
    /// # Errors
    /// In a box to keep the result small. See [`Timeline::claim`](crate::Timeline::claim).
    #[inline(always)]
    pub(crate) fn claim(&self, value: u64, own_wait: u64) -> Result<NewClaim, Box<Error>> {
        // A wait at or below the reached value does not count.
        if value <= own_wait && own_wait > self.reached() {
            return Err(self.behind_own_wait(value, own_wait));
        }
        if let Some(cause) = self.failure() {
            return Err(Box::new(Error::failed(self.object(), value, cause)));
        }
        let mut claims = self.lock_claims();
        let reached = self.reached();
        let pending = self.pending_from(reached);
        // Before the check. A claim that is promoted after `pending` was read must still be found
        // in the list.
        claims.settle(pending);
        if value <= pending {
            self.refuse_value(value, reached, pending)?;
        }
        match claims.take(value, own_wait, pending) {
            Ok(interval) => Ok(NewClaim {
                interval,
                is_next: interval.above <= pending,
            }),
            Err(claim) => Err(Box::new(self.overlap(value, claim))),
        }
    }

    #[cold]
    fn behind_own_wait(&self, asked: u64, waited: u64) -> Box<Error> {
        Box::new(Error::SignalBehindOwnWait {
            timeline: self.object().clone(),
            asked,
            waited,
        })
    }

    /// Promotes the claim of `value`: the driver of `domain` has the submission of `queue`.
    ///
    /// Call [`Shared::wake_promoted`] after that.
    #[inline]
    pub(crate) fn promote(&self, value: u64, domain: u64, queue: Option<&Object>) {
        self.note_signaller(value, domain, queue.map_or(0, Object::id));
        self.raise_pending(value);
    }

    /// Wakes the waiters for a promoted value.
    ///
    /// Takes the lock only if a waiter may have registered. Otherwise the submitting thread and the
    /// thread that sees the signal reached would contend for the lock on every submission.
    #[inline]
    pub(crate) fn wake_promoted(self: &Arc<Self>) {
        if self.is_awaited() {
            self.wake_promoted_waiters();
        }
    }

    /// Wakes the waiters that a promotion has settled.
    #[cold]
    fn wake_promoted_waiters(self: &Arc<Self>) {
        let (woken, watch) = {
            let mut state = self.lock();
            let woken = self.take_settled(&mut state);
            if state.waiters.is_empty() {
                self.note_not_awaited();
            }
            (woken, self.needs_watch(&mut state))
        };
        self.notify_watcher(watch);
        wake_all(woken);
    }

    /// Withdraws a claim. Wakes the waiters that only this claim could serve.
    pub(crate) fn withdraw(&self, claim: Interval) {
        if self.is_forked() {
            // The claim belongs to the parent process, and another thread may have held a lock at
            // the fork.
            return;
        }
        let (woken, closed) = {
            let mut state = self.lock();
            self.lock_claims().remove(claim.upto);
            (self.take_cancelled(&mut state), state.closed)
        };
        wake_all(woken);
        if closed {
            self.wake_holders();
        }
        // The bridge may wait for this claim before it closes.
        if let Some(publication) = self.publication() {
            publication.wake_bridge();
        }
    }

    /// Claims `value` for a host signal that follows.
    pub(crate) fn claim_next(&self, value: u64) -> Result<()> {
        let state = self.lock();
        let mut claims = self.lock_claims();
        self.check_host_signal(&state, &mut claims, value)?;
        // Until the value is reached, the claim keeps out the signals of queues.
        let pending = self.pending_locked(&state);
        let taken = claims.take(value, 0, pending);
        taken.map(drop).map_err(|claim| self.overlap(value, claim))
    }

    /// Signals `value` from the host, before it becomes visible on another side of the bridge.
    ///
    /// Calls `claimed` once no other signal can come before this one.
    ///
    /// # Errors
    /// [`Error::SignalNotAboveReached`] if `in_step` returns false. Same errors as
    /// [`Timeline::signal`](crate::Timeline::signal). A refused signal changes nothing.
    pub(crate) fn signal_ahead(
        &self,
        value: u64,
        in_step: impl FnOnce() -> bool,
        claimed: impl FnOnce(),
    ) -> Result<()> {
        self.signal_in_order(value, || {
            if !in_step() {
                return Err(Error::SignalNotAboveReached {
                    timeline: self.object().clone(),
                    asked: value,
                    reached: self.reached(),
                });
            }
            self.claim_next(value)?;
            claimed();
            Ok(())
        })
    }

    /// A host signal of a timeline without any port other than a host value.
    pub(crate) fn signal_here(&self, value: u64) -> Result<()> {
        let woken = {
            let mut state = self.lock();
            // Until the value is reached, no queue may claim.
            let mut claims = self.lock_claims();
            self.check_host_signal(&state, &mut claims, value)?;
            self.time_by_host(value);
            self.set_reached(&mut state, value);
            drop(claims);
            self.take_settled(&mut state)
        };
        wake_all(woken);
        Ok(())
    }

    /// Refuses a signal of the host that is not legal.
    ///
    /// It must be above the pending value, within the legal range (T7), and pass no claimed value.
    fn check_host_signal(&self, state: &State, claims: &mut Claims, value: u64) -> Result<()> {
        if let Some(cause) = &state.failure {
            return Err(Error::failed(self.object(), value, cause.clone()));
        }
        let (reached, settled) = (state.reached, self.pending_locked(state));
        if value <= settled || value > self.largest_legal_from(reached) {
            self.refuse_value(value, reached, settled)?;
        }
        if settled > reached {
            let outstanding = Interval {
                above: reached,
                upto: settled,
            };
            return Err(self.overlap(value, outstanding));
        }
        claims.settle(settled);
        match claims.lowest().filter(|claim| claim.above < value) {
            Some(claim) => Err(self.overlap(value, claim)),
            None => Ok(()),
        }
    }

    /// Makes the signal that a queue without a port has claimed. Its predecessor is reached.
    pub(crate) fn signal_claimed(&self, value: u64) {
        if self.failure().is_none() {
            // A driver error has failed the timeline, and waiters find it there.
            let _ = self.signal_in_order(value, || Ok(()));
        }
    }

    /// Signals through the home port if `check` succeeds, one host signal at a time.
    ///
    /// Wakes the waiters after the lock is released, because they may signal this timeline again.
    pub(crate) fn signal_in_order(
        &self,
        value: u64,
        check: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // During publication only threads and eventfds are woken, and the rest after the lock is
        // released.
        let _deferred = self.publishes_ahead().then(DeferWakes::new);
        let order = self.lock_host_signals();
        check()?;
        if is_exiting() {
            return Err(exit_error(self.object(), "be signalled"));
        }
        let above = self.reached();
        let claim = Interval { above, upto: value };
        if let Some(found) = self.read_before_signal(claim) {
            drop(order);
            return Err(self.fail_passed_claim(found, claim));
        }
        self.time_by_host(value);
        // After a panic as after an error, no thread may wait for the claimed value forever.
        let signal = || self.home().signal(value, ByEngine::new(self.home()));
        let signalled = call_backend(self.object(), "Port::signal", signal)
            .map(|()| self.advance_by_owner(value));
        drop(order);
        match signalled {
            Ok(woken) => {
                wake_all(woken);
                if self.reached() >= value {
                    return Ok(());
                }
                // The timeline failed while the port was signalled, so this value stays invisible.
                self.failure().map_or(Ok(()), |cause| {
                    Err(Error::failed(self.object(), value, cause))
                })
            }
            Err(error) => {
                self.fail_frozen(Arc::new(error.clone()));
                Err(error)
            }
        }
    }

    /// The refusal of a signal that is not above the pending value, or out of the legal range.
    #[cold]
    fn refuse_value(&self, value: u64, reached: u64, pending: u64) -> Result<()> {
        let timeline = self.object().clone();
        let largest = self.largest_legal_from(reached);
        Err(if value <= reached {
            Error::SignalNotAboveReached {
                timeline,
                asked: value,
                reached,
            }
        } else if value > largest {
            Error::value_out_of_range(timeline, value, reached, largest)
        } else {
            let above = reached;
            let upto = pending;
            self.overlap(value, Interval { above, upto })
        })
    }

    /// Refuses a signal of a queue that is above the legal range (T7).
    ///
    /// Call it before [`Shared::claim`], which refuses all signals of a failed timeline.
    ///
    /// # Errors
    /// [`Error::ValueOutOfRange`].
    #[inline]
    pub(crate) fn check_signal_range(&self, value: u64) -> Result<()> {
        if value <= self.largest_legal() {
            return Ok(());
        }
        self.check_far_signal(value)
    }

    #[cold]
    fn check_far_signal(&self, value: u64) -> Result<()> {
        match self.check_wait(value) {
            Err(_) if self.is_failed() => Ok(()),
            checked => checked,
        }
    }

    /// Refuses a wait that is out of the legal range (T7).
    #[inline]
    pub(crate) fn check_wait(&self, value: u64) -> Result<()> {
        if value <= self.largest_legal() {
            return Ok(());
        }
        self.refresh();
        let largest = self.largest_legal();
        if value <= largest {
            return Ok(());
        }
        Err(Error::value_out_of_range(
            self.object(),
            value,
            self.reached(),
            largest,
        ))
    }

    #[cold]
    fn overlap(&self, asked: u64, claim: Interval) -> Error {
        Error::SignalOverlapsClaim {
            timeline: self.object().clone(),
            asked,
            above: claim.above,
            upto: claim.upto,
        }
    }
}
