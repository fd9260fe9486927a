//! Places in the graph, each given up where it is dropped: a queue's, a held submission's, a signal's that the host makes.

use std::sync::Arc;

use super::entries::Parts;
use super::{GRAPH, Graph, Lists, Origin, OwnedClaim, Relayed, id, node_of};
use crate::base::blockers::Blockers;
use crate::timeline::held_index::set_waiting_for;
use crate::timeline::point::KeptPoint;
use crate::timeline::state::{Interval, Shared};

/// A queue's slot in the graph, for as long as there is the queue.
pub(crate) struct QueueSlot {
    number: u32,
    origin: Arc<Origin>,
}

impl QueueSlot {
    pub(crate) fn take(origin: Arc<Origin>) -> Self {
        set_waiting_for(super::waiting_for);
        let mut graph = GRAPH.lock();
        let number = graph.take_slot(origin.clone());
        origin.own.held_index.belongs_to(Some(number));
        drop(graph);
        Self { number, origin }
    }

    /// Enters submission `number`, which comes behind all others that the queue holds or before them: `lists` goes
    /// there, or stays if it is refused.
    ///
    /// # Errors
    /// The circle that it would close; the graph is unchanged then.
    pub(crate) fn enter(&self, number: u64, lists: &mut Lists) -> Result<QueueEntry<'_>, Blockers> {
        let mut graph = GRAPH.lock();
        graph.enter(self.number, &self.origin, number, lists)?;
        Ok(self.entry(number))
    }

    /// The place of a submission that [stayed](QueueEntry::stay), or of one that has none.
    pub(crate) const fn entry(&self, number: u64) -> QueueEntry<'_> {
        QueueEntry { slot: self, number }
    }

    /// A submission leaves if `is_ready` says so of what it waits for and has claimed, which goes to the empty `lists`.
    /// That is asked under the graph's lock: it may take none. Only the first may leave so.
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

    /// Adds copies of what a submission waits for and claims to `lists`.
    pub(crate) fn look(&self, number: u64, lists: &mut Lists) {
        let graph = GRAPH.lock();
        if let Some(queue) = graph.queue(self.number) {
            let (waits, claims) = queue.entries.lists(number);
            lists.waits.extend(waits.into_iter().flatten().cloned());
            lists.claims.extend(claims.into_iter().flatten().cloned());
        }
    }

    /// A submission waits for nothing any more, and keeps only its turn: the rest goes to `lists`.
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

/// A held submission's place in the graph, given up on drop. Whoever does so has in hand what it waits for and has claimed: so
/// nothing is dropped for good under the lock.
#[must_use]
pub(crate) struct QueueEntry<'s> {
    slot: &'s QueueSlot,
    number: u64,
}

impl QueueEntry<'_> {
    /// The submission goes on being held; see [`QueueSlot::entry`].
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

/// The place of a signal that the host makes for a submission, given up on drop.
pub(crate) struct RelayEntry(u32);

impl RelayEntry {
    /// Takes the place of a signal for submission `number`, which it waits for.
    ///
    /// # Errors
    /// The circle that it would close; the graph is unchanged then.
    pub(crate) fn take(
        origin: Arc<Origin>,
        number: u64,
        of: Arc<Shared>,
        claim: Interval,
    ) -> Result<Self, Blockers> {
        let wait = KeptPoint {
            of: Some(origin.own.clone()),
            value: number,
        };
        let mut signal = Some(Relayed {
            wait,
            claim: (Some(of), claim),
            origin,
            number,
            rank: 0,
        });
        // What is refused is dropped here, without the lock.
        GRAPH.lock().enter_relayed(&mut signal).map(Self)
    }
}

impl Drop for RelayEntry {
    fn drop(&mut self) {
        let signal = GRAPH.lock().leave_relayed(self.0);
        drop(signal);
    }
}
