//! The graph of held submissions: which of them wait for each other.
//!
//! A node is a submission that a queue holds, or a signal that the host will make for one. Such a
//! signal waits for the submission's end. A node depends on the nodes that have claimed the points
//! that it waits for. It also depends on the nodes that have claimed the predecessors of its
//! signals.
//!
//! A queue's position is a timeline like any other here: submission `n` claims `n` of it. So the
//! order within a queue needs no edges of its own. That claim is not recorded, because the
//! submissions of a queue are stored in order (`entries`).
//!
//! A wait that no node has claimed has no edge, because a signal may still come. So every edge of a
//! circle leads to a claimed point, and no legal signal can break the circle. The engine refuses
//! the submission that would close a circle (Q4).
//!
//! Every node has a rank above the ranks of the nodes that it depends on. A new node usually fits
//! between its dependencies and its dependents. If it does not, the search visits only the
//! dependents whose rank is in the way, as in Pearce and Kelly's dynamic topological sort. So the
//! cost per link does not depend on the length of a chain.
//!
//! There is one graph in a process, because a circle may lead through any devices. Independent
//! users of the library are never connected in it. While a thread holds the graph's lock, it takes
//! only the lock of one timeline's list (`timeline/held_index.rs`) at a time.

pub(crate) mod blockers;
mod entries;
mod node;
mod order;
mod slot;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::blockers::{Blockers, Signaller};
use crate::base::run::Wake;
use crate::base::steps;
use crate::base::sync::{Mutex, per_process};
use crate::timeline::point::KeptPoint;
use crate::timeline::state::Shared;

use crate::timeline::held_index::NodeId;
pub(crate) use entries::Parts;
use entries::QueueEntries;
pub(crate) use node::{Holder, Lists, Origin, OwnedClaim};
use node::{Node, RELAYED};
pub(crate) use slot::{QueueEntry, QueueSlot, RelayEntry};

per_process! { static GRAPH: Mutex<Graph> = Mutex::new(Graph::new()) }

/// Points to wait for.
pub(crate) type Points = Vec<(Arc<Shared>, u64)>;

/// A queue and its held submissions.
struct HeldQueue {
    origin: Arc<Origin>,
    entries: QueueEntries,
}

/// A signal that the host will make for a submission.
struct Relayed {
    origin: Arc<Origin>,
    number: u64,
    wait: KeptPoint,
    claim: OwnedClaim,
    rank: i128,
}

/// Wakers of every queue that holds a submission which waits for `of` or signals it.
///
/// Each makes its queue check the submission again. No lock may be held when they are called.
pub(crate) fn waiting_for(of: &Shared) -> SmallVec<[Arc<dyn Wake>; 4]> {
    GRAPH.lock().waiting_for(of)
}

/// The node that will signal `value` of `of`, and the points that it waits for.
///
/// If `first_only` is true and the node's queue holds earlier submissions, the only point is the
/// end of the first of them.
pub(crate) fn signaller(
    of: &Arc<Shared>,
    value: u64,
    first_only: bool,
) -> Option<(Signaller, Points)> {
    GRAPH.lock().signaller(of, value, first_only)
}

struct Graph {
    slots: Vec<Option<HeldQueue>>,
    free_slots: Vec<u32>,
    relayed: Vec<Option<Relayed>>,
    free: Vec<u32>,
}

