//! Graphs, and what is launched of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::engine::{Engine, Ticket};
use crate::mark::Mark;
use crate::operation::Operation;
use crate::stream::Stream;
use crate::table::Table;
use crate::user_object::Kept;
use crate::{lock, news, workers};

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

#[derive(Clone)]
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

    /// What kind of node it is: a value of `CUgraphNodeType`.
    pub(crate) fn kind(&self, index: usize) -> Option<u32> {
        let body = lock(&self.0);
        body.nodes.get(index).map(|node| node.operation.kind())
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

    /// What is launched.
    pub(crate) fn instantiate(&self) -> Executable {
        let body = lock(&self.0);
        Executable {
            nodes: body.nodes.clone(),
            _kept: body.kept.clone(),
            last: Mutex::default(),
        }
    }
}

/// An executable graph.
pub(crate) struct Executable {
    nodes: Vec<Node>,
    _kept: Vec<Kept>,
    /// The end of the last launch: launches of one graph come one after another.
    last: Mutex<Option<Mark>>,
}

impl Executable {
    /// `cuGraphLaunch`.
    pub(crate) fn launch(self: &Arc<Self>, stream: &Arc<Stream>) -> Answer {
        if let Some(place) = crate::capture::place(stream)? {
            place.capture.invalidate();
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        stream
            .enqueue(Operation::LaunchGraph(self.clone()))
            .map(|_| ())
    }

    /// A launch as it is submitted.
    pub(crate) fn submitted(self: &Arc<Self>, engine: &Arc<Engine>) -> Arc<Launched> {
        // Held meanwhile: launches are in one order for events and semaphores, too.
        let mut last = lock(&self.last);
        let end = Mark::default();
        let before = last.replace(end.clone());
        let submitted = |node: &Node| Node {
            operation: match node.operation.clone() {
                // Unsubmitted it does nothing.
                record @ Operation::RecordEvent(_) if Bug::LaunchForgetsRecords.is_planted() => {
                    record
                }
                operation => operation.submitted(engine),
            },
            behind: node.behind.clone(),
        };
        Arc::new(Launched {
            engine: engine.clone(),
            before: before.filter(|mark| !mark.is_reached()),
            nodes: self.nodes.iter().map(submitted).collect(),
            has_ended: self.nodes.iter().map(|_| AtomicBool::new(false)).collect(),
            fault: Mutex::new(Ok(())),
            end,
            _of: self.clone(),
        })
    }
}

/// One launch of a graph.
pub(crate) struct Launched {
    engine: Arc<Engine>,
    /// The end of the launch before.
    before: Option<Mark>,
    nodes: Vec<Node>,
    /// Which nodes have ended.
    has_ended: Vec<AtomicBool>,
    /// What the first node that faulted has met.
    fault: Mutex<Answer>,
    end: Mark,
    /// What it is a launch of, which keeps the user objects.
    _of: Arc<Executable>,
}

impl Launched {
    pub(crate) fn run(self: &Arc<Self>, ticket: Ticket) -> Answer {
        if let Some(before) = &self.before {
            before.wait(&self.engine.life);
        }
        let in_a_row = |(index, node): (usize, &Node)| match index.checked_sub(1) {
            None => node.behind.is_empty(),
            Some(before) => node.behind == [before],
        };
        if self.nodes.iter().enumerate().all(in_a_row) {
            (0..self.nodes.len()).for_each(|index| self.run_node(index, ticket));
        } else {
            // Branches run beside each other, and one may wait for another.
            for index in 0..self.nodes.len() {
                let launched = self.clone();
                workers::run(move || launched.run_node(index, ticket))?;
            }
        }
        let is_through = || {
            self.has_ended
                .iter()
                .all(|ended| ended.load(Ordering::Acquire))
        };
        news::wait_until(|| is_through() || self.engine.life.is_over());
        self.end.complete();
        *lock(&self.fault)
    }

    /// Runs a node behind those that it comes behind. Once one has faulted the others do nothing.
    fn run_node(&self, index: usize, ticket: Ticket) {
        let node = &self.nodes[index];
        let has_ended = |index: &usize| self.has_ended[*index].load(Ordering::Acquire);
        let is_over = || self.engine.life.is_over();
        news::wait_until(|| node.behind.iter().all(has_ended) || is_over());
        if !is_over() && lock(&self.fault).is_ok() {
            let run = AssertUnwindSafe(|| {
                node.operation
                    .run(&self.engine, ticket.of_node(index), || {})
            });
            if let Err(code) = catch_unwind(run).unwrap_or(Err(Code::LAUNCH_FAILED)) {
                *lock(&self.fault) = Err(code);
            }
        }
        self.has_ended[index].store(true, Ordering::Release);
        news::tell();
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
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use super::*;
    use crate::context::Context;
    use crate::event::{DISABLE_TIMING, Event, INTERPROCESS};
    use crate::stream::Kind;

    #[test]
    fn a_refused_launch_changes_nothing() {
        let context = Context::for_tests();
        let stream = Stream::new(&context, Kind::NonBlocking, 0);
        let event = Event::create(context.clone(), INTERPROCESS | DISABLE_TIMING).unwrap();
        let graph = Graph::default();
        graph.add(Operation::RecordEvent(event.clone()), vec![]);
        let executable = Arc::new(graph.instantiate());
        context.engine.life.end();
        executable.launch(&stream).unwrap_err();
        assert!(lock(&executable.last).is_none());
        assert_eq!(event.shared().unwrap().latest(), 0);
    }

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
