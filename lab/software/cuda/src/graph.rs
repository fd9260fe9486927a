//! Graphs, executable graphs and their launches.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::engine::{Engine, Ticket};
use crate::mark::Mark;
use crate::operation::Operation;
use crate::progress::Progress;
use crate::stream::Stream;
use crate::table::Table;
use crate::user_object::Kept;
use crate::{capture, lock, news, workers};

/// All live graphs, including those that are being captured.
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
    /// The nodes before it.
    behind: Vec<usize>,
}

impl Graph {
    /// Adds a node and returns its number.
    pub(crate) fn add(&self, operation: Operation, behind: Vec<usize>) -> usize {
        let mut body = lock(&self.0);
        body.nodes.push(Node { operation, behind });
        body.nodes.len() - 1
    }

    /// Returns the number of nodes.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).nodes.len()
    }

    /// Returns the kind of a node, a value of `CUgraphNodeType`.
    pub(crate) fn kind(&self, index: usize) -> Option<u32> {
        let body = lock(&self.0);
        body.nodes.get(index).map(|node| node.operation.kind())
    }

    /// Adds a user object that the graph keeps.
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

    /// Returns an executable graph.
    pub(crate) fn instantiate(self: &Arc<Self>) -> Executable {
        let body = lock(&self.0);
        Executable {
            original: Arc::downgrade(self),
            nodes: Mutex::new(body.nodes.clone()),
            _kept: body.kept.clone(),
            last: Mutex::default(),
        }
    }
}

/// An executable graph.
pub(crate) struct Executable {
    /// The graph from which it was instantiated.
    original: Weak<Graph>,
    nodes: Mutex<Vec<Node>>,
    _kept: Vec<Kept>,
    /// The end of the last launch: launches of one graph come one after another.
    last: Mutex<Option<Mark>>,
}

impl Executable {
    /// Changes a node for later launches. `index` is that of the node in `original`.
    ///
    /// Its kind stays, and the number and kinds of the parts of a batch.
    pub(crate) fn change(&self, original: &Arc<Graph>, index: usize, to: Operation) -> Answer {
        if !std::ptr::eq(self.original.as_ptr(), Arc::as_ptr(original)) {
            return Err(Code::INVALID_VALUE);
        }
        let mut nodes = lock(&self.nodes);
        let node = nodes.get_mut(index).ok_or(Code::INVALID_VALUE)?;
        let is_like = |one: &Operation| (one.kind(), one.parts());
        if is_like(&node.operation) != is_like(&to) {
            return Err(Code::INVALID_VALUE);
        }
        if !Bug::NodeKeepsValue.is_planted() {
            node.operation = to;
        }
        Ok(())
    }

    /// `cuGraphLaunch`.
    pub(crate) fn launch(self: &Arc<Self>, stream: &Arc<Stream>) -> Answer {
        if let Some(position) = capture::position(stream)? {
            position.capture.invalidate();
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        stream
            .enqueue(Operation::LaunchGraph(self.clone()))
            .map(|_| ())
    }

    /// Returns a submitted launch.
    pub(crate) fn submitted(self: &Arc<Self>, engine: &Arc<Engine>) -> Arc<Launched> {
        // Locked until the end, so that launches have one order for events and semaphores too.
        let mut last = lock(&self.last);
        let end = Mark::default();
        let before = last.replace(end.clone());
        let submitted = |node: &Node| Node {
            operation: match node.operation.clone() {
                // An unsubmitted record does nothing.
                record @ Operation::RecordEvent(_) if Bug::LaunchForgetsRecords.is_planted() => {
                    record
                }
                operation => operation.submitted(engine),
            },
            behind: node.behind.clone(),
        };
        let nodes: Vec<_> = lock(&self.nodes).iter().map(submitted).collect();
        Arc::new(Launched {
            engine: engine.clone(),
            before: before.filter(|mark| !mark.is_reached()),
            has_ended: nodes.iter().map(|_| AtomicBool::new(false)).collect(),
            nodes,
            fault: Mutex::new(Ok(())),
            end,
            of: self.clone(),
        })
    }
}

/// One launch of a graph.
pub(crate) struct Launched {
    engine: Arc<Engine>,
    /// The end of the previous launch.
    before: Option<Mark>,
    nodes: Vec<Node>,
    /// For each node, whether it has ended.
    has_ended: Vec<AtomicBool>,
    /// The error of the first node that faulted.
    fault: Mutex<Answer>,
    end: Mark,
    /// The launched graph, which keeps the user objects.
    of: Arc<Executable>,
}

impl Launched {
    /// Binds the end of the launch to the command of a stream, so that both complete together.
    ///
    /// Does the same for a record that comes after all other nodes.
    pub(crate) fn bind(&self, progress: &Arc<Progress>, number: u64) {
        self.end.bind(&self.engine, progress, number);
        if let Some(Node { operation, .. }) = self.nodes.last()
            && let Operation::Record(mark) = operation
            && has_one_end(&self.nodes)
        {
            mark.bind(&self.engine, progress, number);
        }
    }