impl Graph {
    const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free_slots: Vec::new(),
            relayed: Vec::new(),
            free: Vec::new(),
        }
    }

    fn take_slot(&mut self, origin: Arc<Origin>) -> u32 {
        let entries = QueueEntries::default();
        let held_queue = Some(HeldQueue { origin, entries });
        if let Some(slot) = self.free_slots.pop() {
            self.slots[slot as usize] = held_queue;
            return slot;
        }
        self.slots.push(held_queue);
        // No overflow: 2^32 slots do not fit into memory.
        (self.slots.len() - 1) as u32
    }

    fn free_slot(&mut self, slot: u32) -> Option<HeldQueue> {
        let held_queue = self.slots.get_mut(slot as usize)?.take()?;
        // Usually the queue holds nothing any more.
        for number in held_queue.entries.numbers_from(0) {
            let (waits, claims) = held_queue.entries.lists(number);
            let node = node_of(&held_queue, number, waits, claims);
            Self::forget(id(slot, number), node);
        }
        held_queue.origin.own().held_index().belongs_to(None);
        self.free_slots.push(slot);
        Some(held_queue)
    }

    fn queue(&self, slot: u32) -> Option<&HeldQueue> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn node(&self, id: NodeId) -> Option<Node<'_>> {
        steps::count(1);
        if id.slot == RELAYED {
            let signal = self.relayed.get(id.at as usize)?.as_ref()?;
            return Some(signal.node());
        }
        let queue = self.queue(id.slot)?;
        let number = queue.entries.number(id.at);
        let (waits, claims) = queue.entries.lists(number);
        let is_held = queue.entries.contains(number);
        is_held.then(|| node_of(queue, number, waits, claims))
    }

    fn rank(&self, id: NodeId) -> i128 {
        steps::count(1);
        let rank = if id.slot == RELAYED {
            let signal = self.relayed.get(id.at as usize);
            signal.and_then(|signal| Some(signal.as_ref()?.rank))
        } else {
            let queue = self.queue(id.slot);
            queue.and_then(|queue| queue.entries.rank(queue.entries.number(id.at)))
        };
        rank.unwrap_or(i128::MIN)
    }

    /// The node whose claim covers `value` of `of`.
    fn claimant(&self, of: &Shared, value: u64) -> Option<NodeId> {
        match of.held_index().slot() {
            Some(slot) => {
                let is_held = self.queue(slot)?.entries.contains(value);
                is_held.then(|| id(slot, value))
            }
            None if of.is_in_the_graph() => of.held_index().claimant(value),
            None => None,
        }
    }

    /// The nodes that `node` depends on, each with the point through which it does.
    fn dependencies<'n>(
        &self,
        node: Node<'n>,
    ) -> impl Iterator<Item = (NodeId, &'n Arc<Shared>, u64)> {
        node.points()
            .filter_map(|(of, value)| Some((self.claimant(of, value)?, of, value)))
    }

    /// The held submission for which the host makes the signal `node`. `None` for another node.
    fn held_part(&self, node: Node<'_>) -> Option<Node<'_>> {
        if !node.is_by_host() {
            return None;
        }
        let mut parts = self.dependencies(node).filter_map(|(id, ..)| self.node(id));
        parts.find(|part| part.is_of_the_same_submission(node))
    }

    /// How an answer names the node. A host signal for a held submission is named as the
    /// submission.
    fn name(&self, node: Node<'_>) -> Signaller {
        let (queue, submission) = (node.queue().clone(), node.number());
        if node.is_by_host() && self.held_part(node).is_none() {
            Signaller::Host { queue, submission }
        } else {
            Signaller::Held { queue, submission }
        }
    }

    /// The nodes that depend on `node`.
    fn dependents(&self, node: Node<'_>) -> SmallVec<[NodeId; 8]> {
        let mut found = SmallVec::new();
        for (of, claim) in node.claims().filter(|(of, _)| of.is_in_the_graph()) {
            of.held_index().dependents(claim, &mut found);
        }
        if let Some((own, position)) = node.own_claim() {
            found.extend(self.claimant(own, position.upto + 1));
        }
        found
    }

    /// Enters submission `number` of the queue `origin`, which has this slot.
    fn enter(
        &mut self,
        slot: u32,
        origin: &Arc<Origin>,
        number: u64,
        lists: &mut Lists,
    ) -> Result<(), Blockers> {
        let node = Node::submission(origin, number, [&lists.waits, &[]], [&lists.claims, &[]]);
        let rank = self.rank_for(node)?;
        Self::remember(id(slot, number), node);
        if let Some(Some(queue)) = self.slots.get_mut(slot as usize) {
            queue.entries.add(number, rank, lists);
        }
        Ok(())
    }

    fn enter_relayed(&mut self, signal: &mut Option<Relayed>) -> Result<u32, Blockers> {
        let at = self.free.pop().unwrap_or_else(|| {
            self.relayed.push(None);
            // No overflow: 2^32 signals do not fit into memory.
            (self.relayed.len() - 1) as u32
        });
        if let Some(new) = signal {
            match self.rank_for(new.node()) {
                Ok(rank) => new.rank = rank,
                Err(circle) => {
                    self.free.push(at);
                    return Err(circle);
                }
            }
            Self::remember(NodeId { slot: RELAYED, at }, new.node());
        }
        self.relayed[at as usize] = signal.take();
        Ok(at)
    }

    fn reduce(&mut self, slot: u32, number: u64, lists: &mut Lists) {
        self.forget_submission(slot, number);
        if let Some(Some(queue)) = self.slots.get_mut(slot as usize) {
            queue.entries.take(number, lists);
        }
    }

    fn leave(&mut self, slot: u32, number: u64) {
        self.forget_submission(slot, number);
        if let Some(Some(queue)) = self.slots.get_mut(slot as usize) {
            queue.entries.leave(number);
        }
    }

    fn leave_relayed(&mut self, at: u32) -> Option<Relayed> {
        let signal = self.relayed.get_mut(at as usize)?.take()?;
        Self::forget(NodeId { slot: RELAYED, at }, signal.node());
        self.free.push(at);
        Some(signal)
    }

    fn forget_submission(&self, slot: u32, number: u64) {
        if let Some(queue) = self.queue(slot) {
            let (waits, claims) = queue.entries.lists(number);
            Self::forget(id(slot, number), node_of(queue, number, waits, claims));
        }
    }

    fn remember(id: NodeId, node: Node<'_>) {
        let mut wait = |of: &Arc<Shared>, value| {
            of.add_held_wait();
            of.held_index().add_wait(value, id);
        };
        node.for_each_part(&mut wait, |_, of, claim| {
            of.add_held_wait();
            of.held_index().add_claim(claim, id);
        });
    }

    fn forget(id: NodeId, node: Node<'_>) {
        let mut wait = |of: &Arc<Shared>, value| {
            of.drop_held_wait();
            of.held_index().remove_wait(value, id);
        };
        node.for_each_part(&mut wait, |_, of, claim| {
            of.drop_held_wait();
            of.held_index().remove_claim(claim, id);
        });
    }

    fn waiting_for(&self, of: &Shared) -> SmallVec<[Arc<dyn Wake>; 4]> {
        let open = of.reached().saturating_add(1);
        let waiting = of.held_index().waiting(open);
        let queued = of.held_index().slot().and_then(|slot| {
            let numbers = self.queue(slot)?.entries.numbers_from(open);
            Some(numbers.map(move |number| id(slot, number)))
        });
        let nodes = waiting.into_iter().chain(queued.into_iter().flatten());
        let wakers = nodes.filter_map(|id| {
            let node = self.node(id)?;
            let (holder, number) = (node.holder()?, node.number());
            Some(Arc::new(Reconsider { holder, number }) as Arc<dyn Wake>)
        });
        wakers.collect()
    }

    /// See [`signaller`].
    fn signaller(
        &self,
        of: &Arc<Shared>,
        value: u64,
        first_only: bool,
    ) -> Option<(Signaller, Points)> {
        let id = self.claimant(of, value)?;
        let node = self.node(id)?;
        let first = self.queue(id.slot).map(|queue| queue.entries.first());
        if let Some(first) = first.filter(|&first| first_only && first < node.number()) {
            let first = (node.position().clone(), first);
            return Some((self.name(node), vec![first]));
        }
        let waits = match self.held_part(node) {
            Some(submission) => {
                let order = node.claims().map(|(of, claim)| (of, claim.above));
                owned(submission.points().chain(order))
            }
            None => owned(node.points()),
        };
        Some((self.name(node), waits))
    }
}

/// The id of submission `number` of the queue in `slot`.
const fn id(slot: u32, number: u64) -> NodeId {
    let at = number as u32;
    NodeId { slot, at }
}

const fn node_of<'n>(
    queue: &'n HeldQueue,
    number: u64,
    waits: Parts<'n, KeptPoint>,
    claims: Parts<'n, OwnedClaim>,
) -> Node<'n> {
    Node::submission(&queue.origin, number, waits, claims)
}

impl Relayed {
    const fn node(&self) -> Node<'_> {
        Node::relayed(&self.origin, self.number, &self.wait, &self.claim)
    }
}

fn owned<'n>(points: impl Iterator<Item = (&'n Arc<Shared>, u64)>) -> Points {
    points.map(|(of, value)| (of.clone(), value)).collect()
}

struct Reconsider {
    holder: Arc<dyn Holder>,
    number: u64,
}

impl Wake for Reconsider {
    fn wake(self: Arc<Self>) {
        self.holder.clone().reconsider(self.number);
    }
}

#[cfg(test)]
mod tests;
