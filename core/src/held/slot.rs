//! Handles of graph entries, each removed on drop: a queue's slot, a held submission, a host
//! signal.

use std::sync::Arc;

use super::entries::Parts;
use super::{GRAPH, Graph, Lists, Origin, OwnedClaim, Relayed, id, node_of};
use crate::base::blockers::Blockers;
use crate::timeline::point::KeptPoint;
use crate::timeline::state::{Interval, Shared, set_waiting_for};

/// A queue's slot in the graph. Freed with the queue.
pub(crate) struct QueueSlot {
    number: u32,
    origin: Arc<Origin>,
}

impl QueueSlot {
    pub(crate) fn take(origin: Arc<Origin>) -> Self {
        set_waiting_for(super::waiting_for);
        let mut graph = GRAPH.lock();
        let number = graph.take_slot(origin.clone());
        origin.own().held_index().belongs_to(Some(number));
        drop(graph);
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
        let mut graph = GRAPH.lock();
        let Some(Some(queue)) = graph.slots.get_mut(self.number as usize) else {
            return false;
        };
        if !queue.entries.is_first(number) {
            return false;
        }
        let (waits, claims) = queue.entries.lists(number);
        if !is_ready(waits, claims) {
            return false;
        }
        Graph::forget(
            id(self.number, number),
            node_of(queue, number, waits, claims),
        );
        queue.entries.leave_first(Some(lists));
        true
    }

    /// Adds copies of a submission's waits and claims to `lists`.
    pub(crate) fn copy_lists(&self, number: u64, lists: &mut Lists) {
        let graph = GRAPH.lock();
        if let Some(queue) = graph.queue(self.number) {
            let (waits, claims) = queue.entries.lists(number);
            lists.waits.extend(waits.into_iter().flatten().cloned());
            lists.claims.extend(claims.into_iter().flatten().cloned());
        }
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
        origin: Arc<Origin>,
        number: u64,
        of: Arc<Shared>,
        claim: Interval,
    ) -> Result<Self, Blockers> {
        let wait = KeptPoint {
            of: Some(origin.own().clone()),
            value: number,
        };
        let mut signal = Some(Relayed {
            wait,
            claim: (Some(of), claim),
            origin,
            number,
            rank: 0,
        });
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
