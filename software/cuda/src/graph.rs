//! Graphs, and what is launched of them.

use std::sync::{Arc, Mutex};

use crate::code::{Answer, Code};
use crate::lock;
use crate::mark::Mark;
use crate::operation::Operation;
use crate::stream::Stream;
use crate::table::Table;
use crate::user_object::Kept;

/// All live graphs, those that are being captured among them.
pub(crate) static GRAPHS: Table<Graph> = Table::new();
/// All live executable graphs.
pub(crate) static EXECUTABLES: Table<Executable> = Table::new();

/// A graph.
#[derive(Default)]
pub(crate) struct Graph(Mutex<Body>);

#[derive(Default)]
struct Body {
    nodes: Vec<Node>,
    kept: Vec<Kept>,
}

struct Node {
    operation: Operation,
    /// The nodes that it comes behind.
    behind: Vec<usize>,
}

impl Graph {
    /// Adds a node and returns its number.
    pub(crate) fn add(&self, operation: Operation, behind: Vec<usize>) -> usize {
        let mut body = lock(&self.0);
        body.nodes.push(Node { operation, behind });
        body.nodes.len() - 1
    }

    /// How many nodes it has.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).nodes.len()
    }

    /// Has the graph keep a user object.
    pub(crate) fn keep(&self, kept: Kept) {
        lock(&self.0).kept.push(kept);
    }

    /// True if each of `nodes` is one of `ends` or comes before one of them.
    pub(crate) fn are_before(&self, nodes: &[usize], ends: &[usize]) -> bool {
        let body = lock(&self.0);
        let mut is_before = vec![false; body.nodes.len()];
        let mut left = ends.to_vec();
        while let Some(node) = left.pop() {
            if !std::mem::replace(&mut is_before[node], true) {
                left.extend(&body.nodes[node].behind);
            }
        }
        nodes.iter().all(|node| is_before[*node])
    }

    /// What is launched. Nodes run in the order in which they were captured.
    pub(crate) fn instantiate(&self) -> Executable {
        let body = lock(&self.0);
        let operations = body.nodes.iter().map(|node| node.operation.clone());
        Executable {
            operations: operations.collect(),
            _kept: body.kept.clone(),
            last: Mutex::default(),
        }
    }
}

/// An executable graph.
pub(crate) struct Executable {
    operations: Vec<Operation>,
    _kept: Vec<Kept>,
    /// The end of the last launch: launches of one graph come one after another.
    last: Mutex<Option<Mark>>,
}

/// One launch of a graph.
pub(crate) struct Launched {
    operations: Vec<Operation>,
    /// What it is a launch of, which keeps the user objects.
    _of: Arc<Executable>,
}

impl Launched {
    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    pub(crate) fn room(&self) -> usize {
        self.operations.iter().map(Operation::room).sum()
    }
}

impl Executable {
    /// `cuGraphLaunch`.
    pub(crate) fn launch(self: &Arc<Self>, stream: &Arc<Stream>) -> Answer {
        if crate::capture::place(stream)?.is_some() {
            // A child graph: its nodes become those of the graph that is being captured.
            let add = |operation: &Operation| stream.submit(operation.clone());
            return self.operations.iter().try_for_each(add);
        }
        // Held until it is enqueued: launches are in one order for events, semaphores and streams.
        let mut last = lock(&self.last);
        let end = Mark::new();
        let before = last.take().filter(|mark| !mark.is_reached());
        let before = before.map(Operation::Wait);
        let own = self.operations.iter().cloned().map(Operation::submitted);
        let operations = before
            .into_iter()
            .chain(own)
            .chain([Operation::Record(end.clone())])
            .collect();
        let launched = Launched {
            operations,
            _of: self.clone(),
        };
        stream.enqueue(Operation::Graph(Arc::new(launched)))?;
        *last = Some(end);
        Ok(())
    }
}

/// The graph that a handle names. Other functions than those of streams answer `INVALID_VALUE`.
pub(crate) fn graph(handle: usize) -> Answer<Arc<Graph>> {
    GRAPHS.get(handle).map_err(|_| Code::INVALID_VALUE)
}

/// The executable graph that a handle names.
pub(crate) fn executable(handle: usize) -> Answer<Arc<Executable>> {
    EXECUTABLES.get(handle).map_err(|_| Code::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_before_what_comes_behind_it() {
        let graph = Graph::default();
        let nothing = || Operation::MemoryOps([].into());
        let first = graph.add(nothing(), vec![]);
        let left = graph.add(nothing(), vec![first]);
        let right = graph.add(nothing(), vec![first]);
        assert!(graph.are_before(&[first, left], &[left]));
        assert!(!graph.are_before(&[right], &[left]));
        let join = graph.add(nothing(), vec![left, right]);
        assert!(graph.are_before(&[first, left, right], &[join]));
        assert_eq!(graph.len(), 4);
    }
}
