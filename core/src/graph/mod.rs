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

mod line;
mod steps;
mod turns;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::blockers::{Blockers, Signaller, step};
use crate::error::Object;
use crate::info::DeviceId;
use crate::long::Grow as _;
use crate::point::KeptPoint;
use crate::run::Wake;
use crate::state::{Interval, Shared};
use crate::sync::{Mutex, per_process};

pub(crate) use line::Line;
pub(crate) use turns::Parts;
use turns::Turns;

per_process! { static GRAPH: Mutex<Graph> = Mutex::new(Graph::new()) }

/// The distance between ranks that nothing forces closer together.
const STEP: i128 = 1 << 64;

/// By how much a rank in the way is pushed beyond the one before it.
const PUSH: i128 = 1 << 32;

/// Points that are waited for.
pub(crate) type Points = Vec<(Arc<Shared>, u64)>;

/// A node, for as long as it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct NodeId {
    /// The queue's [`Seat`]; [`RELAYED`] for a signal that the host makes.
    seat: u32,
    /// The lower half of the submission's number (no queue holds more than that distinguishes), or the signal's place
    /// in the list.
    at: u32,
}

/// In the place of a seat.
const RELAYED: u32 = u32::MAX;

/// A queue with held submissions, to be told that one of them may have become hopeless.
pub(crate) trait Holder: Send + Sync {
    /// Looks again at what submission `number` waits for. Called with no lock held.
    fn reconsider(self: Arc<Self>, number: u64);
}

/// Where submissions come from.
pub(crate) struct Origin {
    pub(crate) queue: Object,
    pub(crate) device: DeviceId,
    pub(crate) holder: Weak<dyn Holder>,
    /// The queue's own timeline.
    pub(crate) own: Arc<Shared>,
}

/// What a submission waits for and claims, on its way between its queue and the graph.
#[derive(Default)]
pub(crate) struct Lists {
    pub(crate) waits: SmallVec<[KeptPoint; 2]>,
    pub(crate) claims: SmallVec<[OwnedClaim; 2]>,
}

impl Lists {
    /// What they hold goes; the room that they have had stays.
    pub(crate) fn clear(&mut self) {
        self.waits.clear();
        self.claims.clear();
    }
}

/// A claim that a submission holds for as long as it is held. None: it has been given up.
pub(crate) type OwnedClaim = (Option<Arc<Shared>>, Interval);

/// What a submission, or a signal that the host makes for it, is to the graph.
#[derive(Clone, Copy)]
struct Node<'n> {
    origin: &'n Arc<Origin>,
    number: u64,
    /// The host makes its claims, once the submission has finished. If not, it also claims its number of the
    /// queue's own timeline.
    by_host: bool,
    waits: Parts<'n, KeptPoint>,
    claims: Parts<'n, OwnedClaim>,
}

impl<'n> Node<'n> {
    fn waits(self) -> impl Iterator<Item = (&'n Arc<Shared>, u64)> {
        let waits = self.waits.into_iter().flatten();
        waits.filter_map(|wait| Some((wait.of.as_ref()?, wait.value)))
    }

    /// What it has claimed, but for its turn. Signals that the host makes for a submission are not the submission's.
    fn signals(self) -> impl Iterator<Item = (&'n Arc<Shared>, Interval)> {
        let claims = self.claims.into_iter().flatten();
        let claims = claims.filter_map(|(of, claim)| Some((of.as_ref()?, *claim)));
        claims.filter(move |(of, _)| self.by_host || of.port_on(self.origin.device).is_some())
    }

    /// Its turn on its queue: a claim of the queue's own timeline.
    fn turn(self) -> Option<(&'n Arc<Shared>, Interval)> {
        let turn = Interval {
            above: self.number - 1,
            upto: self.number,
        };
        (!self.by_host).then_some((&self.origin.own, turn))
    }

    fn claims(self) -> impl Iterator<Item = (&'n Arc<Shared>, Interval)> {
        self.signals().chain(self.turn())
    }

    /// What it waits for: its points, and the signals before its own.
    fn points(self) -> impl Iterator<Item = (&'n Arc<Shared>, u64)> {
        let order = self.claims().map(|(of, claim)| (of, claim.above));
        self.waits().chain(order)
    }

