//! Launches of graphs whose slots wait for timelines and signal them.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys;
use smallvec::SmallVec;
use syncline_core::backend::kit::Mutex;
use syncline_core::backend::{Keep, NativePoint, SharedPort};
use syncline_core::{Error, KeptPoint, Point, Result, Timeline, error::Object};

use crate::device::context::Owner;
use crate::device::event::Mark;
use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::driver::table::{MemOpNodeParams, Raw, SemaphoreNodeParams, require_function};
use crate::queue::queue_stream::{End, QueueStream, StreamState};
use crate::queue::recorder::Recorder;
use crate::timeline::node_word::NodeWord;
use crate::timeline::port::{Awaited, EventPort, Marks, no_event};
use crate::timeline::semaphore::{Semaphore, signal_params, wait_params};
use crate::timeline::word::WordPort;

/// The least commands that count for a launch of a graph. The work may declare more.
pub(crate) const GRAPH: u64 = 64;

/// A node of a captured graph that waits for a timeline, or signals it, at each launch.
pub(crate) struct SlotNode {
    /// The node of the graph that was captured.
    pub(crate) raw: Raw<sys::CUgraphNode_st>,
    pub(crate) operation: Operation,
    pub(crate) object: NodeObject,
}

/// The timeline of a slot, and what the slot does.
pub(crate) enum Operation {
    Wait(KeptPoint),
    Signal(Timeline),
}

/// What the node of a slot uses.
pub(crate) enum NodeObject {
    /// The timeline's imported semaphore.
    Semaphore(Arc<Semaphore>),
    /// The timeline's counter in shared memory, or its word.
    Word(Arc<dyn NodeWord>),
    /// An event of each launch. This one is never recorded, and has no other user.
    Event(Mark),
}

impl SlotNode {
    /// What the slot does, for errors.
    pub(crate) fn describe(&self, value: u64) -> String {
        match &self.operation {
            Operation::Wait(point) => format!("wait for {:?}", point.at(value)),
            Operation::Signal(line) => format!("signal {:?}", line.signal_at(value)),
        }
    }
}

/// An executable graph of the application, with its slots.
pub(crate) struct Executable {
    pub(crate) object: Object,
    /// Before the device, because its drop may destroy the graph, which needs the context.
    pub(crate) _owner: Owner,
    pub(crate) device: Device,
    pub(crate) raw: Raw<sys::CUgraphExec_st>,
    /// The commands that count for a launch.
    pub(crate) commands: u64,
    pub(crate) slots: Box<[SlotNode]>,
    /// Held from the first change of a slot to the launch.
    ///
    /// Two threads may launch one graph, and graphs of the driver are not safe for that.
    pub(crate) launching: Mutex<()>,
}

/// One launch of a graph, which makes the waits and signals of its submission.
pub(crate) struct Launch {
    graph: Arc<Executable>,
    /// One value for each slot.
    values: SmallVec<[u64; 8]>,
    /// The events that the slots use, with the indices of the slots.
    ///
    /// The submission keeps the launch, so no event is reused before the graph has finished.
    events: Mutex<SmallVec<[(usize, Mark); 4]>>,
    /// True once the driver has the launch. Only the submitting thread uses it.
    is_launched: AtomicBool,
}

impl Launch {
    pub(crate) fn new(graph: &Arc<Executable>, values: SmallVec<[u64; 8]>) -> Self {
        Self {
            graph: graph.clone(),
            values,
            events: Mutex::default(),
            is_launched: AtomicBool::new(false),
        }
    }

