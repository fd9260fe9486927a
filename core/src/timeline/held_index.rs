//! Index of the held submissions that wait for a timeline or have claimed values of it.
//!
//! The graph of held submissions fills it. It is part of the timeline because its lists keep their
//! capacity there.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::base::run::Wake;
use crate::base::steps;
use crate::base::sync::{AtomicU64, Mutex, Ordering};
use crate::timeline::state::{Interval, Shared};

/// Identifies a node of the graph while it is in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId {
    /// The slot of the queue that holds the submission, or a value that marks a signal by the host.
    pub(crate) slot: u32,
    /// The lower half of the submission's number, or the index of the signal by the host.
    ///
    /// A queue never holds more submissions than the lower half can tell apart.
    pub(crate) at: u32,
}

/// Returns what wakes each queue that holds a submission which waits for the timeline or signals
/// it.
pub(crate) type WaitingFor = fn(&Shared) -> SmallVec<[Arc<dyn Wake>; 4]>;

/// Set by the graph with the first queue. Before that nothing is held.
static WAITING_FOR: OnceLock<WaitingFor> = OnceLock::new();

/// Registers the graph of held submissions. There is one in a process.
pub(crate) fn set_waiting_for(waiting_for: WaitingFor) {
    let _ = WAITING_FOR.set(waiting_for);
}

/// The function that [`set_waiting_for`] has registered.
pub(crate) fn waiting_for() -> Option<WaitingFor> {
    WAITING_FOR.get().copied()
}

/// The graph nodes that claim values of a timeline or wait for them. Used only under the graph's
/// lock.
pub(crate) struct HeldIndex {
    lists: Mutex<Lists>,
    /// One more than the slot of the queue whose position this timeline is; 0 for any other
    /// timeline.
    ///
    /// The claims of a position follow from what its queue holds and are recorded only in that
    /// slot.
    slot: AtomicU64,
}

impl Default for HeldIndex {
    fn default() -> Self {
        Self {
            lists: Mutex::default(),
            slot: AtomicU64::new(0),
        }
    }
}

#[derive(Default)]
struct Lists {
    /// Sorted by upper end.
    claims: VecDeque<Claimed>,
    /// Sorted by value, then by node. Each pair occurs once.
    waits: VecDeque<(u64, NodeId)>,
}

#[derive(Clone, Copy)]
struct Claimed {
    claim: Interval,
    by: NodeId,
}

/// Same result as `partition_point`, found without a search at either end of the list.
///
/// Most insertions are at the back and most removals at the front.
fn point<T>(list: &VecDeque<T>, is_before: impl Fn(&T) -> bool) -> usize {
    match (list.front(), list.back()) {
        (_, Some(last)) if is_before(last) => list.len(),
        (Some(first), _) if !is_before(first) => 0,
        _ => {
            steps::count(list.len().checked_ilog2().unwrap_or(0) as usize);
            list.partition_point(is_before)
        }
    }
}

/// Inserts `one` at index `at`, which is usually the end of the list.
#[inline]
fn insert<T>(list: &mut VecDeque<T>, at: usize, one: T) {
    steps::count(1 + at.min(list.len() - at));
    if at == list.len() {
        list.push_back(one);
    } else {
        list.insert(at, one);
    }
}

/// Removes the element at index `at`, which is usually the first.
#[inline]
fn remove<T>(list: &mut VecDeque<T>, at: usize) {
    steps::count(1 + at.min(list.len() - at));
    if at == 0 {
        list.pop_front();
    } else {
        list.remove(at);
    }
}

impl Lists {
    /// Index of the first claim whose upper end is at least `value`.
    fn claims_from(&self, value: u64) -> usize {
        point(&self.claims, |one| one.claim.upto < value)
    }

    /// Index at which the wait for `value` by node `by` is or would be inserted.
    fn wait_at(&self, value: u64, by: NodeId) -> usize {
        point(&self.waits, |&wait| wait < (value, by))
    }

    fn waits_from(&self, value: u64) -> usize {
        point(&self.waits, |&(wait, _)| wait < value)
    }
}

impl HeldIndex {
    /// Sets the slot of the queue whose position this timeline is; `None` once that queue is gone.
    pub(crate) fn belongs_to(&self, slot: Option<u32>) {
        let one_more = slot.map_or(0, |slot| u64::from(slot) + 1);
        self.slot.store(one_more, Ordering::Release);
    }

    #[inline]
    pub(crate) fn slot(&self) -> Option<u32> {
        let slot = self.slot.load(Ordering::Acquire).checked_sub(1)?;
        u32::try_from(slot).ok()
    }

    /// True for the timeline that is a queue's position.
    #[inline]
    pub(crate) fn is_queue_position(&self) -> bool {
        self.slot().is_some()
    }

    /// The node whose claim covers `value`.
    pub(crate) fn claimant(&self, value: u64) -> Option<NodeId> {
        let lists = self.lists.lock();
        let one = lists.claims.get(lists.claims_from(value))?;
        (one.claim.above < value).then_some(one.by)
    }

    /// Adds to `found` the nodes that wait for a value of `claim`, and the node of the next claim.
    ///
    /// The next claim counts only if it adjoins `claim`.
    pub(crate) fn dependents(&self, claim: Interval, found: &mut SmallVec<[NodeId; 8]>) {
        let Some(next) = claim.upto.checked_add(1) else {
            return;
        };
        let lists = self.lists.lock();
        let waits = lists.waits.range(lists.waits_from(claim.above + 1)..);
        let waits = waits.take_while(|&&(value, _)| value < next);
        found.extend(waits.map(|&(_, id)| id));
        let next = lists.claims.get(lists.claims_from(next));
        found.extend(
            next.filter(|one| one.claim.above == claim.upto)
                .map(|one| one.by),
        );
    }

    /// The nodes that wait for `open` or more or have claimed it: a signal waits for the one before
    /// it.
    pub(crate) fn waiting(&self, open: u64) -> SmallVec<[NodeId; 8]> {
        let lists = self.lists.lock();
        let waits = lists.waits.range(lists.waits_from(open)..);
        let claims = lists.claims.range(lists.claims_from(open)..);
        let waits = waits.map(|&(_, id)| id);
        waits.chain(claims.map(|one| one.by)).collect()
    }

    pub(crate) fn add_wait(&self, value: u64, by: NodeId) {
        let mut lists = self.lists.lock();
        let at = lists.wait_at(value, by);
        if lists.waits.get(at) != Some(&(value, by)) {
            insert(&mut lists.waits, at, (value, by));
        }
    }

    pub(crate) fn remove_wait(&self, value: u64, by: NodeId) {
        let mut lists = self.lists.lock();
        let at = lists.wait_at(value, by);
        if lists.waits.get(at) == Some(&(value, by)) {
            remove(&mut lists.waits, at);
        }
    }

    pub(crate) fn add_claim(&self, claim: Interval, by: NodeId) {
        let mut lists = self.lists.lock();
        let one = Claimed { claim, by };
        let at = lists.claims_from(claim.upto);
        match lists.claims.get_mut(at) {
            // A withdrawn claim that has not been removed yet.
            Some(old) if old.claim.upto == claim.upto => *old = one,
            _ => insert(&mut lists.claims, at, one),
        }
    }

    /// Removes the claim, unless another node has taken it over.
    pub(crate) fn remove_claim(&self, claim: Interval, by: NodeId) {
        let mut lists = self.lists.lock();
        let at = lists.claims_from(claim.upto);
        let known = lists.claims.get(at);
        if known.is_some_and(|one| one.claim.upto == claim.upto && one.by == by) {
            remove(&mut lists.claims, at);
        }
    }
}
