//! Index of the held submissions that wait for a timeline or have claimed values of it.
//!
//! The graph of held submissions fills it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::base::steps;
use crate::base::sync::{AtomicU64, Mutex, Ordering};
use crate::timeline::interval::Interval;

/// Identifies a node of the graph while it is in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId {
    /// The index of the queue that holds the submission, or a value for a signal by the host.
    pub(crate) queue: u32,
    /// The lower half of the submission's number, or the index of the signal by the host.
    ///
    /// A queue never holds more submissions than the lower half can tell apart.
    pub(crate) at: u32,
}

impl NodeId {
    /// The lowest in order.
    const FIRST: Self = Self { queue: 0, at: 0 };
}

/// The graph nodes that claim values of a timeline or wait for them.
pub(crate) struct HeldIndex {
    /// Used only under the graph's lock.
    lists: Mutex<IndexLists>,
    /// The number of waits and claims in the graph. Written under the graph's lock.
    ///
    /// The queue that enters a submission there has a fence between this and its check for a failed
    /// or closed timeline.
    count: AtomicU64,
    /// One more than the index of the queue whose position this timeline is; 0 for any other
    /// timeline.
    ///
    /// The claims of a position follow from what its queue holds, and are recorded only in that
    /// queue's nodes.
    queue: AtomicU64,
}

impl Default for HeldIndex {
    fn default() -> Self {
        Self {
            lists: Mutex::default(),
            count: AtomicU64::new(0),
            queue: AtomicU64::new(0),
        }
    }
}

#[derive(Default)]
struct IndexLists {
    /// By upper end.
    claims: BTreeMap<u64, Claimant>,
    waits: BTreeSet<(u64, NodeId)>,
}

#[derive(Clone, Copy)]
struct Claimant {
    above: u64,
    by: NodeId,
}

/// Counts the steps of a search among `len` entries of a tree. An estimate, so that it must change
/// with the container.
fn count_search(len: usize) {
    steps::count(1 + len.checked_ilog2().unwrap_or(0) as usize);
}

impl IndexLists {
    /// The first claim whose upper end is at least `value`, and that end.
    fn claim_from(&self, value: u64) -> Option<(u64, Claimant)> {
        let next = self.claims.range(value..).next();
        next.map(|(&upto, &one)| (upto, one))
    }

    /// The waits for `value` or more.
    fn waits_from(&self, value: u64) -> impl Iterator<Item = (u64, NodeId)> {
        self.waits.range((value, NodeId::FIRST)..).copied()
    }
}

impl HeldIndex {
    /// Sets the index of the queue whose position this timeline is; `None` once that queue is gone.
    pub(crate) fn set_queue(&self, index: Option<u32>) {
        let one_more = index.map_or(0, |index| u64::from(index) + 1);
        self.queue.store(one_more, Ordering::Release);
    }

    #[inline]
    pub(crate) fn queue(&self) -> Option<u32> {
        let index = self.queue.load(Ordering::Acquire).checked_sub(1)?;
        u32::try_from(index).ok()
    }

    /// True for the timeline that is a queue's position.
    #[inline]
    pub(crate) fn is_queue_position(&self) -> bool {
        self.queue().is_some()
    }

    /// True if the graph has no wait for this timeline and no claim of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    fn change_count(&self, change: impl FnOnce(u64) -> u64) {
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(change(count), Ordering::Relaxed);
    }

    /// The node whose claim covers `value`.
    pub(crate) fn claimant(&self, value: u64) -> Option<NodeId> {
        let (_, one) = self.lists.lock().claim_from(value)?;
        (one.above < value).then_some(one.by)
    }

    /// Adds to `found` the nodes that wait for a value of `claim`, and the node of the next claim.
    ///
    /// The next claim counts only if it adjoins `claim`.
    pub(crate) fn dependents(&self, claim: Interval, found: &mut SmallVec<[NodeId; 8]>) {
        let Some(next) = claim.upto.checked_add(1) else {
            return;
        };
        let lists = self.lists.lock();
        let waits = lists.waits_from(claim.above + 1);
        let waits = waits.take_while(|&(value, _)| value < next);
        found.extend(waits.map(|(_, id)| id));
        let next = lists.claim_from(next).map(|(_, one)| one);
        let next = next.filter(|one| one.above == claim.upto);
        found.extend(next.map(|one| one.by));
    }

    /// The nodes that wait for `open` or more, or have claimed it, each with the value that it
    /// waits for.
    ///
    /// A signal waits for the one before it.
    pub(crate) fn waiting(&self, open: u64) -> SmallVec<[(u64, NodeId); 8]> {
        let lists = self.lists.lock();
        let waits = lists.waits_from(open);
        let claims = lists
            .claims
            .range(open..)
            .map(|(_, one)| (one.above, one.by));
        waits.chain(claims).collect()
    }

    pub(crate) fn add_wait(&self, value: u64, by: NodeId) {
        self.change_count(|count| count + 1);
        let mut lists = self.lists.lock();
        count_search(lists.waits.len());
        lists.waits.insert((value, by));
    }

    pub(crate) fn remove_wait(&self, value: u64, by: NodeId) {
        self.change_count(|count| count - 1);
        let mut lists = self.lists.lock();
        count_search(lists.waits.len());
        lists.waits.remove(&(value, by));
    }

    /// Adds the claim. It replaces a withdrawn one that has not been removed yet.
    pub(crate) fn add_claim(&self, claim: Interval, by: NodeId) {
        self.change_count(|count| count + 1);
        let mut lists = self.lists.lock();
        count_search(lists.claims.len());
        let above = claim.above;
        lists.claims.insert(claim.upto, Claimant { above, by });
    }

    /// Removes the claim, unless another node has taken it over.
    pub(crate) fn remove_claim(&self, claim: Interval, by: NodeId) {
        self.change_count(|count| count - 1);
        let mut lists = self.lists.lock();
        count_search(lists.claims.len());
        if let Entry::Occupied(one) = lists.claims.entry(claim.upto)
            && one.get().by == by
        {
            one.remove();
        }
    }
}
