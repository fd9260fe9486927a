//! The process's graph, and handles of its entries.
//!
//! A queue's slot, a held submission and a host signal are removed on drop of their handles.

use std::sync::Arc;

use super::graph::{Graph, Points, Relayed};
use super::node::{Lists, OwnedClaim, Parts, QueueOrigin};
use crate::base::blockers::{Blockers, Signaller};
use crate::base::error::Error;
use crate::base::run::run_contained;
use crate::base::sync::{Mutex, per_process};
use crate::port::Watch;
use crate::timeline::point::KeptPoint;
use crate::timeline::state::{HeldWaits, Interval, Shared, set_waiting_for};

per_process! { static GRAPH: Mutex<Graph> = Mutex::new(Graph::new()) }

/// The held submissions that wait for `of` or signal it.
///
/// Each waker makes its queue check the submission again. No lock may be held when it is called.
fn waiting_for(of: &Shared) -> HeldWaits {
    GRAPH.lock().waiting_for(of)
}

/// The node that will signal `value` of `of`, and the points that it waits for.
///
/// If `first_only` is true and the node's queue holds earlier submissions, the only point is the
/// end of the first of them.
pub(super) fn signaller(
    of: &Arc<Shared>,
    value: u64,
    first_only: bool,
) -> Option<(Signaller, Points)> {
    GRAPH.lock().signaller(of, value, first_only)
}

/// The errors of the devices of all queues that a check finds lost.
///
/// Calls drivers, so no lock may be held.
#[must_use]
pub fn lost_devices() -> Vec<String> {
    // A separate statement, because a check calls the driver.
    let watches = GRAPH.lock().watches();
    let lost = |watch: &Arc<dyn Watch>| match watch.check() {
        Err(lost @ Error::DeviceLost { .. }) => Some(lost.to_string()),
        _ => None,
    };
    let errors = watches.iter().filter_map(lost).collect();
    // It may be the last handle of a device.
    run_contained(|| drop(watches));
    errors
}

/// A queue's slot in the graph. Freed with the queue.
pub(crate) struct QueueSlot {
    number: u32,
    origin: Arc<QueueOrigin>,
}

impl QueueSlot {
    pub(crate) fn take(origin: Arc<QueueOrigin>) -> Self {
        set_waiting_for(waiting_for);
        let number = GRAPH.lock().take_slot(origin.clone());
        Self { number, origin }
    }

    /// Enters submission `number`, after all that the queue holds or before them.
    ///
    /// Moves `lists` into the graph, or leaves it unchanged if the submission is refused.
    ///
    /// # Errors
    /// The circle that the submission would close. The graph is unchanged then.
    pub(crate) fn enter(&self, number: u64, lists: &mut Lists) -> Result<QueueEntry<'_>, Blockers> {
        let mut graph = GRAPH.lock();
        graph.enter(self.number, &self.origin, number, lists)?;
        Ok(self.entry(number))
    }

    /// The entry of a submission that [stayed](QueueEntry::stay) in the graph, or that has none.
    pub(crate) const fn entry(&self, number: u64) -> QueueEntry<'_> {
        QueueEntry { slot: self, number }
    }

    /// Removes a submission if `is_ready` returns true.
    ///
    /// Moves its waits and claims to the empty `lists`.
    ///
    /// Only the first submission can be removed. `is_ready` runs under the graph's lock and must
    /// take no lock.
    pub(crate) fn leave_if(
        &self,
        number: u64,
        lists: &mut Lists,
        is_ready: impl FnOnce(Parts<'_, KeptPoint>, Parts<'_, OwnedClaim>) -> bool,
    ) -> bool {
        GRAPH.lock().leave_if(self.number, number, lists, is_ready)
    }

    /// Adds copies of a submission's waits and claims to `lists`.
    pub(crate) fn copy_lists(&self, number: u64, lists: &mut Lists) {
        GRAPH.lock().copy_lists(self.number, number, lists);
    }

    /// Moves a submission's waits and claims to `lists`, because it waits for nothing any more.
    ///
    /// It keeps its position.
    pub(crate) fn reduce(&self, number: u64, lists: &mut Lists) {
        GRAPH.lock().reduce(self.number, number, lists);
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let left = GRAPH.lock().free_slot(self.number);
        drop(left);
    }
}

/// The entry of a held submission, removed on drop.
///
/// The caller that drops it has its own references to the waits and claims. So nothing is freed
/// under the graph's lock.
#[must_use]
pub(crate) struct QueueEntry<'s> {
    slot: &'s QueueSlot,
    number: u64,
}

impl QueueEntry<'_> {
    /// Keeps the entry in the graph. [`QueueSlot::entry`] returns it again.
    pub(crate) fn stay(self) {
        std::mem::forget(self);
    }

    /// See [`QueueSlot::reduce`].
    pub(crate) fn reduce(&self) {
        let mut lists = Lists::default();
        self.slot.reduce(self.number, &mut lists);
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        GRAPH.lock().leave(self.slot.number, self.number);
    }
}

/// The entry of a signal that the host will make for a submission, removed on drop.
pub(crate) struct RelayEntry(u32);

impl RelayEntry {
    /// Enters a signal that the host makes once submission `number` has ended.
    ///
    /// # Errors
    /// The circle that the signal would close. The graph is unchanged then.
    pub(crate) fn take(
        origin: Arc<QueueOrigin>,
        number: u64,
        of: Arc<Shared>,
        claim: Interval,
    ) -> Result<Self, Blockers> {
        let mut signal = Some(Relayed::new(origin, number, of, claim));
        // A refused signal is dropped after the lock is released.
        GRAPH.lock().enter_relayed(&mut signal).map(Self)
    }
}

impl Drop for RelayEntry {
    fn drop(&mut self) {
        let signal = GRAPH.lock().leave_relayed(self.0);
        drop(signal);
    }
}