    /// Runs all nodes. Returns when none of them runs any more, also if the context is over.
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
            self.run_branches(ticket);
        }
        if Bug::NodeSignalsLate.is_planted() {
            self.nodes.iter().for_each(|node| node.operation.signal());
        }
        self.end.complete();
        *lock(&self.fault)
    }

    /// Runs all branches in parallel. One may wait for another.
    fn run_branches(self: &Arc<Self>, ticket: Ticket) {
        let left = Arc::new(AtomicUsize::new(self.nodes.len()));
        let count_down = |left: &AtomicUsize| {
            left.fetch_sub(1, Ordering::AcqRel);
            news::tell();
        };
        for index in 0..self.nodes.len() {
            let (launched, left_here) = (self.clone(), left.clone());
            let started = workers::run(move || {
                launched.run_node(index, ticket);
                // It keeps objects of the application, which may be destroyed after the launch.
                drop(launched);
                count_down(&left_here);
            });
            if let Err(code) = started {
                self.fail(code);
                self.end_node(index);
                count_down(&left);
            }
        }
        news::wait_until(|| left.load(Ordering::Acquire) == 0);
    }

    /// Runs a node after those before it. After a fault of one node the others do nothing.
    fn run_node(&self, index: usize, ticket: Ticket) {
        let node = &self.nodes[index];
        let has_ended = |index: &usize| self.has_ended[*index].load(Ordering::Acquire);
        let is_over = || self.engine.life.is_over();
        news::wait_until(|| node.behind.iter().all(has_ended) || is_over());
        if !is_over() && lock(&self.fault).is_ok() {
            let ticket = ticket.of_node(index);
            let planted = self.planted(index);
            let operation = planted.as_ref().unwrap_or(&node.operation);
            let run = AssertUnwindSafe(|| operation.run(&self.engine, ticket, || {}));
            if let Err(code) = catch_unwind(run).unwrap_or(Err(Code::LAUNCH_FAILED)) {
                self.fail(code);
            }
        }
        self.end_node(index);
    }

    /// Returns what a planted bug executes in place of a node with semaphores.
    fn planted(&self, index: usize) -> Option<Operation> {
        let own = &self.nodes[index].operation;
        if own.semaphores() == 0 {
            return None;
        }
        if matches!(own, Operation::SignalSemaphores(_)) && Bug::NodeSignalsLate.is_planted() {
            return Some(Operation::MemoryOps([].into()));
        }
        let changed = || lock(&self.of.nodes)[index].operation.clone();
        Bug::NodeChangesLater.is_planted().then(changed)
    }

    fn end_node(&self, index: usize) {
        self.has_ended[index].store(true, Ordering::Release);
        news::tell();
    }

    /// Reports the fault of a node. The first fault is the result of the launch.
    ///
    /// It also ends the context, and with it the nodes that still wait.
    fn fail(&self, code: Code) {
        {
            let mut fault = lock(&self.fault);
            *fault = fault.and(Err(code));
        }
        self.engine.life.fail_late(code);
    }
}