    /// As [`Node::points`], for what each submission does as it comes: plain loops, as the iterators in one another cost several
    /// times as much.
    #[inline]
    fn for_each_point(self, mut action: impl FnMut(&Arc<Shared>, u64)) {
        self.for_each_part(&mut action, |action, of, claim| action(of, claim.above));
        if let Some((own, turn)) = self.turn() {
            action(own, turn.above);
        }
    }

    /// Calls `waits` for what it waits for, and `claims` for its [signals](Node::signals).
    #[inline]
    fn for_each_part<W: FnMut(&Arc<Shared>, u64)>(
        self,
        waits: &mut W,
        mut claims: impl FnMut(&mut W, &Arc<Shared>, Interval),
    ) {
        for part in self.waits {
            for wait in part {
                if let Some(of) = &wait.of {
                    waits(of, wait.value);
                }
            }
        }
        for part in self.claims {
            for (of, claim) in part {
                if let Some(of) = of
                    && (self.by_host || of.port_on(self.origin.device).is_some())
                {
                    claims(waits, of, *claim);
                }
            }
        }
    }

    fn is_of_the_same_submission(self, other: Self) -> bool {
        self.origin.queue == other.origin.queue && self.number == other.number
    }
}

/// A queue's seat in the graph, for as long as there is the queue.
pub(crate) struct Seat {
    number: u32,
    origin: Arc<Origin>,
}

impl Seat {
    pub(crate) fn take(origin: Arc<Origin>) -> Self {
        let mut graph = GRAPH.lock();
        let number = graph.seat(origin.clone());
        origin.own.line.belongs_to(Some(number));
        drop(graph);
        Self { number, origin }
    }

    /// Enters submission `number`, which comes behind all others that the queue holds or before them: `lists` goes
    /// there, or stays if it is refused.
    ///
    /// # Errors
    /// The circle that it would close; the graph is unchanged then.
    pub(crate) fn enter(&self, number: u64, lists: &mut Lists) -> Result<Turn<'_>, Blockers> {
        let mut graph = GRAPH.lock();
        graph.enter(self.number, &self.origin, number, lists)?;
        Ok(self.turn(number))
    }

    /// The place of a submission that [stayed](Turn::stay), or of one that has none.
    pub(crate) const fn turn(&self, number: u64) -> Turn<'_> {
        Turn { seat: self, number }
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
        let Some(Some(queue)) = graph.seats.get_mut(self.number as usize) else {
            return false;
        };
        if !queue.turns.is_first(number) {
            return false;
        }
        let (waits, claims) = queue.turns.lists(number);
        if !is_ready(waits, claims) {
            return false;
        }
        Graph::forget(
            id(self.number, number),
            node_of(queue, number, waits, claims),
        );
        queue.turns.leave_first(Some(lists));
        true
    }

    /// Adds copies of what a submission waits for and claims to `lists`.
    pub(crate) fn look(&self, number: u64, lists: &mut Lists) {
        let graph = GRAPH.lock();
        if let Some(queue) = graph.queue(self.number) {
            let (waits, claims) = queue.turns.lists(number);
            lists.waits.extend(waits.into_iter().flatten().cloned());
            lists.claims.extend(claims.into_iter().flatten().cloned());
        }
    }

    /// A submission waits for nothing any more, and keeps only its turn: the rest goes to `lists`.
    pub(crate) fn reduce(&self, number: u64, lists: &mut Lists) {
        GRAPH.lock().reduce(self.number, number, lists);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let left = GRAPH.lock().unseat(self.number);
        drop(left);
    }
}

/// A held submission's place in the graph, given up on drop. Whoever does so has in hand what it waits for and has claimed: so
/// nothing is dropped for good under the lock.
#[must_use]
pub(crate) struct Turn<'s> {
    seat: &'s Seat,
    number: u64,
}

impl Turn<'_> {
    /// The submission goes on being held; see [`Seat::turn`].
    pub(crate) fn stay(self) {
        std::mem::forget(self);
    }

    /// See [`Seat::reduce`].
    pub(crate) fn reduce(&self) {
        let mut lists = Lists::default();
        self.seat.reduce(self.number, &mut lists);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        GRAPH.lock().leave(self.seat.number, self.number);
    }
}

