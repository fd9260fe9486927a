//! Finished submissions: their objects are dropped and their budget is returned.

use std::sync::Arc;

use super::in_flight::Finished;
use super::state::State;
use super::submission_queue::SubmissionQueue;
use crate::base::run::{DropScope, run_contained};
use crate::base::sync::{AtomicBool, MutexGuard, Ordering};
use crate::driver::enqueue::Enqueue;
use crate::driver::in_flight::Sharer;
use crate::driver::in_use::Unused;
use crate::timeline::state::Shared;

impl<E: Enqueue> SubmissionQueue<E> {
    /// Takes out what submissions up to `reached` kept. Call it with the lock.
    fn take_finished(&self, state: &mut State<E>, reached: u64) -> Finished {
        let mut finished = Finished::default();
        let in_flight = &mut state.in_flight;
        in_flight.take_finished(reached, &mut finished);
        if DropScope::is_too_deep() {
            return finished;
        }
        if self.checks.keeps() {
            let take = |dependent| finished.add_dependent(dependent);
            self.dependents.take_finished(reached, take, || {
                if in_flight.keeps_nothing() {
                    self.checks.note_empty();
                }
            });
        }
        if !finished.is_full() {
            in_flight.note_taken(reached);
        }
        finished
    }

    /// Drops a few objects of submissions that are known to be finished, and returns their budget.
    ///
    /// Called before a submission is accepted, for two reasons. A dropped object may take long or
    /// wait for a device, which may need a later action of the caller. And it may wait for this
    /// queue or submit to it. So the queue is not locked while objects are dropped. Queues that
    /// waited for the budget submit in this call.
    #[inline(never)]
    pub(super) fn drop_some_finished<'q>(
        &'q self,
        mut state: MutexGuard<'q, State<E>>,
    ) -> MutexGuard<'q, State<E>> {
        let mut finished = self.take_finished(&mut state, self.own_shared().reached());
        if finished.is_empty() {
            return state;
        }
        drop(state);
        finished.drop_all(self.budget.as_ref());
        self.lock()
    }

    /// True if objects or dependents may be left of submissions that are known to be finished.
    #[inline]
    pub(super) fn may_keep_finished(&self, state: &State<E>) -> bool {
        self.checks.keeps()
            && state
                .in_flight
                .may_keep_finished(self.own_shared().reached())
    }

    /// Checks what has finished, if the budget is used up or no check was made for long.
    ///
    /// True if it has checked.
    #[inline]
    pub(super) fn check_finished(&self) -> bool {
        if let Some(budget) = self.budget.as_ref().filter(|budget| budget.is_full()) {
            budget.give_back_finished();
            return true;
        }
        let last = self.last.load(Ordering::Relaxed);
        let is_due = !self.checks.allows(last + 1);
        if is_due {
            self.checks.check(self.own_shared(), last, E::MAX_IN_FLIGHT);
        }
        is_due
    }

    /// Drops what the backend has in use for finished submissions alone.
    pub(super) fn drop_unused(&self) {
        let reached = self.own_shared().reached();
        loop {
            let mut unused = Unused::default();
            {
                let mut state = self.lock();
                // Later records of a thread that submits drop these objects.
                let Some(backend) = state.turns.backend() else {
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
            let mut finished = self.take_finished(&mut state, reached);
            // The work of a failed queue never counts as finished, so its budget is returned now.
            if failed {
                finished.add_units(state.in_flight.take_all_units());
            }
            drop(state);
            let more = finished.is_full();
            finished.drop_all(self.budget.as_ref());
            if !more {
                return;
            }
        }
    }

    fn followed(&self) -> &AtomicBool {
        self.checks.followed()
    }
}