    /// The slots with their values.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (&SlotNode, u64)> {
        let slots = self.graph.slots.iter();
        slots.zip(self.values.iter().copied())
    }

    fn signals(&self) -> impl Iterator<Item = (usize, &Timeline, u64)> {
        let slots = self.slots().enumerate();
        slots.filter_map(|(index, (slot, value))| match &slot.operation {
            Operation::Signal(line) => Some((index, line, value)),
            Operation::Wait(_) => None,
        })
    }

    /// Sets the values of all slots, and launches the graph.
    ///
    /// # Errors
    /// A driver error. The launch was not made then.
    pub(crate) fn run(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (stream, _bound) = recorder.bound_stream()?;
        let driver = stream.context().driver();
        {
            let _launching = self.graph.launching.lock();
            for (index, (slot, value)) in self.slots().enumerate() {
                self.set(stream, index, slot, value)?;
            }
            // SAFETY: `GraphSlots::adopt` demands a live executable graph of this device. Only this
            // thread uses it now. The submission keeps the graph, and the stream is alive.
            unsafe { driver.graph_launch(self.graph.raw.0, stream.raw()) }
                .map_err(|code| stream.error(code))?;
        }
        self.is_launched.store(true, Ordering::Relaxed);
        recorder.count(self.graph.commands);
        Ok(())
    }

    /// Sets the value of one slot for the next launch.
    fn set(&self, stream: &Stream, index: usize, slot: &SlotNode, value: u64) -> Result<()> {
        let driver = stream.context().driver();
        let (graph, node) = (self.graph.raw.0, slot.raw.0);
        let set = match (&slot.object, &slot.operation) {
            (NodeObject::Semaphore(semaphore), Operation::Wait(_)) => {
                let (semaphores, params) = ([semaphore.raw()], [wait_params(value)]);
                let params = SemaphoreNodeParams::new(&semaphores, &params);
                // SAFETY: `GraphSlots::adopt` demands that the node belongs to the graph from which
                // this one was instantiated. The driver copies the parameters during the call.
                let set = unsafe { driver.graph_exec_set_wait(graph, node, &raw const params) };
                require_function(set, "cuGraphExecExternalSemaphoresWaitNodeSetParams")
            }
            (NodeObject::Semaphore(semaphore), Operation::Signal(_)) => {
                let (semaphores, params) = ([semaphore.raw()], [signal_params(value)]);
                let params = SemaphoreNodeParams::new(&semaphores, &params);
                // SAFETY: as above.
                let set = unsafe { driver.graph_exec_set_signal(graph, node, &raw const params) };
                require_function(set, "cuGraphExecExternalSemaphoresSignalNodeSetParams")
            }
            (NodeObject::Word(word), operation) => {
                let mut op = match operation {
                    Operation::Wait(line) => word.wait_op(self.comparable(line.at(value))),
                    Operation::Signal(_) => word.write_op(value),
                };
                let context = self.graph.device.context().raw();
                let params = MemOpNodeParams::new(context, &mut op);
                // SAFETY: as above. The word stays registered until the graph has finished, because
                // the launch keeps its owner.
                let set = unsafe { driver.graph_exec_set_mem_op(graph, node, &raw const params) };
                require_function(set, "cuGraphExecBatchMemOpNodeSetParams")
            }
            (NodeObject::Event(idle), Operation::Wait(line)) => {
                let mark = self.awaited(stream, line.at(value), idle)?;
                // SAFETY: as above. The launch keeps the event until the graph has finished.
                let set = unsafe { driver.graph_exec_set_event_wait(graph, node, mark.raw()) };
                self.events.lock().push((index, mark));
                require_function(set, "cuGraphExecEventWaitNodeSetEvent")
            }
            (NodeObject::Event(_), Operation::Signal(_)) => {
                let mark = self.graph.device.plain_events().take()?;
                // SAFETY: as above.
                let set = unsafe { driver.graph_exec_set_event_record(graph, node, mark.raw()) };
                self.events.lock().push((index, mark));
                require_function(set, "cuGraphExecEventRecordNodeSetEvent")
            }
        };
        set.map_err(|code| {
            self.graph
                .device
                .context()
                .error_on(&self.graph.object, code)
        })
    }

    /// The value for a node to wait for so that `point` is reached.
    ///
    /// A word of 32 bits may be so far past a value that the device compares it as smaller. Then
    /// the value is reached, and a later one that is reached serves as well.
    fn comparable(&self, point: Point<'_>) -> u64 {
        let port = point.port::<WordPort>(self.graph.device.id());
        let polled = port.map_or(0, SharedPort::last_polled);
        point.value().max(polled)
    }

    /// The event that a node waits for so that `point` is reached. `idle` if it need not wait.
    ///
    /// A node waits for one event. If several stand for the value, the stream waits for them.
    fn awaited(&self, stream: &Stream, point: Point<'_>, idle: &Mark) -> Result<Mark> {
        let unseen = || no_event(&self.graph.object, point.value());
        let port = point.port::<EventPort>(self.graph.device.id());
        let port = port.ok_or_else(unseen)?;
        match port.awaited(point.value(), stream.domain()) {
            Awaited::Nothing => return Ok(idle.clone()),
            Awaited::Event(mark) => return Ok(mark),
            Awaited::Several => {}
        }
        let mut marks = Marks::new();
        port.add_awaited(point.value(), stream.domain(), &mut marks, unseen)?;
        for mark in &marks {
            stream.wait(mark)?;
        }
        Ok(idle.clone())
    }

    /// Adds the events of the signals to the rings of their timelines.
    ///
    /// The driver has the launch, so each event stands for the record of its node.
    fn push_signals(&self, domain: u64) {
        let events = self.events.lock();
        for (index, line, value) in self.signals() {
            let port = line.port::<EventPort>(self.graph.device.id());
            let event = events.iter().find(|(at, _)| *at == index);
            if let (Some(port), Some((_, mark))) = (port, event) {
                mark.note_recorded();
                port.push(value, mark.clone(), domain);
            }
        }
    }

    /// Refuses a launch that could not make exactly the signals of its submission.
    fn require_signals(&self, signals: &[NativePoint<'_>]) -> Result<()> {
        for (_, line, value) in self.signals() {
            let name = line.object().id();
            if !signals.iter().any(|signal| signal.object().id() == name) {
                // It has failed since the call. This returns the error with the cause.
                line.at(value).is_reached()?;
                let asked = format!("signal {:?} at a launch", line.signal_at(value));
                let reason = "the signal was left out";
                return Err(Error::unsupported(&self.graph.object, asked, reason));
            }
        }
        Ok(())
    }
}

