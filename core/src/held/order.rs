//! The ranks of the nodes, and the circle that a refused node would close.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;

use super::blockers::step;
use super::graph::Graph;
use super::node::Node;
use crate::base::blockers::Blockers;
use crate::timeline::held_index::NodeId;
use crate::timeline::state::Shared;

/// The distance between ranks without another constraint.
const STEP: i128 = 1 << 64;

/// The distance by which a rank in the way is pushed above the one before it.
const PUSH: i128 = 1 << 32;

impl Graph {
    /// A rank for `node`, which is not in the graph yet: above its dependencies and below its
    /// dependents.
    ///
    /// # Errors
    /// The circle that it would close.
    pub(super) fn rank_for(&mut self, node: Node<'_>) -> Result<i128, Blockers> {
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

    /// Raises the ranks of dependents that are in the way of a new node. Returns the new node's
    /// rank.
    ///
    /// # Errors
    /// The path from a dependent of the new node to one of its dependencies. Each node depends on
    /// the one before.
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
        // Lowest old rank first: all nodes that push a node come before it.
        let mut open = BinaryHeap::new();
        let push = |graph: &Self,
                    moved: &mut HashMap<NodeId, Moved>,
                    open: &mut BinaryHeap<Reverse<(i128, NodeId)>>,
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
                    open.push(Reverse((old, id)));
                }
            }
        };
        for &id in dependents {
            push(self, &mut moved, &mut open, id, own, None);
        }
        while let Some(Reverse((_, id))) = open.pop() {
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
                push(self, &mut moved, &mut open, dependent, above, Some(id));
            }
        }
        self.set_ranks(moved.into_iter().map(|(id, moved)| (id, moved.rank)));
        Ok(own)
    }

    /// The circle of `node` and `path`.
    ///
    /// `node` waits for the last of `path`, each of which waits for the one before, and the first
    /// for `node`.
    fn circle(&self, node: Node<'_>, path: &[NodeId]) -> Blockers {
        let mut steps = Vec::with_capacity(path.len() + 1);
        let mut waiting = node;
        for &id in path.iter().rev() {
            let Some(signaller) = self.node(id) else {
                continue;
            };
            let through = self.dependencies(waiting).find(|&(other, ..)| other == id);
            // Between a submission and its own host signals there is no step.
            let through = through.filter(|_| !signaller.is_of_the_same_submission(waiting));
            let name = || self.name(signaller);
            steps.extend(through.map(|(_, of, value)| step(of, value, name())));
            waiting = signaller;
        }
        let claimed = |of: &Arc<Shared>, value| {
            node.claims()
                .any(|(own, claim)| Arc::ptr_eq(own, of) && claim.covers(value))
        };
        let last = waiting.points().find(|&(of, value)| claimed(of, value));
        steps.extend(last.map(|(of, value)| step(of, value, self.name(node))));
        Blockers::new(steps)
    }
}
