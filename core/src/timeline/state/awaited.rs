//! Registration of waiters, and their removal to be woken.

use std::borrow::Borrow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::locked::State;
use super::shared::Shared;
use super::standing::Standing;
use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::timeline::point::KeptPoint;
use crate::timeline::waiters::{Ticket, Woken};

/// The registrations of one waiter, removed on drop.
///
/// Removal takes the timelines' locks, so do not drop it while another lock is held.
pub(crate) struct Registered<S: Borrow<Arc<Shared>> = Arc<Shared>>(SmallVec<[(S, Ticket); 8]>);

impl<S: Borrow<Arc<Shared>>> Registered<S> {
    /// Registers `wake` with `of`. False if no wait is needed or possible any more.
    pub(crate) fn add(&mut self, of: S, value: u64, stage: Stage, wake: Arc<dyn Wake>) -> bool {
        let ticket = of.borrow().register(value, stage, wake);
        let registered = ticket.is_some();
        if let Some(ticket) = ticket {
            self.0.push((of, ticket));
        }
        registered
    }

    /// Same as [`Registered::add`] with [`Stage::Reached`], for a thread that can watch the home.
    ///
    /// Returns the ticket if the calling thread must watch the home itself, because no other thread
    /// watches the home's device.
    pub(crate) fn add_to_lead(&mut self, of: S, value: u64, wake: Arc<dyn Wake>) -> Option<Ticket> {
        let registered = of.borrow().register_as(value, Stage::Reached, wake, true);
        let (ticket, leads) = registered?;
        self.0.push((of, ticket));
        leads.then_some(ticket)
    }
}

impl<S: Borrow<Arc<Shared>>> Registered<S> {
    /// The first point that is still waited for.
    pub(crate) fn first_missing(&self) -> Option<KeptPoint> {
        let is_missing = |(of, ticket): &&(S, Ticket)| {
            let standing = of.borrow().standing(ticket.value());
            !ticket.stage().is_met(&standing)
        };
        let (of, ticket) = self.0.iter().find(is_missing)?;
        Some(KeptPoint {
            of: Some(of.borrow().clone()),
            value: ticket.value(),
        })
    }

    /// The number of registrations, including those that have been used.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets the registrations. The code that advanced the timelines removes them.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

impl<S: Borrow<Arc<Shared>>> Default for Registered<S> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<S: Borrow<Arc<Shared>>> Drop for Registered<S> {
    fn drop(&mut self) {
        for (of, ticket) in self.0.drain(..) {
            of.borrow().unregister(ticket);
        }
    }
}

impl Shared {
    /// Registers `wake` for `value`. `None` if no wait is needed or possible any more.
    pub(crate) fn register(
        self: &Arc<Self>,
        value: u64,
        stage: Stage,
        wake: Arc<dyn Wake>,
    ) -> Option<Ticket> {
        let registered = self.register_as(value, stage, wake, false);
        registered.map(|(ticket, _)| ticket)
    }

    /// Same as [`Shared::register`], for a thread that can watch the home if `may_lead` is true.
    ///
    /// The returned flag is true if the calling thread must watch the home itself.
    fn register_as(
        self: &Arc<Self>,
        value: u64,
        stage: Stage,
        wake: Arc<dyn Wake>,
        may_lead: bool,
    ) -> Option<(Ticket, bool)> {
        let (ticket, leads, watch) = {
            let mut state = self.lock();
            self.note_awaited();
            match (self.standing_locked(&state, value), stage) {
                (Standing::Open, _) | (Standing::Pending, Stage::Reached) => {}
                _ => return None,
            }
            let ticket = state.waiters.insert(value, stage, wake);
            let leads = may_lead && self.try_lead(&mut state, ticket, value);
            (ticket, leads, self.needs_watch(&mut state))
        };
        self.notify_watcher(watch);
        Some((ticket, leads))
    }

    /// Removes the waiters whose value has come to the stage that they wait for.
    pub(super) fn take_settled(&self, state: &mut State) -> Woken {
        if state.waiters.is_empty() {
            return Woken::new();
        }
        let pending = self.pending_locked(state);
        state.waiters.take_settled(state.reached, pending)
    }

    /// On a closed timeline, removes the waiters for values that nothing can signal any more.
    pub(super) fn take_cancelled(&self, state: &mut State) -> Woken {
        if !state.closed || state.waiters.is_empty() {
            return Woken::new();
        }
        // The list first: a claim leaves it after it is pending.
        let claims = self.lock_claims();
        let pending = self.pending_locked(state);
        let State {
            waiters, elsewhere, ..
        } = &mut *state;
        waiters.take_unserved(|value| {
            value <= pending
                || claims.covers(value)
                || elsewhere.iter().any(|claim| claim.covers(value))
        })
    }

    /// Removes a registration if it is still there.
    pub(crate) fn unregister(&self, ticket: Ticket) {
        // In a forked child, a thread of the parent may have held the lock (P3).
        if self.is_forked() {
            return;
        }
        let removed = self.lock().waiters.remove(ticket);
        // A drop of what the waiter owns must not run under the lock.
        drop(removed);
    }
}
