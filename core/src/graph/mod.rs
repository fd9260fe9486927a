//! Who waits for whom among the submissions that are held on the host.
//!
//! A node is a submission that a lane holds, or a signal that the host has yet to make for one, which waits for
//! the submission's end. It depends on the node that has claimed what it waits for, and on the node that has
//! claimed the predecessor of what it signals itself. A queue's own timeline is a timeline like any other here
//! (submission `n` claims `n` of it), so the order within a queue needs no edges of its own.
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

use std::cmp::Reverse;
mod line;

use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::blockers::{Blockers, Signaller, step};
use crate::error::Object;
use crate::long::Grow as _;
use crate::point::KeptPoint;
use crate::run::Wake;
use crate::state::{Interval, Shared};
use crate::sync::{Mutex, per_process};

pub(crate) use line::Line;

per_process! { static GRAPH: Mutex<Graph> = Mutex::new(Graph::new()) }

/// The distance between ranks that nothing forces closer together.
const STEP: i128 = 1 << 64;

/// By how much a rank in the way is pushed beyond the one before it.
const PUSH: i128 = 1 << 32;

/// Points that are waited for.
pub(crate) type Points = Vec<(Arc<Shared>, u64)>;

type NodeId = u32;

/// A queue with held submissions, to be told that one of them may have become hopeless.
pub(crate) trait Holder: Send + Sync {
    /// Looks again at what submission `number` waits for. Called with no lock held.
    fn reconsider(self: Arc<Self>, number: u64);
}

/// What a submission, or a signal that the host makes for it, is to the graph.
pub(crate) struct Node {
    pub(crate) origin: Arc<Origin>,
    pub(crate) number: u64,
    /// The host makes its claims, once the submission has finished. If not, it also claims its number of the
    /// queue's own timeline.
    pub(crate) by_host: bool,
    /// What it waits for and claims; shared with the lane, since of these there may be very many. None once it only
    /// has its turn left.
    pub(crate) lists: Option<Arc<Lists>>,
}

/// Where submissions come from.
pub(crate) struct Origin {
    pub(crate) queue: Object,
    pub(crate) holder: Weak<dyn Holder>,
    /// The queue's own timeline.
    pub(crate) own: Arc<Shared>,
}

/// What a submission waits for and claims.
#[derive(Default)]
pub(crate) struct Lists {
    pub(crate) waits: SmallVec<[KeptPoint; 1]>,
    /// First those that go with the submission, then those that the host makes for it.
    pub(crate) claims: SmallVec<[OwnedClaim; 1]>,
    /// How many of the claims the submission itself signals.
    pub(crate) native: usize,
}

/// A claim that a submission holds for as long as it is held.
pub(crate) type OwnedClaim = (Arc<Shared>, Interval);

impl Lists {
    fn waits(&self) -> impl Iterator<Item = (&Arc<Shared>, u64)> {
        let waits = self.waits.iter();
        waits.filter_map(|wait| Some((wait.of.as_ref()?, wait.value)))
    }

    fn claims(&self) -> impl Iterator<Item = (&Arc<Shared>, Interval)> {
        let native = self.claims.iter().take(self.native);
        native.map(|(of, claim)| (of, *claim))
    }
}

impl Node {
    fn waits(&self) -> impl Iterator<Item = (&Arc<Shared>, u64)> {
        self.lists.iter().flat_map(|lists| lists.waits())
    }

    fn claims(&self) -> impl Iterator<Item = (&Arc<Shared>, Interval)> {
        let claims = self.lists.iter().flat_map(|lists| lists.claims());
        let turn = Interval {
            above: self.number - 1,
            upto: self.number,
        };
        claims.chain((!self.by_host).then_some((&self.origin.own, turn)))
    }

    /// What it waits for: its points, and the signals before its own.
    fn points(&self) -> impl Iterator<Item = (&Arc<Shared>, u64)> {
        let order = self.claims().map(|(of, claim)| (of, claim.above));
        self.waits().chain(order)
    }

    fn is_of_the_same_submission(&self, other: &Self) -> bool {
        self.origin.queue == other.origin.queue && self.number == other.number
    }
}

/// A place in the graph, given up on drop.
pub(crate) struct Place(NodeId);

impl Place {
    /// Takes the place of a node with what it waits for and claims.
    ///
    /// # Errors
    /// The circle that it would close; the graph is unchanged then.
    pub(crate) fn take(node: Node) -> Result<Self, Blockers> {
        let entered = GRAPH.lock().enter(node);
        entered.map(Self).map_err(|refused| {
            // The node and its handles are dropped here, without the lock.
            refused.circle
        })
    }

