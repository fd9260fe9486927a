//! Finished submissions: their objects are dropped and their budget is returned.

use std::sync::Arc;

use super::in_flight::{Finished, InFlight};
use super::state::State;
use super::submission_queue::SubmissionQueue;
use crate::base::run::{DropScope, run_contained};
use crate::base::sync::AtomicBool;
use crate::driver::enqueue::Enqueue;
use crate::driver::in_flight::Sharer;
use crate::driver::in_use::Unused;
use crate::timeline::state::Shared;

impl<E: Enqueue> SubmissionQueue<E> {
    /// Takes out what submissions that are known to be finished kept. Call it with the lock.
    #[inline]
    pub(super) fn take_finished(&self, state: &mut State<E>, finished: &mut Option<Finished>) {
        let keeps = self.checks().keeps();
        // The check avoids a read of the position, which a host worker may be writing.
        if keeps || !state.in_flight.is_empty() {
            self.take_finished_to(state, self.own_shared().reached(), finished);
        }
    }

    /// Same as [`SubmissionQueue::take_finished`], for submissions up to `reached`.
    #[inline]
    fn take_finished_to(
        &self,
        state: &mut State<E>,
        reached: u64,
        finished: &mut Option<Finished>,
    ) {
        state.in_flight.take_finished(reached, finished);
        if self.checks().keeps() && !DropScope::is_too_deep() {
            self.take_finished_dependents(&state.in_flight, reached, finished);
        }
    }

    #[inline(never)]
    fn take_finished_dependents(
        &self,
        in_flight: &InFlight,
        reached: u64,
        finished: &mut Option<Finished>,
    ) {
        let take = |dependent| finished.get_or_insert_default().add_dependent(dependent);
        self.dependents().take_finished(reached, take, || {
            if in_flight.keeps_nothing() {
                self.checks().note_empty();
            }
        });
    }

    /// Returns `units` of the budget.
    #[inline]
    pub(super) fn return_budget(&self, units: u64) {
        if let Some(budget) = self.budget() {
            budget.take_back(units);
        }
    }

    /// Drops a few objects of submissions that are known to be finished.
    ///
    /// Called before a submission is accepted. The drops may take long. Work of the queue may wait
    /// for a signal that the calling thread makes after this call.
    pub(super) fn drop_some_finished(&self) {
        if !self.checks().keeps() {
            return;
        }
        let mut finished = None;
        {
            let mut state = self.lock();
            self.take_finished(&mut state, &mut finished);
        }
        if let Some(finished) = &mut finished {
            finished.drop_all(self.budget());
        }
    }

    /// Checks what has finished, if no check was made for long.
    #[inline]
    pub(super) fn check_finished_if_due(&self) {
        let last = self.last();
        if !self.checks().allows(last + 1) {
            self.checks()
                .check(self.own_shared(), last, E::MAX_IN_FLIGHT);
        }
    }

    /// True if submission `number` is known to be within the budget and no check is due.
    #[inline]
    pub(super) fn is_plainly_within_bounds(&self, number: u64) -> bool {
        self.checks().allows(number) && !self.is_full()
    }

    /// Drops what the backend has in use for finished submissions alone.
    pub(super) fn drop_unused(&self) {
        let reached = self.own_shared().reached();
        loop {
            let mut unused = Unused::default();
            {
                let mut state = self.lock();
                // Later records of a thread that submits drop these objects.
                let Some(backend) = state.driving.backend() else {
                    return;
                };
                self.driver().take_unused(backend, reached, &mut unused);
            }
            if unused.is_empty() {
                return;
            }
            run_contained(|| drop(unused));
        }
    }

    /// Drops what finished submissions kept.
    pub(super) fn drop_finished(&self) {
        if self.checks().keeps() {
            self.give_back();
        }
    }
}

impl<E: Enqueue> Sharer for SubmissionQueue<E> {
    fn progress(&self) -> &Arc<Shared> {
        self.own_shared()
    }

    fn give_back(&self) {
        let own = self.own_shared();
        let reached = own.refresh();
        let failed = own.failure().is_some();
        loop {
            let mut state = self.lock();
            let mut finished = None;
            self.take_finished_to(&mut state, reached, &mut finished);
            // The work of a failed queue never counts as finished, so its budget is returned now.
            let lost = if failed {
                state.in_flight.take_all_units()
            } else {
                0
            };
            drop(state);
            if let Some(budget) = self.budget() {
                budget.take_back(lost);
            }
            let Some(finished) = &mut finished else {
                return;
            };
            let more = finished.is_full();
            finished.drop_all(self.budget());
            if !more {
                return;
            }
        }
    }

    fn followed(&self) -> &AtomicBool {
        self.checks().followed()
    }
}