/// True if all nodes come before the last one.
fn has_one_end(nodes: &[Node]) -> bool {
    let before: BTreeSet<_> = nodes.iter().flat_map(|node| &node.behind).collect();
    before.len() + 1 == nodes.len()
}

/// Returns the graph of a handle. An invalid handle is an invalid value.
pub(crate) fn graph(handle: usize) -> Answer<Arc<Graph>> {
    GRAPHS.get(handle).map_err(|_| Code::INVALID_VALUE)
}

/// Returns the executable graph of a handle.
pub(crate) fn executable(handle: usize) -> Answer<Arc<Executable>> {
    EXECUTABLES.get(handle).map_err(|_| Code::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use super::*;
    use crate::context::Context;
    use crate::event::{DISABLE_TIMING, Event, INTERPROCESS};
    use crate::stream::StreamKind;

    /// Submits a launch of a graph as the first command of a stream.
    fn submitted(graph: &Arc<Graph>, context: &Context) -> (Arc<Launched>, Arc<Progress>) {
        let progress = Arc::<Progress>::default();
        let launched = Arc::new(graph.instantiate()).submitted(&context.engine);
        launched.bind(&progress, progress.submit());
        (launched, progress)
    }

    #[test]
    fn a_launch_and_what_it_records_last_are_complete_as_one() {
        let context = Context::for_tests();
        let [first, last] = [(); 2].map(|()| Event::create(context.clone(), 0).unwrap());
        let graph = Arc::<Graph>::default();
        graph.add(Operation::RecordEvent(first.clone()), vec![]);
        graph.add(Operation::RecordEvent(last.clone()), vec![0]);
        let (launched, progress) = submitted(&graph, &context);
        let end = lock(&launched.of.last).clone().unwrap();
        launched.run(context.engine.connections.ticket()).unwrap();
        assert!(first.latest_or_reached().is_reached());
        // The same holds for a launch after it.
        assert!(!last.latest_or_reached().is_reached() && !end.is_reached());
        progress.complete();
        assert!(last.latest_or_reached().is_reached() && end.is_reached());
    }

    #[test]
    fn a_record_beside_another_branch_is_reached_by_itself() {
        let context = Context::for_tests();
        let event = Event::create(context.clone(), 0).unwrap();
        let graph = Arc::<Graph>::default();
        graph.add(Operation::MemoryOps([].into()), vec![]);
        graph.add(Operation::RecordEvent(event.clone()), vec![]);
        let (launched, progress) = submitted(&graph, &context);
        launched.run(context.engine.connections.ticket()).unwrap();
        assert!(event.latest_or_reached().is_reached() && !progress.is_idle());
        // No thread keeps a part of it.
        assert_eq!(Arc::strong_count(&launched), 1);
    }

    #[test]
    fn the_first_fault_is_the_launchs() {
        let context = Context::for_tests();
        let (launched, _) = submitted(&Arc::default(), &context);
        launched.fail(Code::ILLEGAL_ADDRESS);
        launched.fail(Code::LAUNCH_FAILED);
        let run = launched.run(context.engine.connections.ticket());
        assert_eq!(run, Err(Code::ILLEGAL_ADDRESS));
    }

    #[test]
    fn a_refused_launch_changes_nothing() {
        let context = Context::for_tests();
        let stream = Stream::new(&context, StreamKind::NonBlocking, 0).unwrap();
        let event = Event::create(context.clone(), INTERPROCESS | DISABLE_TIMING).unwrap();
        let graph = Arc::<Graph>::default();
        graph.add(Operation::RecordEvent(event.clone()), vec![]);
        let executable = Arc::new(graph.instantiate());
        context.engine.life.end();
        executable.launch(&stream).unwrap_err();
        assert!(lock(&executable.last).is_none());
        assert_eq!(event.shared().unwrap().latest(), 0);
    }

    #[test]
    fn a_node_is_before_what_comes_behind_it() {
        let graph = Arc::<Graph>::default();
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
