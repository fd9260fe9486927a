//! How far a timeline is: asking its ports, and what follows where it has come further.

use std::sync::Arc;

use super::{Part, RemainingPeers, Shared, State};
use crate::base::error::{Error, Result};
use crate::base::run::{PutOff, wake_all};
use crate::base::stage::Stage;
use crate::base::sync::{MutexGuard, Ordering};
use crate::timeline::waiters::{Ticket, Woken};

impl Shared {
    /// Asks the home port for the value, unless nothing can have changed. Returns the value reached.
    #[inline]
    pub(crate) fn refresh(&self) -> u64 {
        self.refresh_from(0, Self::advance)
    }

    /// The value by now, or the failure.
    #[inline]
    pub(crate) fn value(&self) -> Result<u64> {
        let value = self.refresh();
        match self.failure() {
            None => Ok(value),
            Some(cause) => Err(Error::Failed {
                timeline: self.object.clone(),
                value: value + 1,
                cause,
            }),
        }
    }

    /// As [`Shared::refresh`], by who waits with this ticket: if nobody else does, he is not told.
    pub(crate) fn refresh_by(&self, waiter: Ticket) -> u64 {
        self.refresh_from(0, |of, value| of.advance_by(value, waiter))
    }

    /// As [`Shared::refresh`], for who wants to hear of `least` and what is above: below that only the home is asked. What mostly is
    /// news, a higher value, goes to `advance`.
    #[inline(always)]
    fn refresh_from(&self, least: u64, advance: impl FnOnce(&Self, u64)) -> u64 {
        let reached = self.reached();
        let outside = self.seen.raw_claims.load(Ordering::Relaxed) > 0;
        let outstanding = self.pending() > reached || outside;
        if !outstanding || self.failure().is_some() {
            return reached;
        }
        if outside {
            self.hear_of_pending();
        }
        let polled = if self.others.is_empty() {
            self.home.port.poll()
        } else {
            self.poll_all(least)
        };
        match polled {
            // Mostly nothing has happened.
            Ok(Some(value)) if value <= reached => reached,
            Ok(Some(value)) if value != u64::MAX && !self.held_index.is_a_queues() => {
                advance(self, value);
                self.reached()
            }
            news => self.take_in(news),
        }
    }

    /// Takes over what whoever signals beyond the engine says to be pending, and releases those who waited for no more than that.
    #[inline(never)]
    pub(super) fn hear_of_pending(&self) {
        match self.home.port.pending_elsewhere() {
            Ok(pending) if pending <= self.pending() => {}
            Ok(pending) => {
                let woken = {
                    let mut state = self.locked.state.lock();
                    if state.failure.is_some() {
                        return;
                    }
                    self.raise_pending(pending);
                    self.take_settled(&mut state)
                };
                wake_all(woken);
            }
            Err(error) => {
                self.take_in(Err(error));
            }
        }
    }

    /// Notes that everything up to `value` was signalled before the timeline was made. It counts as pending, and
    /// as reached from the first query on.
    pub(crate) fn note_signalled(&self, value: u64) {
        self.claimed.pending.fetch_max(value, Ordering::Release);
    }

    /// What the ports have told, if that is not just a higher value.
    #[inline(never)]
    fn take_in(&self, polled: Result<Option<u64>>) -> u64 {
        match polled {
            Ok(Some(u64::MAX)) => self.fail_frozen(Arc::new(Error::DeviceLost {
                object: self.object.clone(),
                call: "reading the counter",
                code: -1,
                name: "the counter reads all ones".into(),
            })),
            // Of a queue's position, which comes behind the signals of its submission: and those may not be known to be with the
            // driver yet, however fast that is.
            Ok(Some(value)) => {
                self.advance(value.min(self.claimed.pending.load(Ordering::Acquire)));
            }
            Ok(None) => {}
            Err(error) => {
                // Another thread may have been told a value that it has not noted yet.
                let visible = |value, part: &Part| part.port.visible(value).unwrap_or(0);
                let told = self.others.iter().fold(self.home().told(), visible);
                self.advance(told);
                if self.home().is_lost() {
                    self.lose(&error.into_cause());
                    self.recover(RemainingPeers::Several);
                } else {
                    self.fail_frozen(error.into_cause());
                }
            }
        }
        self.reached()
    }

    /// The home's value, as far as the host sees what every side did before it signalled.
    ///
    /// A driver may take a hundred times as long to tell whether memory is visible as the home takes to tell its value, and what it
    /// does for that may hold up what is waited for. So it is not asked about a value that nobody here wants.
    fn poll_all(&self, least: u64) -> Result<Option<u64>> {
        let mut value = self.home().poll()?.filter(|&value| value >= least);
        for other in &self.others {
            if let Some(reached) = value.filter(|&value| value != u64::MAX) {
                value = Some(other.port.visible(reached)?);
            }
        }
        Ok(value)
    }

