//! What submissions in flight hold, and when the queue looks for finished ones.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::run::{DropScope, run_contained};
use crate::base::sync::{AtomicBool, AtomicU64, Ordering};
use crate::driver::in_flight::InFlightBudget;
use crate::driver::keep::Keep;
use crate::timeline::state::{Dependent, Shared};

/// The number of submissions after which an otherwise unqueried queue checks what has finished.
const CHECK_INTERVAL: u64 = 64;

/// The number of submissions in flight from which on the queue checks for objects to drop.
const KEPT_INTERVAL: u64 = 8;

/// The number of objects, and of dependents, that are dropped at a time.
const BATCH: usize = KEPT_INTERVAL as usize;

/// What submissions hold that the driver has and that are not known to be finished.
#[derive(Default)]
pub(super) struct InFlight {
    /// The objects that the submissions keep, in order.
    kept: VecDeque<(u64, Keep)>,
    /// The budget that the submissions have taken, in order.
    units: VecDeque<(u64, u64)>,
    /// Nothing is left that submissions up to this number kept, objects or dependents.
    taken: u64,
}

impl InFlight {
    /// True if no objects are kept.
    pub(super) fn keeps_nothing(&self) -> bool {
        self.kept.is_empty()
    }

    /// True if not all has been taken out that submissions up to `reached` kept.
    #[inline]
    pub(super) const fn may_keep_finished(&self, reached: u64) -> bool {
        reached > self.taken
    }

    /// Notes that all has been taken out that submissions up to `reached` kept.
    pub(super) const fn note_taken(&mut self, reached: u64) {
        self.taken = reached;
    }

    /// The objects that are kept, with the numbers of their submissions.
    pub(super) fn into_kept(self) -> VecDeque<(u64, Keep)> {
        self.kept
    }

    /// Adds the budget that submission `number` takes.
    pub(super) fn add_units(&mut self, number: u64, units: u64) {
        self.units.push_back((number, units));
    }

    /// Adds the objects that submission `number` keeps.
    pub(super) fn add_kept(&mut self, number: u64, keep: Keep) {
        // A host queue's worker may have finished it already.
        self.taken = self.taken.min(number.saturating_sub(1));
        self.kept.push_back((number, keep));
    }

    /// Takes the budget of all submissions, finished or not.
    pub(super) fn take_all_units(&mut self) -> u64 {
        self.units.drain(..).map(|(_, units)| units).sum()
    }

    /// Takes the budget of submissions up to `reached`.
    pub(super) fn take_finished_units(&mut self, reached: u64) -> u64 {
        let mut all = 0;
        while let Some(&(number, units)) = self.units.front()
            && number <= reached
        {
            all += units;
            self.units.pop_front();
        }
        all
    }

    /// Takes out what submissions up to `reached` kept, for [`Finished::drop_all`] without the
    /// lock.
    ///
    /// Takes a few objects at a time, so that it does not allocate.
    pub(super) fn take_finished(&mut self, reached: u64, finished: &mut Finished) {
        finished.units += self.take_finished_units(reached);
        if DropScope::is_too_deep() {
            return;
        }
        let objects = &mut finished.objects;
        while objects.len() < objects.inline_size()
            && let Some((number, _)) = self.kept.front()
            && *number <= reached
            && let Some(kept) = self.kept.pop_front()
        {
            objects.push(kept);
        }
    }
}

/// The budget and the objects of finished submissions.
#[derive(Default)]
pub(super) struct Finished {
    units: u64,
    objects: SmallVec<[(u64, Keep); BATCH]>,
    dependents: SmallVec<[Dependent; BATCH]>,
}

impl Finished {
    /// Adds a dependent to be dropped. False if it was the last that there is space for.
    pub(super) fn add_dependent(&mut self, dependent: Dependent) -> bool {
        self.dependents.push(dependent);
        self.dependents.len() < self.dependents.inline_size()
    }

    /// Returns the budget and drops the objects.
    ///
    /// The objects are the application's, so the caller must hold no lock.
    #[inline(never)]
    pub(super) fn drop_all(&mut self, budget: Option<&Arc<InFlightBudget>>) {
        if let Some(budget) = budget {
            budget.take_back(std::mem::take(&mut self.units));
        }
        let _letting_go = DropScope::new();
        for kept in self.objects.drain(..) {
            run_contained(|| drop(kept));
        }
        for dependent in self.dependents.drain(..) {
            run_contained(|| drop(dependent));
        }
    }