    /// The node waits for nothing any more, and keeps only its turn.
    pub(crate) fn reduce(&self) {
        let removed = GRAPH.lock().reduce(self.0);
        drop(removed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let node = GRAPH.lock().leave(self.0);
        drop(node);
    }
}

/// Tells every queue that holds a submission which waits for `of`, or signals it, to look at it again. For the
/// run-queue: no lock may be held when they are woken.
pub(crate) fn waiting_for(of: &Shared) -> SmallVec<[Arc<dyn Wake>; 4]> {
    GRAPH.lock().waiting_for(of)
}

/// Who will bring `of` to `value`, if that is a submission in the graph, and the points that it waits for itself.
pub(crate) fn signaller(of: &Arc<Shared>, value: u64) -> Option<(Signaller, Points)> {
    GRAPH.lock().signaller(of, value)
}

struct Stored {
    node: Node,
    rank: i128,
}

struct Refused {
    circle: Blockers,
    /// To be dropped without the lock.
    _node: Node,
}

struct Graph {
    nodes: Vec<Option<Stored>>,
    free: Vec<NodeId>,
}

impl Graph {
    const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
        }
    }

    fn stored(&self, id: NodeId) -> Option<&Stored> {
        self.nodes.get(id as usize)?.as_ref()
    }

    fn rank(&self, id: NodeId) -> i128 {
        self.stored(id).map_or(i128::MIN, |stored| stored.rank)
    }

    /// What `node` depends on, and through which point.
    fn dependencies<'n>(
        &'n self,
        node: &'n Node,
    ) -> impl Iterator<Item = (NodeId, &'n Arc<Shared>, u64)> {
        node.points()
            .filter_map(|(of, value)| Some((of.line.claimant(value)?, of, value)))
    }

    /// The submission that `node` is a signal of, if it is one that the host makes and the submission is held.
    fn held_part(&self, node: &Node) -> Option<&Node> {
        let mut parts = self.dependencies(node).map(|(id, ..)| self.stored(id));
        let found =
            parts.find_map(|part| part.filter(|part| part.node.is_of_the_same_submission(node)));
        found.map(|part| &part.node).filter(|_| node.by_host)
    }

    /// Who it is, in an answer. A signal of a held submission is made by that, whoever makes it in the end.
    fn name(&self, node: &Node) -> Signaller {
        let (queue, submission) = (node.origin.queue.clone(), node.number);
        if node.by_host && self.held_part(node).is_none() {
            Signaller::Host { queue, submission }
        } else {
            Signaller::Held { queue, submission }
        }
    }

    /// What depends on `node`.
    fn dependents(node: &Node) -> SmallVec<[NodeId; 8]> {
        let mut found = SmallVec::new();
        for (of, claim) in node.claims() {
            of.line.dependents(claim, &mut found);
        }
        found
    }

    fn enter(&mut self, node: Node) -> Result<NodeId, Box<Refused>> {
        let highest = self.dependencies(&node).map(|(id, ..)| self.rank(id)).max();
        let dependents = Self::dependents(&node);
        let lowest = dependents.iter().map(|&id| self.rank(id)).min();
        let rank = match (highest, lowest) {
            (None, None) => 0,
            (Some(highest), None) => highest + STEP,
            (None, Some(lowest)) => lowest - STEP,
            (Some(highest), Some(lowest)) if highest + 1 < lowest => {
                highest + (lowest - highest) / 2
            }
            (Some(highest), Some(_)) => match self.make_room(&node, highest, &dependents) {
                Ok(rank) => rank,
                Err(path) => {
                    let circle = self.circle(&node, &path);
                    let _node = node;
                    return Err(Box::new(Refused { circle, _node }));
                }
            },
        };
        let id = self.free.pop().unwrap_or_else(|| {
            self.nodes.grow();
            self.nodes.push(None);
            // That many do not fit into any memory.
            (self.nodes.len() - 1) as NodeId
        });
        for (of, value) in node.waits() {
            of.add_held_wait();
            of.line.add_wait(value, id);
        }
        for (of, claim) in node.claims() {
            of.add_held_wait();
            of.line.add_claim(claim, id);
        }
        self.nodes[id as usize] = Some(Stored { node, rank });
        Ok(id)
    }

    /// Pushes what depends on the new node, and stands in its way, to higher ranks. Returns the new node's rank.
    ///
    /// # Errors
    /// The path from a dependent of the new node to one of its dependencies, each depending on the one before.
    fn make_room(
        &mut self,
        node: &Node,
        highest: i128,
        dependents: &[NodeId],
    ) -> Result<i128, Vec<NodeId>> {
        struct Moved {
            rank: i128,
            from: Option<NodeId>,
        }
        let own = highest + PUSH;
        let targets: BTreeSet<NodeId> = self.dependencies(node).map(|(id, ..)| id).collect();
        let mut moved: HashMap<NodeId, Moved> = HashMap::new();
        // Lowest old rank first: when a node's turn comes, all that pushes it is known.
        let mut queue = BinaryHeap::new();
        let push = |graph: &Self,
                    moved: &mut HashMap<NodeId, Moved>,
                    queue: &mut BinaryHeap<Reverse<(i128, NodeId)>>,
                    id: NodeId,
                    above: i128,
                    from: Option<NodeId>| {
            let old = graph.rank(id);
            if old > above {
                return;
            }
            let rank = above + PUSH;
            match moved.get_mut(&id) {
                Some(known) if known.rank >= rank => {}
                Some(known) => *known = Moved { rank, from },
                None => {
                    moved.insert(id, Moved { rank, from });
                    queue.push(Reverse((old, id)));
                }
            }
        };
        for &id in dependents {
            push(self, &mut moved, &mut queue, id, own, None);
        }
        while let Some(Reverse((_, id))) = queue.pop() {
            if targets.contains(&id) {
                let mut path = vec![id];
                let mut at = id;
                while let Some(from) = moved.get(&at).and_then(|moved| moved.from) {
                    path.push(from);
                    at = from;
                }
                path.reverse();
                return Err(path);
            }
            let (Some(stored), Some(above)) = (self.stored(id), moved.get(&id)) else {
                continue;
            };
            let above = above.rank;
            for dependent in Self::dependents(&stored.node) {
                push(self, &mut moved, &mut queue, dependent, above, Some(id));
            }
        }
        for (id, Moved { rank, .. }) in moved {
            if let Some(Some(stored)) = self.nodes.get_mut(id as usize) {
                stored.rank = rank;
            }
        }
        Ok(own)
    }

    /// Spells out a circle: `node` waits for the last of `path`, each of which waits for the one before,
    /// the first for `node`.
    fn circle(&self, node: &Node, path: &[NodeId]) -> Blockers {
        let mut steps = Vec::with_capacity(path.len() + 1);
        let mut waiting = node;
        for &id in path.iter().rev() {
            let Some(signaller) = self.stored(id) else {
                continue;
            };
            let through = self.dependencies(waiting).find(|&(other, ..)| other == id);
            // From a submission to its own signals is no step.
            let through = through.filter(|_| !signaller.node.is_of_the_same_submission(waiting));
            let name = || self.name(&signaller.node);
            steps.extend(through.map(|(_, of, value)| step(of, value, name())));
            waiting = &signaller.node;
        }
        let claimed = |of: &Arc<Shared>, value| {
            node.claims().any(|(own, claim)| {
                Arc::ptr_eq(own, of) && claim.above < value && value <= claim.upto
            })
        };
        let last = waiting.points().find(|&(of, value)| claimed(of, value));
        steps.extend(last.map(|(of, value)| step(of, value, self.name(node))));
        Blockers::new(steps)
    }

    fn reduce(&mut self, id: NodeId) -> Option<Arc<Lists>> {
        let node = &mut self.nodes.get_mut(id as usize)?.as_mut()?.node;
        let lists = node.lists.take()?;
        Self::forget(id, lists.waits(), lists.claims());
        Some(lists)
    }

    fn leave(&mut self, id: NodeId) -> Option<Node> {
        let node = self.nodes.get_mut(id as usize)?.take()?.node;
        Self::forget(id, node.waits(), node.claims());
        self.free.push(id);
        Some(node)
    }

    fn forget<'n>(
        id: NodeId,
        waits: impl Iterator<Item = (&'n Arc<Shared>, u64)>,
        claims: impl Iterator<Item = (&'n Arc<Shared>, Interval)>,
    ) {
        for (of, value) in waits {
            of.drop_held_wait();
            of.line.remove_wait(value, id);
        }
        for (of, claim) in claims {
            of.drop_held_wait();
            of.line.remove_claim(claim, id);
        }
    }

    fn waiting_for(&self, of: &Shared) -> SmallVec<[Arc<dyn Wake>; 4]> {
        let waiting = of.line.waiting(of.reached().saturating_add(1));
        let told = waiting.into_iter().filter_map(|id| {
            let node = &self.stored(id)?.node;
            let holder = node.origin.holder.upgrade()?;
            let number = node.number;
            Some(Arc::new(Reconsider { holder, number }) as Arc<dyn Wake>)
        });
        told.collect()
    }

    /// Who will bring `of` to `value`, and the points that he waits for himself.
    fn signaller(&self, of: &Arc<Shared>, value: u64) -> Option<(Signaller, Points)> {
        let node = &self.stored(of.line.claimant(value)?)?.node;
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
