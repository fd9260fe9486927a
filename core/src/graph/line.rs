//! What the graph knows of one timeline. It stands beside the timeline, so that a timeline that is used again and
//! again has room for it already.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::NodeId;
use crate::long::Grow as _;
use crate::state::Interval;
use crate::sync::Mutex;

/// The nodes that have claimed values of a timeline, and those that wait for some. Used under the graph's lock alone.
#[derive(Default)]
pub(crate) struct Line(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    /// By upper end.
    claims: VecDeque<Claimed>,
    /// By value, then by node; each pair once.
    waits: VecDeque<(u64, NodeId)>,
}

#[derive(Clone, Copy)]
struct Claimed {
    claim: Interval,
    by: NodeId,
}

impl Lists {
    /// Where a claim up to `value` stands or would stand.
    fn claims_from(&self, value: u64) -> usize {
        self.claims.partition_point(|one| one.claim.upto < value)
    }

    fn waits_from(&self, value: u64) -> usize {
        self.waits.partition_point(|&(wait, _)| wait < value)
    }
}

impl Line {
    /// The node whose claim brings the timeline to `value`.
    pub(super) fn claimant(&self, value: u64) -> Option<NodeId> {
        let lists = self.0.lock();
        let one = lists.claims.get(lists.claims_from(value))?;
        (one.claim.above < value).then_some(one.by)
    }

    /// Adds to `found` the nodes that wait for what `claim` brings, and the one whose claim comes next.
    pub(super) fn dependents(&self, claim: Interval, found: &mut SmallVec<[NodeId; 8]>) {
        let Some(next) = claim.upto.checked_add(1) else {
            return;
        };
        let lists = self.0.lock();
        let waits = lists.waits.range(lists.waits_from(claim.above + 1)..);
        let waits = waits.take_while(|&&(value, _)| value < next);
        found.extend(waits.map(|&(_, id)| id));
        let next = lists.claims.get(lists.claims_from(next));
        found.extend(
            next.filter(|one| one.claim.above == claim.upto)
                .map(|one| one.by),
        );
    }

    /// Everybody who waits for `open` or more, and who has claimed as much: a signal waits for the one before it.
    pub(super) fn waiting(&self, open: u64) -> SmallVec<[NodeId; 8]> {
        let lists = self.0.lock();
        let waits = lists.waits.range(lists.waits_from(open)..);
        let claims = lists.claims.range(lists.claims_from(open)..);
        let waits = waits.map(|&(_, id)| id);
        waits.chain(claims.map(|one| one.by)).collect()
    }

    pub(super) fn add_wait(&self, value: u64, by: NodeId) {
        let mut lists = self.0.lock();
        if let Err(at) = lists.waits.binary_search(&(value, by)) {
            lists.waits.grow();
            lists.waits.insert(at, (value, by));
        }
    }

    pub(super) fn remove_wait(&self, value: u64, by: NodeId) {
        let mut lists = self.0.lock();
        if let Ok(at) = lists.waits.binary_search(&(value, by)) {
            lists.waits.remove(at);
        }
    }

    pub(super) fn add_claim(&self, claim: Interval, by: NodeId) {
        let mut lists = self.0.lock();
        let one = Claimed { claim, by };
        let at = lists.claims_from(claim.upto);
        match lists.claims.get_mut(at) {
            // What was withdrawn and has not left yet.
            Some(old) if old.claim.upto == claim.upto => *old = one,
            _ => {
                lists.claims.grow();
                lists.claims.insert(at, one);
            }
        }
    }

    /// Unless it has become somebody else's.
    pub(super) fn remove_claim(&self, claim: Interval, by: NodeId) {
        let mut lists = self.0.lock();
        let at = lists.claims_from(claim.upto);
        let known = lists.claims.get(at);
        if known.is_some_and(|one| one.claim.upto == claim.upto && one.by == by) {
            lists.claims.remove(at);
        }
    }
}