    /// Adds budget to be returned.
    pub(super) const fn add_units(&mut self, units: u64) {
        self.units += units;
    }

    /// True if there is nothing to drop or to return.
    pub(super) fn is_empty(&self) -> bool {
        self.units == 0 && self.objects.is_empty() && self.dependents.is_empty()
    }

    /// True if more may be left.
    pub(super) fn is_full(&self) -> bool {
        self.objects.len() == self.objects.inline_size()
            || self.dependents.len() == self.dependents.inline_size()
    }
}

/// When a queue looks for finished submissions. Used without the queue's lock.
pub(super) struct Checks {
    /// True if objects or dependents may be kept.
    keeps: AtomicBool,
    /// The number of the submission after which the queue checks what has finished.
    ///
    /// It is at most the driver's limit of submissions in flight above the number of finished ones.
    at: AtomicU64,
    /// With this number of submissions in flight, the queue looks for objects to drop.
    ///
    /// It is twice the number that the last check left in flight. [`KEPT_INTERVAL`] is the least.
    in_flight: AtomicU64,
    /// See [`Sharer::followed`](crate::driver::in_flight::Sharer::followed).
    followed: AtomicBool,
}

impl Checks {
    pub(super) fn new() -> Self {
        Self {
            keeps: AtomicBool::new(false),
            at: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            followed: AtomicBool::new(false),
        }
    }

    /// True if objects or dependents may be kept.
    #[inline]
    pub(super) fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }

    /// Notes that nothing is kept. Call it with the queue's lock.
    pub(super) fn note_empty(&self) {
        self.keeps.store(false, Ordering::Relaxed);
    }

    /// Notes that objects or a dependent are kept since submission `number`.
    ///
    /// Call it after they were added.
    pub(super) fn note_kept(&self, number: u64) {
        if !self.keeps() {
            self.keeps.store(true, Ordering::Relaxed);
            // A concurrent check that has not seen `keeps` may overwrite the new value. Then the
            // next check comes at most `CHECK_INTERVAL` submissions after that check.
            let due = self.at.load(Ordering::Relaxed);
            self.at
                .store(due.min(number + KEPT_INTERVAL), Ordering::Relaxed);
        }
    }

    /// True if no check is due before submission `number`.
    ///
    /// Then the submission is within the driver's limit of submissions in flight.
    #[inline]
    pub(super) fn allows(&self, number: u64) -> bool {
        number <= self.at.load(Ordering::Relaxed)
    }

    /// Checks what has finished, and decides when to check again.
    ///
    /// `own` is the queue's position, `last` the number of its last submission, and `most` the
    /// driver's limit of submissions in flight.
    ///
    /// | case | next check |
    /// |---|---|
    /// | nothing is kept | after [`CHECK_INTERVAL`] submissions |
    /// | objects or dependents are kept | when twice as many are in flight as after this check |
    /// | both | at the latest when `most` submissions are in flight |
    #[cold]
    pub(super) fn check(&self, own: &Shared, last: u64, most: u64) {
        let keeps = self.keeps();
        let interval = |in_flight: u64| {
            if keeps {
                in_flight.max(KEPT_INTERVAL)
            } else {
                CHECK_INTERVAL
            }
        };
        let enough = interval(self.in_flight.load(Ordering::Relaxed)).min(most);
        let mut next = own.reached().saturating_add(enough);
        if next <= last {
            let reached = own.refresh();
            let left = 2 * last.saturating_sub(reached);
            self.in_flight.store(left, Ordering::Relaxed);
            let from = if keeps { reached } else { last };
            let full = reached.saturating_add(most);
            next = from.saturating_add(interval(left)).min(full);
        }
        self.at.store(next, Ordering::Relaxed);
    }

    pub(super) const fn followed(&self) -> &AtomicBool {
        &self.followed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another thread has looked between the end of the submission and this call.
    #[test]
    fn objects_that_come_after_the_end_of_their_submission_are_not_missed() {
        let mut in_flight = InFlight::default();
        in_flight.note_taken(5);
        assert!(!in_flight.may_keep_finished(5));
        in_flight.add_kept(5, Keep::default());
        assert!(in_flight.may_keep_finished(5));
    }
}
