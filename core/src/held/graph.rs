//! The graph itself: the held submissions of each queue, and the signals by the host.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::node::{Edges, Holder, Node, QueueOrigin, RELAYED};
use super::nodes::QueueNodes;
use crate::base::blockers::{Blockers, Signaller};
use crate::base::run::Wake;
use crate::base::steps;
use crate::port::Watch;
use crate::timeline::held_index::NodeId;
use crate::timeline::state::{HeldWaits, Interval, Shared};

/// Points to wait for.
pub(super) type Points = Vec<(Arc<Shared>, u64)>;

/// A queue and its held submissions.
pub(super) struct HeldQueue {
    origin: Arc<QueueOrigin>,
    nodes: QueueNodes,
}

/// A signal that the host will make for a submission.
pub(super) struct Relayed {
    origin: Arc<QueueOrigin>,
    number: u64,
    edges: Edges,
    rank: i128,
}

/// The nodes of a graph, by queue and by host signal.
pub(super) struct Graph {
    queues: Vec<Option<HeldQueue>>,
    free_queues: Vec<u32>,
    relayed: Vec<Option<Relayed>>,
    free_relayed: Vec<u32>,
}

impl Graph {
    pub(super) const fn new() -> Self {
        Self {
            queues: Vec::new(),
            free_queues: Vec::new(),
            relayed: Vec::new(),
            free_relayed: Vec::new(),
        }
    }

    pub(super) fn add_queue(&mut self, origin: Arc<QueueOrigin>) -> u32 {
        let index = self.free_queues.pop().unwrap_or_else(|| {
            self.queues.push(None);
            // No overflow: 2^32 queues do not fit into memory.
            (self.queues.len() - 1) as u32
        });
        origin.own().held_index().set_queue(Some(index));
        let nodes = QueueNodes::default();
        self.queues[index as usize] = Some(HeldQueue { origin, nodes });
        index
    }

    pub(super) fn remove_queue(&mut self, index: u32) -> Option<HeldQueue> {
        let held_queue = self.queues.get_mut(index as usize)?.take()?;
        // Usually the queue holds nothing any more.
        for number in held_queue.nodes.numbers_from(0) {
            Self::forget(id(index, number), held_queue.node(number));
        }
        held_queue.origin.own().held_index().set_queue(None);
        self.free_queues.push(index);
        Some(held_queue)
    }

    fn queue(&self, index: u32) -> Option<&HeldQueue> {
        self.queues.get(index as usize)?.as_ref()
    }

    /// The watches of the devices of all queues, each once.
    pub(super) fn watches(&self) -> Vec<Arc<dyn Watch>> {
        let mut watches: Vec<Arc<dyn Watch>> = Vec::new();
        for queue in self.queues.iter().flatten() {
            if let Some(watch) = queue.origin.own().watch()
                && !watches.iter().any(|known| Arc::ptr_eq(known, watch))
            {
                watches.push(watch.clone());
            }
        }
        watches
    }

