//! Finished submissions: their objects are dropped and their budget is returned.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{State, SubmissionQueue};
use crate::base::error::Error;
use crate::base::run::{DropScope, Wake, run_contained};
use crate::base::stage::Stage;
use crate::base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::driver::enqueue::Enqueue;
use crate::driver::in_flight::{InFlightBudget, Sharer, Taken as TakenUnits};
use crate::driver::keep::Keep;
use crate::port::Watch;
use crate::timeline::state::{Dependent, Dependents, Shared};

/// The number of submissions after which an otherwise unqueried queue checks what has finished.
const CHECK_INTERVAL: u64 = 64;

/// With fewer submissions in flight the queue does not check for objects to drop.
const KEPT_INTERVAL: u64 = 4;

/// What submissions hold that the driver has and that are not known to be finished.
#[derive(Default)]
pub(super) struct InFlight {
    /// The objects that the submissions keep, in order.
    kept: VecDeque<(u64, Keep)>,
    /// The budget that the submissions have taken, in order.
    units: VecDeque<(u64, u64)>,
}

impl InFlight {
    /// True if there are neither objects nor budget.
    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty() && self.kept.is_empty()
    }

    /// Adds the budget that submission `number` takes.
    pub(super) fn add_units(&mut self, number: u64, units: u64) {
        self.units.push_back((number, units));
    }

    /// Adds the objects that submission `number` keeps.
    pub(super) fn add_kept(&mut self, number: u64, keep: Keep) {
        self.kept.push_back((number, keep));
    }

    /// Takes the budget of all submissions, finished or not.
    pub(super) fn take_all_units(&mut self) -> u64 {
        self.units.drain(..).map(|(_, units)| units).sum()
    }

    /// Takes out what submissions up to `reached` kept, for [`Finished::drop_all`] without the
    /// lock.
    ///
    /// Takes a few objects at a time, so that it does not allocate. `finished` is an out parameter
    /// because it is large and usually stays empty.
    #[inline]
    pub(super) fn take_finished(&mut self, reached: u64, finished: &mut Option<Finished>) {
        let (taken, kept) = (self.units.front(), self.kept.front());
        let any = taken.is_some_and(|&(number, _)| number <= reached)
            || kept.is_some_and(|&(number, _)| number <= reached);
        if any {
            self.take_some_finished(reached, finished.get_or_insert_default());
        }
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

    #[inline(never)]
    fn take_some_finished(&mut self, reached: u64, finished: &mut Finished) {
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
    objects: SmallVec<[(u64, Keep); 4]>,
    dependents: SmallVec<[Dependent; 4]>,
}

impl Finished {
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

    /// Takes the budget, for a caller that returns it.
    pub(super) const fn take_in_flight(&mut self) -> u64 {
        std::mem::replace(&mut self.units, 0)
    }

    /// True if there is nothing to drop.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.dependents.is_empty()
    }

    /// True if more may be left.
    pub(super) fn is_full(&self) -> bool {
        self.objects.len() == self.objects.inline_size()
            || self.dependents.len() == self.dependents.inline_size()
    }
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// Takes out what submissions that are known to be finished kept. Call it with the lock.
    #[inline]
    pub(super) fn take_finished(&self, state: &mut State<E>, finished: &mut Option<Finished>) {
        let keeps = self.keeps.load(Ordering::Relaxed);
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
        if self.keeps.load(Ordering::Relaxed) && !DropScope::is_too_deep() {
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
        let take = |dependent| {
            let taken = &mut finished.get_or_insert_default().dependents;
            taken.push(dependent);
            taken.len() < taken.inline_size()
        };
        self.dependents.take_finished(reached, take, || {
            if in_flight.kept.is_empty() {
                self.keeps.store(false, Ordering::Relaxed);
            }
        });
    }

    /// Returns `units` of the budget.
    #[inline]
    pub(super) fn return_budget(&self, units: u64) {
        if let Some(budget) = &self.budget {
            budget.take_back(units);
        }
    }

    /// Drops a few objects of submissions that are known to be finished.
    ///
    /// Called before a submission is accepted. The drops may take long, and later work of the queue
    /// may stand still until the caller goes on.
    pub(super) fn drop_some_finished(&self) {
        if !self.keeps.load(Ordering::Relaxed) {
            return;
        }
        let mut finished = None;
        {
            let mut state = self.state.lock();
            self.take_finished(&mut state, &mut finished);
        }
        if let Some(finished) = &mut finished {
            finished.drop_all(self.budget.as_ref());
        }
    }

    /// Checks what has finished, if no check was made for long.
    #[inline]
    pub(super) fn check_finished_if_due(&self) {
        if self.last.load(Ordering::Relaxed) >= self.check_at.load(Ordering::Relaxed) {
            self.check_finished();
        }
    }

    /// True if submission `number` is known to be within the budget and no check is due.
    #[inline]
    pub(super) fn is_plainly_within_bounds(&self, number: u64) -> bool {
        // `check_at` is at most `E::MAX_IN_FLIGHT` above the number of finished submissions.
        number <= self.check_at.load(Ordering::Relaxed) && !self.is_full()
    }

    /// Checks what has finished, and decides when to check again.
    ///
    /// | case | next check |
    /// |---|---|
    /// | nothing is kept | after [`CHECK_INTERVAL`] submissions |
    /// | objects or dependents are kept | when twice as many are in flight as after this check |
    /// | both | at the latest when [`Enqueue::MAX_IN_FLIGHT`] submissions are in flight |
    #[cold]
    fn check_finished(&self) {
        let own = self.own_shared();
        let last = self.last.load(Ordering::Relaxed);
        let keeps = self.keeps.load(Ordering::Relaxed);
        let interval = |in_flight: u64| {
            if keeps {
                in_flight.max(KEPT_INTERVAL)
            } else {
                CHECK_INTERVAL
            }
        };
        let enough = interval(self.check_in_flight.load(Ordering::Relaxed)).min(E::MAX_IN_FLIGHT);
        let mut next = own.reached().saturating_add(enough);
        if next <= last {
            let reached = own.refresh();
            let left = 2 * last.saturating_sub(reached);
            self.check_in_flight.store(left, Ordering::Relaxed);
            let from = if keeps { reached } else { last };
            let full = reached.saturating_add(E::MAX_IN_FLIGHT);
            next = from.saturating_add(interval(left)).min(full);
        }
        self.check_at.store(next, Ordering::Relaxed);
    }

    /// Drops what finished submissions kept.
    pub(super) fn drop_finished(&self) {
        if self.keeps.load(Ordering::Relaxed) {
            self.give_back();
        }
    }

    /// Notes that objects or a dependent are kept since submission `number`.
    ///
    /// Call it after they were added.
    pub(super) fn note_kept(&self, number: u64) {
        if !self.keeps.load(Ordering::Relaxed) {
            self.keeps.store(true, Ordering::Relaxed);
            // A concurrent check that has not seen `keeps` may overwrite the new value. Then the
            // next check comes at most `CHECK_INTERVAL` submissions after that check.
            let due = self.check_at.load(Ordering::Relaxed);
            self.check_at
                .store(due.min(number + KEPT_INTERVAL), Ordering::Relaxed);
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
            let mut state = self.state.lock();
            let mut finished = None;
            self.take_finished_to(&mut state, reached, &mut finished);
            // The work of a failed queue never counts as finished, so its budget is returned now.
            let lost = if failed {
                state.in_flight.take_all_units()
            } else {
                0
            };
            drop(state);
            if let Some(budget) = &self.budget {
                budget.take_back(lost);
            }
            let Some(finished) = &mut finished else {
                return;
            };
            let more = finished.is_full();
            finished.drop_all(self.budget.as_ref());
            if !more {
                return;
            }
        }
    }

    fn followed(&self) -> &AtomicBool {
        &self.followed
    }
}

impl<E: Enqueue> Drop for SubmissionQueue<E> {
    fn drop(&mut self) {
        // No submission is held, because held ones keep their queue. What the driver still runs
        // keeps the driver's part and all objects until it is finished.
        let own = self.own.shared();
        own.refresh();
        let mut state = std::mem::take(&mut *self.state.lock());
        let units = state.in_flight.take_all_units();
        let budget = self.budget.clone();
        let taken = budget.map(|budget| TakenUnits::new(budget, units));
        let orphan = Orphan {
            driver: self.driver.clone(),
            _kept: state.in_flight.kept,
            _dependents: std::mem::take(&mut self.dependents),
        };
        let failed = own.failure();
        if failed.is_some_and(|cause| !matches!(*cause, Error::DeviceLost { .. })) {
            // The queue has failed and its device has not, so work of it may still run.
            let abandoned = Abandoned {
                orphan: Mutex::new(Some(orphan)),
                device: own.watch().cloned(),
                asked: AtomicU64::new(0),
            };
            Arc::new(abandoned).wake();
            return;
        }
        // If the work is finished or the device is lost, this drops the objects now.
        let leftover = Leftover {
            _orphan: orphan,
            _taken: taken,
        };
        // The objects are the application's, and dropping a queue must not wait for a device.
        run_contained(|| {
            let _ = own.register(state.last, Stage::Reached, Arc::new(leftover));
        });
    }
}

/// The objects of a dropped queue that its driver may still use.
struct Orphan<E: Enqueue> {
    driver: Arc<E>,
    _kept: VecDeque<(u64, Keep)>,
    _dependents: Arc<Dependents>,
}

/// Keeps the objects of a dropped queue that has failed, until its driver reports that it is idle.
///
/// The position of a failed queue does not grow when work ends, so only the driver can report this.
/// If the driver never does, the objects are leaked, because the work may still use them.
struct Abandoned<E: Enqueue> {
    orphan: Mutex<Option<Orphan<E>>>,
    device: Option<Arc<dyn Watch>>,
    /// How often the driver was asked.
    asked: AtomicU64,
}

/// The number of times that the driver of a failed queue is asked whether it is idle.
const MOST_ASKED: u64 = 1000;

impl<E: Enqueue> Wake for Abandoned<E> {
    fn wake(self: Arc<Self>) {
        let orphan = self.orphan.lock();
        let driver = orphan.as_ref().map(|orphan| orphan.driver.clone());
        drop(orphan);
        match driver.map_or(Some(true), |driver| driver.is_idle()) {
            Some(true) => {
                let orphan = self.orphan.lock().take();
                run_contained(|| drop(orphan));
            }
            Some(false) if self.asked.fetch_add(1, Ordering::Relaxed) < MOST_ASKED => {
                if let Some(device) = self.device.clone() {
                    device.watcher().retry(&*device, self);
                }
            }
            // The drop leaks them.
            _ => {}
        }
    }
}

impl<E: Enqueue> Drop for Abandoned<E> {
    fn drop(&mut self) {
        std::mem::forget(self.orphan.lock().take());
    }
}

/// Keeps the objects and the budget of a dropped queue until its work is finished.
struct Leftover<E: Enqueue> {
    _orphan: Orphan<E>,
    _taken: Option<TakenUnits>,
}

impl<E: Enqueue> Wake for Leftover<E> {
    fn wake(self: Arc<Self>) {}
}