/// The place of a signal that the host makes for a submission, given up on drop.
pub(crate) struct Place(u32);

impl Place {
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

impl Drop for Place {
    fn drop(&mut self) {
        let signal = GRAPH.lock().leave_relayed(self.0);
        drop(signal);
    }
}

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

/// Who will bring `of` to `value`, if that is a submission in the graph, and the points that it waits for itself.
pub(crate) fn signaller(of: &Arc<Shared>, value: u64) -> Option<(Signaller, Points)> {
    GRAPH.lock().signaller(of, value)
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
            self.relayed.grow();
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

    /// A rank above what `node` depends on and below what depends on it; it is not in the graph yet.
    ///
    /// # Errors
    /// The circle that it would close.
    fn rank_for(&mut self, node: Node<'_>) -> Result<i128, Blockers> {
        let mut highest = None;
        node.for_each_point(|of, value| {
            if let Some(id) = self.claimant(of, value) {
                highest = highest.max(Some(self.rank(id)));
            }
        });
        let dependents = self.dependents(node);
        let lowest = dependents.iter().map(|&id| self.rank(id)).min();
        Ok(match (highest, lowest) {
            (None, None) => 0,
            (Some(highest), None) => highest + STEP,
            (None, Some(lowest)) => lowest - STEP,
            (Some(highest), Some(lowest)) if highest + 1 < lowest => {
                highest + (lowest - highest) / 2
            }
            (Some(highest), Some(_)) => match self.make_room(node, highest, &dependents) {
                Ok(rank) => rank,
                Err(path) => return Err(self.circle(node, &path)),
            },
        })
    }

    /// Pushes what depends on the new node, and stands in its way, to higher ranks. Returns the new node's rank.
    ///
    /// # Errors
    /// The path from a dependent of the new node to one of its dependencies, each depending on the one before.
    fn make_room(
        &mut self,
        node: Node<'_>,
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
            let (Some(node), Some(above)) = (self.node(id), moved.get(&id)) else {
                continue;
            };
            let above = above.rank;
            for dependent in self.dependents(node) {
                push(self, &mut moved, &mut queue, dependent, above, Some(id));
            }
        }
        self.set_ranks(moved.into_iter().map(|(id, moved)| (id, moved.rank)));
        Ok(own)
    }

    fn set_ranks(&mut self, moved: impl Iterator<Item = (NodeId, i128)>) {
        let mut by_queue: BTreeMap<u32, Vec<(u64, i128)>> = BTreeMap::new();
        for (id, rank) in moved {
            if let Some(queue) = self.queue(id.seat) {
                let number = queue.turns.number(id.at);
                by_queue.entry(id.seat).or_default().push((number, rank));
            } else if let Some(Some(signal)) = self.relayed.get_mut(id.at as usize) {
                signal.rank = rank;
            }
        }
        for (seat, mut ranks) in by_queue {
            ranks.sort_unstable();
            if let Some(Some(queue)) = self.seats.get_mut(seat as usize) {
                queue.turns.set_ranks(&ranks);
            }
        }
    }

    /// Spells out a circle: `node` waits for the last of `path`, each of which waits for the one before,
    /// the first for `node`.
    fn circle(&self, node: Node<'_>, path: &[NodeId]) -> Blockers {
        let mut steps = Vec::with_capacity(path.len() + 1);
        let mut waiting = node;
        for &id in path.iter().rev() {
            let Some(signaller) = self.node(id) else {
                continue;
            };
            let through = self.dependencies(waiting).find(|&(other, ..)| other == id);
            // From a submission to its own signals is no step.
            let through = through.filter(|_| !signaller.is_of_the_same_submission(waiting));
            let name = || self.name(signaller);
            steps.extend(through.map(|(_, of, value)| step(of, value, name())));
            waiting = signaller;
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

    /// Who will bring `of` to `value`, and the points that he waits for himself.
    fn signaller(&self, of: &Arc<Shared>, value: u64) -> Option<(Signaller, Points)> {
        let node = self.node(self.claimant(of, value)?)?;
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