    pub(super) fn node(&self, id: NodeId) -> Option<Node<'_>> {
        steps::count(1);
        if id.queue == RELAYED {
            let signal = self.relayed.get(id.at as usize)?.as_ref()?;
            return Some(signal.node());
        }
        let queue = self.queue(id.queue)?;
        let number = queue.nodes.number(id.at);
        let is_held = queue.nodes.contains(number);
        is_held.then(|| queue.node(number))
    }

    pub(super) fn rank(&self, id: NodeId) -> i128 {
        steps::count(1);
        let rank = if id.queue == RELAYED {
            let signal = self.relayed.get(id.at as usize);
            signal.and_then(|signal| Some(signal.as_ref()?.rank))
        } else {
            let queue = self.queue(id.queue);
            queue.and_then(|queue| queue.nodes.rank(queue.nodes.number(id.at)))
        };
        rank.unwrap_or(i128::MIN)
    }

    /// Changes the ranks of these nodes.
    pub(super) fn set_ranks(&mut self, moved: impl Iterator<Item = (NodeId, i128)>) {
        let mut by_queue: BTreeMap<u32, Vec<(u64, i128)>> = BTreeMap::new();
        for (id, rank) in moved {
            if let Some(queue) = self.queue(id.queue) {
                let number = queue.nodes.number(id.at);
                by_queue.entry(id.queue).or_default().push((number, rank));
            } else if let Some(Some(signal)) = self.relayed.get_mut(id.at as usize) {
                signal.rank = rank;
            }
        }
        for (index, mut ranks) in by_queue {
            ranks.sort_unstable();
            if let Some(Some(queue)) = self.queues.get_mut(index as usize) {
                queue.nodes.set_ranks(&ranks);
            }
        }
    }

    /// The node whose claim covers `value` of `of`.
    pub(super) fn claimant(&self, of: &Shared, value: u64) -> Option<NodeId> {
        match of.held_index().queue() {
            Some(index) => {
                let is_held = self.queue(index)?.nodes.contains(value);
                is_held.then(|| id(index, value))
            }
            None if of.held_index().is_empty() => None,
            None => of.held_index().claimant(value),
        }
    }

    /// The nodes that `node` depends on, each with the point through which it does.
    pub(super) fn dependencies<'n>(
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
    pub(super) fn name(&self, node: Node<'_>) -> Signaller {
        let (queue, submission) = (node.queue().clone(), node.number());
        if node.is_by_host() && self.held_part(node).is_none() {
            Signaller::Host { queue, submission }
        } else {
            Signaller::Held { queue, submission }
        }
    }

    /// The nodes that depend on `node`.
    pub(super) fn dependents(&self, node: Node<'_>) -> SmallVec<[NodeId; 8]> {
        let mut found = SmallVec::new();
        for (of, claim) in node.claims().filter(|(of, _)| !of.held_index().is_empty()) {
            of.held_index().dependents(claim, &mut found);
        }
        if let Some((own, position)) = node.own_claim() {
            found.extend(self.claimant(own, position.upto + 1));
        }
        found
    }

    /// Enters submission `number` of the queue `origin`, which has this index.
    pub(super) fn enter(
        &mut self,
        index: u32,
        origin: &Arc<QueueOrigin>,
        number: u64,
        edges: &Arc<Edges>,
    ) -> Result<(), Blockers> {
        let node = Node::submission(origin, number, Some(edges));
        let rank = self.rank_for(node)?;
        Self::remember(id(index, number), node);
        if let Some(Some(queue)) = self.queues.get_mut(index as usize) {
            queue.nodes.add(number, rank, edges.clone());
        }
        Ok(())
    }

    pub(super) fn enter_relayed(&mut self, signal: &mut Option<Relayed>) -> Result<u32, Blockers> {
        let at = self.free_relayed.pop().unwrap_or_else(|| {
            self.relayed.push(None);
            // No overflow: 2^32 signals do not fit into memory.
            (self.relayed.len() - 1) as u32
        });
        if let Some(new) = signal {
            match self.rank_for(new.node()) {
                Ok(rank) => new.rank = rank,
                Err(circle) => {
                    self.free_relayed.push(at);
                    return Err(circle);
                }
            }
            Self::remember(NodeId { queue: RELAYED, at }, new.node());
        }
        self.relayed[at as usize] = signal.take();
        Ok(at)
    }

    /// Takes the edges of a submission, which keeps its position.
    pub(super) fn reduce(&mut self, index: u32, number: u64) -> Option<Arc<Edges>> {
        self.forget_submission(index, number);
        let queue = self.queues.get_mut(index as usize)?.as_mut()?;
        queue.nodes.take_edges(number)
    }

    /// Removes the first or the last submission of a queue. Does nothing if it is not there.
    pub(super) fn leave(&mut self, index: u32, number: u64) -> Option<Arc<Edges>> {
        self.forget_submission(index, number);
        let queue = self.queues.get_mut(index as usize)?.as_mut()?;
        queue.nodes.leave(number)
    }

    pub(super) fn leave_relayed(&mut self, at: u32) -> Option<Relayed> {
        let signal = self.relayed.get_mut(at as usize)?.take()?;
        Self::forget(NodeId { queue: RELAYED, at }, signal.node());
        self.free_relayed.push(at);
        Some(signal)
    }

    fn forget_submission(&self, index: u32, number: u64) {
        if let Some(queue) = self.queue(index) {
            Self::forget(id(index, number), queue.node(number));
        }
    }

    fn remember(id: NodeId, node: Node<'_>) {
        node.for_each_part(
            &mut |of, value| of.held_index().add_wait(value, id),
            |_, of, claim| of.held_index().add_claim(claim, id),
        );
    }

    fn forget(id: NodeId, node: Node<'_>) {
        node.for_each_part(
            &mut |of, value| of.held_index().remove_wait(value, id),
            |_, of, claim| of.held_index().remove_claim(claim, id),
        );
    }

    pub(super) fn waiting_for(&self, of: &Shared) -> HeldWaits {
        let open = of.reached().saturating_add(1);
        let waiting = of.held_index().waiting(open);
        let queued = of.held_index().queue().and_then(|index| {
            let numbers = self.queue(index)?.nodes.numbers_from(open);
            Some(numbers.map(move |number| (number, id(index, number))))
        });
        let nodes = waiting.into_iter().chain(queued.into_iter().flatten());
        let wakers = nodes.filter_map(|(value, id)| {
            let node = self.node(id)?;
            let (holder, number) = (node.holder()?, node.number());
            Some((
                value,
                Arc::new(Reconsider { holder, number }) as Arc<dyn Wake>,
            ))
        });
        wakers.collect()
    }

    /// See [`signaller`](super::entry::signaller).
    pub(super) fn signaller(
        &self,
        of: &Arc<Shared>,
        value: u64,
        first_only: bool,
    ) -> Option<(Signaller, Points)> {
        let id = self.claimant(of, value)?;
        let node = self.node(id)?;
        let first = self.queue(id.queue).map(|queue| queue.nodes.first());
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

/// The id of submission `number` of the queue with this index.
pub(super) const fn id(queue: u32, number: u64) -> NodeId {
    let at = number as u32;
    NodeId { queue, at }
}

impl HeldQueue {
    /// Submission `number`.
    fn node(&self, number: u64) -> Node<'_> {
        Node::submission(&self.origin, number, self.nodes.edges(number))
    }
}

impl Relayed {
    /// The signal that the host makes once submission `number` has ended.
    pub(super) fn new(
        origin: Arc<QueueOrigin>,
        number: u64,
        of: Arc<Shared>,
        claim: Interval,
    ) -> Self {
        let mut edges = Edges::default();
        edges.waits.push((origin.own().clone(), number));
        edges.claims.push((of, claim));
        Self {
            edges,
            origin,
            number,
            rank: 0,
        }
    }

    fn node(&self) -> Node<'_> {
        Node::relayed(&self.origin, self.number, &self.edges)
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