    /// False if a look at the timeline would find nothing new for who waits until `value` is reached: what a wait
    /// that polls asks before each look. Loads of one cache line where no driver is to be asked.
    #[inline]
    pub(crate) fn is_worth_a_look(&self, value: u64) -> bool {
        self.reached() >= value
            || !self.noted_here
            || self.seen.troubled.load(Ordering::Acquire)
            || self.seen.raw_claims.load(Ordering::Relaxed) > 0
    }

    /// As [`Shared::refresh`], but a load if `value` is known to be reached; and where its home says that it is not, what is below
    /// it may stay as it was.
    #[inline]
    pub(crate) fn refresh_to(&self, value: u64) {
        if self.reached() < value {
            self.refresh_from(value, Self::advance);
        }
    }

    /// Looks whether `value` is reached, once, and asks the driver where there is one to be asked.
    #[inline]
    pub(crate) fn looks_reached(&self, value: u64) -> bool {
        if !self.counts_here {
            self.refresh_to(value);
        }
        self.reached() >= value
    }

    /// As [`Shared::looks_reached`], in one piece; but nobody is asked about a value that no device can tell from others (T7), and then it is
    /// `None`.
    #[inline(never)]
    pub(crate) fn look_for(&self, value: u64) -> Option<bool> {
        (value <= self.largest_legal()).then(|| self.looks_reached(value))
    }

    /// Makes up for what [`Shared::refresh_to`] leaves out: for who is about to tell how far the timeline is.
    pub(crate) fn refresh_below(&self) {
        if !self.others.is_empty() {
            self.refresh();
        }
    }

    /// As [`Shared::refresh_to`], as far as a wait for `stage` needs it: that a signal from beyond the engine is
    /// pending shows only in the counter.
    #[inline]
    pub(crate) fn refresh_for(&self, stage: Stage, value: u64) {
        let asks = match stage {
            Stage::Reached => true,
            Stage::Pending => {
                self.pending() < value && self.seen.raw_claims.load(Ordering::Relaxed) > 0
            }
        };
        if asks {
            self.refresh_to(value);
        }
    }

    /// Notes that `value` is reached; wakes and releases whoever waited for it.
    pub(crate) fn advance(&self, value: u64) {
        if self.counts_here && self.tells_ahead() {
            return self.advance_in_order(value);
        }
        if let Some(state) = self.reach(value) {
            self.tell_settled(state);
        }
    }

    /// As [`Shared::advance`] where other processes are told first, which may answer before the value shows here: a signal of the host that comes of that is
    /// made after this.
    #[cold]
    fn advance_in_order(&self, value: u64) {
        // What wakes meanwhile waits until the lock is given up.
        let _put_off = PutOff::new();
        let _order = self.locked.host_signal.lock();
        if let Some(state) = self.reach(value) {
            self.tell_settled(state);
        }
    }

    /// As [`Shared::advance`], by who waits with this ticket: if nobody else does, nobody is woken.
    fn advance_by(&self, value: u64, waiter: Ticket) {
        if let Some(mut state) = self.reach(value) {
            let reached = state.reached;
            let Some(own) = state.waiters.take_only(waiter, reached) else {
                return self.tell_settled(state);
            };
            drop(state);
            drop(own);
        }
    }

    /// Wakes those whose value has come. Apart, as mostly there is nobody.
    #[inline(never)]
    fn tell_settled(&self, mut state: MutexGuard<'_, State>) {
        let woken = self.take_settled(&mut state);
        drop(state);
        wake_all(woken);
    }

    /// Notes that `value` is reached, as far as that may show. The lock, if there may be somebody to be told.
    #[inline(always)]
    fn reach(&self, value: u64) -> Option<MutexGuard<'_, State>> {
        if value <= self.reached() {
            return None;
        }
        let value = if self.tells_ahead() {
            self.tell_ahead(value)
        } else {
            value
        };
        let mut state = self.locked.state.lock();
        if state.failure.is_some() || value <= state.reached {
            return None;
        }
        self.set_reached(&mut state, value);
        state.claims.settle(value);
        // Mostly nobody waits.
        (!state.waiters.is_empty()).then_some(state)
    }

    /// As [`Shared::advance`], for who has claimed `value` and has just signalled it, and wakes the others once he holds no lock: the
    /// claim ends with this.
    #[must_use]
    pub(super) fn advance_by_owner(&self, value: u64) -> Woken {
        let shown = if self.tells_ahead() {
            self.tell_ahead(value)
        } else {
            value
        };
        let mut state = self.locked.state.lock();
        if state.failure.is_some() {
            return Woken::new();
        }
        // Mostly; but somebody may have asked the driver meanwhile.
        if shown > state.reached {
            self.set_reached(&mut state, shown);
        }
        self.raise_pending(value);
        state.claims.remove(value);
        state.claims.settle(value);
        self.take_settled(&mut state)
    }
}