/// The points of a submission, as in its [`Batch`](syncline_core::backend::Batch).
pub(super) struct Points<'p> {
    pub(super) waits: &'p [NativePoint<'p>],
    pub(super) order: &'p [NativePoint<'p>],
    pub(super) signals: &'p [NativePoint<'p>],
}

impl QueueStream {
    /// Records a submission whose waits and signals are made by nodes of a graph.
    ///
    /// `work` launches the graph. The event of the submission's end is recorded behind it.
    pub(super) fn record_launch(
        &self,
        state: &mut StreamState,
        points: &Points<'_>,
        end: End<'_>,
        launch: &Arc<Launch>,
        keep: &mut Keep,
        work: impl FnOnce(&mut Keep) -> Result<()>,
    ) -> Result<()> {
        let &Points {
            waits,
            order,
            signals,
        } = points;
        launch.require_signals(signals)?;
        // T3. A node may signal before the graph has done anything else, so the predecessors come
        // before the graph. So do waits for a timeline that the graph signals too, because their
        // nodes may come after the node of the signal.
        let signalled = |wait: &&NativePoint<'_>| {
            let mut signals = signals.iter();
            signals.any(|signal| signal.object().id() == wait.object().id())
        };
        let own_waits = waits.iter().filter(signalled).copied();
        let before: SmallVec<[NativePoint<'_>; 4]> =
            order.iter().copied().chain(own_waits).collect();
        if !before.is_empty() {
            self.wait_for_all(state, &before, end, keep)?;
        }
        keep.push(launch.clone());
        let external = self.external(state, signals, end, keep)?;
        let domain = self.stream().domain();
        let events = self.device().plain_events();
        let mark = end.port.begin(end.number, domain, events)?;
        // The signals are announced before the launch: the counters may show them at once.
        let made = external.record_after(self.stream(), &mark, end.signalled, || {
            let worked = work(keep);
            // Also if the work failed after the launch, such as a stamp of a trace.
            let is_launched = launch.is_launched.load(Ordering::Relaxed);
            end.signalled.set(is_launched && !signals.is_empty());
            worked
        });
        if made.is_err() {
            end.port.withdraw(end.number);
            return made;
        }
        launch.push_signals(domain);
        Ok(())
    }
}
