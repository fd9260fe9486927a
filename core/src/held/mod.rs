//! Who waits for whom among the submissions that are held on the host.
//!
//! A node is a submission that a lane holds, or a signal that the host has yet to make for one, which waits for
//! the submission's end. It depends on the node that has claimed what it waits for, and on the node that has
//! claimed the predecessor of what it signals itself. A queue's own timeline is a timeline like any other here
//! (submission `n` claims `n` of it), so the order within a queue needs no edges of its own. Nor does that claim need a
//! record: what a queue holds stands in order (`turns`).
//!
//! A wait that no node has claimed has no edge: a signal may still come. Hence a circle of edges is one
//! that no legal signal can break, and the submission that would close it is refused.
//!
//! Every node has a rank above those of the nodes it depends on. A new node mostly fits between its
//! dependencies and its dependents; only if it does not are the dependents searched, and only those
//! whose rank is in the way (as in Pearce and Kelly's dynamic topological sort), so a chain costs the
//! same per link however long it is.
//!
//! There is one graph in a process, since a circle may lead through any devices. What two users of the
//! library hold is never connected in it. Its lock is the innermost of all.

pub(crate) mod blockers;
mod line;
mod node;
mod order;
mod seat;
mod steps;
mod turns;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::blockers::{Blockers, Signaller};
use crate::base::run::Wake;
use crate::base::sync::{Mutex, per_process};
use crate::timeline::point::KeptPoint;
use crate::timeline::state::Shared;

pub(crate) use line::Line;
pub(crate) use node::{Holder, Lists, Origin, OwnedClaim};
use node::{Node, NodeId, RELAYED};
pub(crate) use seat::{Place, Seat, Turn};
pub(crate) use turns::Parts;
use turns::Turns;

per_process! { static GRAPH: Mutex<Graph> = Mutex::new(Graph::new()) }

/// Points that are waited for.
pub(crate) type Points = Vec<(Arc<Shared>, u64)>;

/// What the graph knows of a queue.
struct Seated {
    origin: Arc<Origin>,
    turns: Turns,
}

/// A signal that the host makes for a submission.
struct Relayed {
    origin: Arc<Origin>,
    number: u64,
    wait: KeptPoint,
    claim: OwnedClaim,
    rank: i128,
}

/// Tells every queue that holds a submission which waits for `of`, or signals it, to look at it again. For the
/// run-queue: no lock may be held when they are woken.
pub(crate) fn waiting_for(of: &Shared) -> SmallVec<[Arc<dyn Wake>; 4]> {
    GRAPH.lock().waiting_for(of)
}

/// What will bring `of` to `value`, if that is a submission in the graph, and the points that it waits for itself.
/// `at_once`: of all that is held before it on its queue, only the first is to be told.
pub(crate) fn signaller(
    of: &Arc<Shared>,
    value: u64,
    at_once: bool,
) -> Option<(Signaller, Points)> {
    GRAPH.lock().signaller(of, value, at_once)
}

struct Graph {
    seats: Vec<Option<Seated>>,
    free_seats: Vec<u32>,
    relayed: Vec<Option<Relayed>>,
    free: Vec<u32>,
}

impl Graph {
    const fn new() -> Self {
        Self {
            seats: Vec::new(),
            free_seats: Vec::new(),
            relayed: Vec::new(),
            free: Vec::new(),
        }
    }

    fn seat(&mut self, origin: Arc<Origin>) -> u32 {
        let turns = Turns::default();
        let seated = Some(Seated { origin, turns });
        if let Some(seat) = self.free_seats.pop() {
            self.seats[seat as usize] = seated;
            return seat;
        }
        self.seats.push(seated);
        // That many do not fit into any memory.
        (self.seats.len() - 1) as u32
    }

    fn unseat(&mut self, seat: u32) -> Option<Seated> {
        let seated = self.seats.get_mut(seat as usize)?.take()?;
        // Nothing is held, as a rule.
        for number in seated.turns.numbers_from(0) {
            let (waits, claims) = seated.turns.lists(number);
            let node = node_of(&seated, number, waits, claims);
            Self::forget(id(seat, number), node);
        }
        seated.origin.own.line.belongs_to(None);
        self.free_seats.push(seat);
        Some(seated)
    }

