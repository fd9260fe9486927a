//! The bound on what several queues have in flight together in one part of a driver.

use std::fmt;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::base::run::{Wake, wake_all};
use crate::base::stage::Stage;
use crate::base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::timeline::state::Shared;

/// The bound on what queues that share a part of a driver have in flight together.
///
/// The unit is the backend's. While the budget is full, further submissions of these queues are
/// held on the host. A driver that blocks its caller when it is full then never blocks the thread
/// that must make the next signal (Q2).
///
/// What a submission takes is known only when it is recorded. So the bound is below the driver's
/// limit by as much as one submission may need. A larger submission can block.
///
/// A backend makes one for each part of its driver that fills up separately. It returns it from
/// [`Enqueue::in_flight_budget`](crate::backend::Enqueue::in_flight_budget), and says with
/// [`Keep::take_in_flight`](crate::backend::Keep::take_in_flight) what each submission takes.
pub struct InFlightBudget {
    bound: u64,
    taken: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sharers: SmallVec<[Weak<dyn Sharer>; 4]>,
    /// Queues that found the budget full.
    waiting: Vec<Arc<dyn Wake>>,
}

/// A queue that shares a budget.
pub(crate) trait Sharer: Send + Sync {
    /// Its own timeline, which advances as submissions finish.
    fn progress(&self) -> &Arc<Shared>;

    /// Gives back what finished submissions took, and everything if the queue has failed.
    fn give_back(&self);

    /// True while a [`BudgetReturn`] is registered on its timeline.
    fn followed(&self) -> &AtomicBool;
}

impl InFlightBudget {
    /// A budget of `bound` units.
    #[must_use]
    pub fn new(bound: u64) -> Arc<Self> {
        Arc::new(Self {
            bound,
            taken: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    /// The units in flight. Finished submissions count until their queue gives the units back.
    #[must_use]
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.taken() >= self.bound
    }

    pub(crate) fn join(&self, sharer: Weak<dyn Sharer>) {
        let mut state = self.state.lock();
        state.sharers.retain(|sharer| sharer.strong_count() > 0);
        state.sharers.push(sharer);
    }

    /// Registers `waiter` to be woken once the budget is not full.
    ///
    /// Returns false, and registers nothing, if the budget is not full now.
    pub(crate) fn wait_for(self: &Arc<Self>, waiter: &Arc<dyn Wake>) -> bool {
        {
            let mut state = self.state.lock();
            if !state.waiting.iter().any(|other| Arc::ptr_eq(other, waiter)) {
                state.waiting.push(waiter.clone());
            }
        }
        // `take_back` lowers the number first and then looks for waiters. This registers the waiter
        // first and then reads the number. So one of the two sees the other.
        if self.is_full() {
            self.follow_all();
        }
        if self.is_full() {
            return true;
        }
        // A waiter that stayed registered would be kept alive.
        let mut state = self.state.lock();
        state.waiting.retain(|other| !Arc::ptr_eq(other, waiter));
        false
    }

    /// Gives back what finished submissions of all queues took. Polls the queues' positions.
    pub(crate) fn give_back_finished(&self) {
        for sharer in self.sharers() {
            sharer.give_back();
        }
    }

    /// Registers a [`BudgetReturn`] on each queue that shares the budget.
    fn follow_all(self: &Arc<Self>) {
        for sharer in self.sharers() {
            self.follow(&sharer);
        }
    }

    /// The queues that share the budget.
    ///
    /// A reference may be the last one, so the caller holds no lock when it drops it.
    fn sharers(&self) -> SmallVec<[Arc<dyn Sharer>; 8]> {
        let state = self.state.lock();
        state.sharers.iter().filter_map(Weak::upgrade).collect()
    }

    fn follow(self: &Arc<Self>, sharer: &Arc<dyn Sharer>) {
        if sharer.followed().swap(true, Ordering::SeqCst) {
            return;
        }
        let progress = sharer.progress();
        loop {
            // `give_back` may miss submissions that finish after this load. Registering for `next`
            // fails then, and the loop starts again.
            let next = progress.reached() + 1;
            sharer.give_back();
            if progress.failure().is_some() || progress.pending() < next {
                break;
            }
            let follower = Arc::new(BudgetReturn {
                budget: self.clone(),
                sharer: Arc::downgrade(sharer),
            });
            if progress.register(next, Stage::Reached, follower).is_some() {
                return;
            }
        }
        sharer.followed().store(false, Ordering::SeqCst);
    }
}

impl fmt::Debug for InFlightBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "InFlightBudget({} of {} taken)",
            self.taken(),
            self.bound
        )
    }
}

/// Woken when a queue that shares the budget has finished a submission.
struct BudgetReturn {
    budget: Arc<InFlightBudget>,
    sharer: Weak<dyn Sharer>,
}

impl Wake for BudgetReturn {
    fn wake(self: Arc<Self>) {
        if let Some(sharer) = self.sharer.upgrade() {
            sharer.followed().store(false, Ordering::SeqCst);
            sharer.give_back();
        }
        // Another queue may have filled the budget meanwhile, so all of them are followed.
        if !self.budget.state.lock().waiting.is_empty() {
            self.budget.follow_all();
        }
    }
}

impl InFlightBudget {
    /// Counts the units of a submission that its queue has noted as in flight.
    ///
    /// Because the queue notes it first, a thread that finds the budget full also finds the
    /// submissions that filled it. Call it with the queue's lock.
    #[inline]
    pub(crate) fn count(&self, units: u64) {
        self.taken.fetch_add(units, Ordering::SeqCst);
    }

    /// Subtracts the units of finished submissions and wakes queues that waited for them.
    ///
    /// Call it without a lock, because it may release held submissions.
    pub(crate) fn take_back(&self, units: u64) {
        if units == 0 {
            return;
        }
        let before = self.taken.fetch_sub(units, Ordering::SeqCst);
        if before >= self.bound && before.saturating_sub(units) < self.bound {
            let woken = std::mem::take(&mut self.state.lock().waiting);
            wake_all(woken);
        }
    }
}

/// The units that a dropped queue had taken. They are given back when this value is dropped.
pub(crate) struct TakenUnits {
    budget: Arc<InFlightBudget>,
    units: u64,
}

impl TakenUnits {
    pub(crate) const fn new(budget: Arc<InFlightBudget>, units: u64) -> Self {
        Self { budget, units }
    }
}

impl Drop for TakenUnits {
    fn drop(&mut self) {
        self.budget.take_back(self.units);
    }
}