    fn queue(&self, seat: u32) -> Option<&Seated> {
        self.seats.get(seat as usize)?.as_ref()
    }

    fn node(&self, id: NodeId) -> Option<Node<'_>> {
        steps::count(1);
        if id.seat == RELAYED {
            let signal = self.relayed.get(id.at as usize)?.as_ref()?;
            return Some(signal.node());
        }
        let queue = self.queue(id.seat)?;
        let number = queue.turns.number(id.at);
        let (waits, claims) = queue.turns.lists(number);
        let is_held = queue.turns.contains(number);
        is_held.then(|| node_of(queue, number, waits, claims))
    }

    fn rank(&self, id: NodeId) -> i128 {
        steps::count(1);
        let rank = if id.seat == RELAYED {
            let signal = self.relayed.get(id.at as usize);
            signal.and_then(|signal| Some(signal.as_ref()?.rank))
        } else {
            let queue = self.queue(id.seat);
            queue.and_then(|queue| queue.turns.rank(queue.turns.number(id.at)))
        };
        rank.unwrap_or(i128::MIN)
    }

    /// The node whose claim brings `of` to `value`.
    fn claimant(&self, of: &Shared, value: u64) -> Option<NodeId> {
        match of.line.seat() {
            Some(seat) => {
                let is_held = self.queue(seat)?.turns.contains(value);
                is_held.then(|| id(seat, value))
            }
            None if of.is_in_the_graph() => of.line.claimant(value),
            None => None,
        }
    }

    /// What `node` depends on, and through which point.
    fn dependencies<'n>(
        &self,
        node: Node<'n>,
    ) -> impl Iterator<Item = (NodeId, &'n Arc<Shared>, u64)> {
        node.points()
            .filter_map(|(of, value)| Some((self.claimant(of, value)?, of, value)))
    }

    /// The submission that `node` is a signal of, if it is one that the host makes and the submission is held.
    fn held_part(&self, node: Node<'_>) -> Option<Node<'_>> {
        if !node.by_host {
            return None;
        }
        let mut parts = self.dependencies(node).filter_map(|(id, ..)| self.node(id));
        parts.find(|part| part.is_of_the_same_submission(node))
    }

    /// Who it is, in an answer. A signal of a held submission is made by that, whoever makes it in the end.
    fn name(&self, node: Node<'_>) -> Signaller {
        let (queue, submission) = (node.origin.queue.clone(), node.number);
        if node.by_host && self.held_part(node).is_none() {
            Signaller::Host { queue, submission }
        } else {
            Signaller::Held { queue, submission }
        }
    }

    /// What depends on `node`.
    fn dependents(&self, node: Node<'_>) -> SmallVec<[NodeId; 8]> {
        let mut found = SmallVec::new();
        for (of, claim) in node.claims().filter(|(of, _)| of.is_in_the_graph()) {
            of.line.dependents(claim, &mut found);
        }
        if let Some((own, turn)) = node.turn() {
            found.extend(self.claimant(own, turn.upto + 1));
        }
        found
    }

    /// Enters submission `number` of the queue that is `origin` and has this seat.
    fn enter(
        &mut self,
        seat: u32,
        origin: &Arc<Origin>,
        number: u64,
        lists: &mut Lists,
    ) -> Result<(), Blockers> {
        let node = Node {
            origin,
            number,
            by_host: false,
            waits: [&lists.waits, &[]],
            claims: [&lists.claims, &[]],
        };
        let rank = self.rank_for(node)?;
        Self::remember(id(seat, number), node);
        if let Some(Some(queue)) = self.seats.get_mut(seat as usize) {
            queue.turns.add(number, rank, lists);
        }
        Ok(())
    }

    fn enter_relayed(&mut self, signal: &mut Option<Relayed>) -> Result<u32, Blockers> {
        let at = self.free.pop().unwrap_or_else(|| {
            self.relayed.push(None);
            // That many do not fit into any memory.
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
            Self::remember(NodeId { seat: RELAYED, at }, new.node());
        }
        self.relayed[at as usize] = signal.take();
        Ok(at)
    }

    fn reduce(&mut self, seat: u32, number: u64, lists: &mut Lists) {
        self.forget_submission(seat, number);
        if let Some(Some(queue)) = self.seats.get_mut(seat as usize) {
            queue.turns.take(number, lists);
        }
    }

    fn leave(&mut self, seat: u32, number: u64) {
        self.forget_submission(seat, number);
        if let Some(Some(queue)) = self.seats.get_mut(seat as usize) {
            queue.turns.leave(number);
        }
    }

    fn leave_relayed(&mut self, at: u32) -> Option<Relayed> {
        let signal = self.relayed.get_mut(at as usize)?.take()?;
        Self::forget(NodeId { seat: RELAYED, at }, signal.node());
        self.free.push(at);
        Some(signal)
    }

    fn forget_submission(&self, seat: u32, number: u64) {
        if let Some(queue) = self.queue(seat) {
            let (waits, claims) = queue.turns.lists(number);
            Self::forget(id(seat, number), node_of(queue, number, waits, claims));
        }
    }

    fn remember(id: NodeId, node: Node<'_>) {
        let mut wait = |of: &Arc<Shared>, value| {
            of.add_held_wait();
            of.line.add_wait(value, id);
        };
        node.for_each_part(&mut wait, |_, of, claim| {
            of.add_held_wait();
            of.line.add_claim(claim, id);
        });
    }

    fn forget(id: NodeId, node: Node<'_>) {
        let mut wait = |of: &Arc<Shared>, value| {
            of.drop_held_wait();
            of.line.remove_wait(value, id);
        };
        node.for_each_part(&mut wait, |_, of, claim| {
            of.drop_held_wait();
            of.line.remove_claim(claim, id);
        });
    }

    fn waiting_for(&self, of: &Shared) -> SmallVec<[Arc<dyn Wake>; 4]> {
        let open = of.reached().saturating_add(1);
        let waiting = of.line.waiting(open);
        let turns = of.line.seat().and_then(|seat| {
            let numbers = self.queue(seat)?.turns.numbers_from(open);
            Some(numbers.map(move |number| id(seat, number)))
        });
        let told = waiting.into_iter().chain(turns.into_iter().flatten());
        let told = told.filter_map(|id| {
            let node = self.node(id)?;
            let holder = node.origin.holder.upgrade()?;
            let number = node.number;
            Some(Arc::new(Reconsider { holder, number }) as Arc<dyn Wake>)
        });
        told.collect()
    }

    /// See [`signaller`].
    fn signaller(
        &self,
        of: &Arc<Shared>,
        value: u64,
        at_once: bool,
    ) -> Option<(Signaller, Points)> {
        let id = self.claimant(of, value)?;
        let node = self.node(id)?;
        let first = self.queue(id.seat).map(|queue| queue.turns.first());
        if let Some(first) = first.filter(|&first| at_once && first < node.number) {
            let first = (node.origin.own.clone(), first);
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

/// The node of submission `number` of the queue in `seat`.
const fn id(seat: u32, number: u64) -> NodeId {
    let at = number as u32;
    NodeId { seat, at }
}

const fn node_of<'n>(
    queue: &'n Seated,
    number: u64,
    waits: Parts<'n, KeptPoint>,
    claims: Parts<'n, OwnedClaim>,
) -> Node<'n> {
    Node {
        origin: &queue.origin,
        number,
        by_host: false,
        waits,
        claims,
    }
}

impl Relayed {
    const fn node(&self) -> Node<'_> {
        Node {
            origin: &self.origin,
            number: self.number,
            by_host: true,
            waits: [std::slice::from_ref(&self.wait), &[]],
            claims: [std::slice::from_ref(&self.claim), &[]],
        }
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
