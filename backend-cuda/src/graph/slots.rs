//! Slots: places in a captured graph that wait for timelines and signal them at each launch.
#![allow(unsafe_code, reason = "adopts graphs, which the driver cannot check")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys;
use smallvec::SmallVec;
use syncline_core::Submitted;
use syncline_core::backend::kit::Mutex;
use syncline_core::{Error, Point, Result, Signal, Timeline, error::Object};

use crate::device::context::{Context, Owner};
use crate::device::open::Device;
use crate::device::stream::{Capture, Stream};
use crate::driver::table::{Raw, require_function};
use crate::queue::graph_launch::{Executable, GRAPH, Launch, NodeObject, Operation, SlotNode};
use crate::queue::recorder::Recorder;
use crate::queue::submission::Queue;
use crate::timeline::counter::CounterPort;
use crate::timeline::external::ExternalPort;
use crate::timeline::imported::Imported;
use crate::timeline::port::EventPort;
use crate::timeline::semaphore::{signal_all, wait_all};
use crate::timeline::word::WordPort;

/// The slots of a graph that is being captured.
///
/// A slot is a node of the graph that waits for a timeline or signals it. Each launch states the
/// values ([`Queue::launch`]).
///
/// 1. Begin a capture of a queue's stream under its [guard](Queue::stream).
/// 2. Call [`GraphSlots::wait`] and [`GraphSlots::signal`] between the other work of the capture.
/// 3. End the capture, and instantiate the graph.
/// 4. Call [`GraphSlots::adopt`].
///
/// `interop/examples/cuda_graph/capture.rs` has all steps in one function.
pub struct GraphSlots {
    object: Object,
    device: Device,
    /// The driver's number of the capture, and its graph.
    captured: Option<(u64, Raw<sys::CUgraph_st>)>,
    slots: Vec<SlotNode>,
    /// True if the graph has a node of a slot that no launch could set.
    has_unknown_node: bool,
}

/// A slot of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The id of the graph's name.
    graph: u64,
    index: usize,
}

impl Slot {
    /// The slot with the value that one launch waits for or signals.
    #[must_use = "a value does nothing until it is given to a launch"]
    pub const fn at(self, value: u64) -> SlotValue {
        SlotValue { slot: self, value }
    }
}

/// A slot, and the value of its timeline at one launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotValue {
    slot: Slot,
    value: u64,
}

impl Device {
    /// The slots of a graph that will be captured. `label` is the graph's name in errors.
    #[must_use]
    pub fn graph_slots(&self, label: &str) -> GraphSlots {
        GraphSlots {
            object: Object::new("graph", label),
            device: self.clone(),
            captured: None,
            slots: Vec::new(),
            has_unknown_node: false,
        }
    }
}

impl GraphSlots {
    /// Adds a node to the graph that is captured on `queue`: each launch waits for a timeline.
    ///
    /// The timeline is that of `point`, whose value is not used. The timeline has its home on this
    /// device, or was [imported](Device::import_timeline), also as a
    /// [counter](Device::import_counter), or is a [word](Device::adopt_word). Points of the
    /// timeline suffice for later launches.
    ///
    /// Blocks while another thread submits to the stream or has its [guard](Queue::stream).
    ///
    /// See `cuWaitExternalSemaphoresAsync`, `cuStreamWaitValue64`, and `cuStreamWaitEvent` with
    /// `CU_EVENT_WAIT_EXTERNAL`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the stream is not being captured or belongs to another capture
    /// than the other slots, for a timeline without a port here, or for an empty point.
    /// [`Error::Capturing`] if the capture has been invalidated. [`Error::WrongDevice`], or a
    /// driver error.
    pub fn wait(&mut self, queue: &Queue, point: Point<'_>) -> Result<Slot> {
        let asked = || format!("wait for {point:?} at each launch");
        let object = self.object_of(
            point,
            &asked,
            "wait for it in a submission before the launch",
        )?;
        self.capture(queue, &asked, Operation::Wait(point.keep()), object)
    }

    /// Adds a node to the graph that is captured on `queue`: each launch signals `timeline`.
    ///
    /// The slot stands behind the work that was captured before it on `queue`. Work of other
    /// branches of the graph may execute after the signal. The graph has the right to signal from
    /// now on, as a handle of the timeline does. Otherwise the same as [`GraphSlots::wait`].
    ///
    /// See `cuSignalExternalSemaphoresAsync`, `cuStreamWriteValue64`, and `cuEventRecordWithFlags`
    /// with `CU_EVENT_RECORD_EXTERNAL`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a timeline with timestamps, or if another slot signals it. Same
    /// errors as [`GraphSlots::wait`].
    pub fn signal(&mut self, queue: &Queue, timeline: &Timeline) -> Result<Slot> {
        let name = timeline.object();
        let asked = || format!("signal {name} at each launch");
        let same = |slot: &SlotNode| match &slot.operation {
            Operation::Signal(other) => other.object().id() == name.id(),
            Operation::Wait(_) => false,
        };
        if self.slots.iter().any(same) {
            let reason = "another slot of the graph signals it";
            return Err(Error::unsupported(&self.object, asked(), reason));
        }
        if timeline.is_clocked() {
            let reason = "it has timestamps, and no node of a graph writes one; signal it in a submission after the launch";
            return Err(Error::unsupported(&self.object, asked(), reason));
        }
        let object = self.object_of(
            timeline.at(0),
            &asked,
            "signal it in a submission after the launch",
        )?;
        self.capture(queue, &asked, Operation::Signal(timeline.clone()), object)
    }

    /// Makes the slots those of `executable`, which was instantiated from the captured `graph`.
    ///
    /// `owner` is kept while the result or a launch exists. When the process exits, it waits for at
    /// most two seconds while `owner` is being dropped. An owner that is still kept when the exit
    /// begins is not dropped. The slots of one capture serve one executable graph.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the slots were captured into another graph, if there are none, or
    /// if the driver has not told the node of one of them. A driver error.
    ///
    /// # Safety
    /// * `graph` and `executable` are live, and stay alive while `owner` is kept. Without an owner,
    ///   they stay alive until the result is gone and all launches have finished.
    /// * `executable` was instantiated from `graph` on this device, and contains the nodes of the
    ///   slots. No code removes these nodes from `graph`.
    /// * Other code does not launch `executable`. It does not use `executable` and does not change
    ///   `graph` from a call of [`Queue::launch`] until that launch is with the driver
    ///   ([`Submitted::wait_submitted`]): a launch that is held uses both later, on any thread. At
    ///   other times it may change parameters: each launch sets those of the slots anew.
    /// * What the graph does is sound until a launch has finished.
    pub unsafe fn adopt(
        self,
        graph: sys::CUgraph,
        executable: sys::CUgraphExec,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Graph> {
        let owner = Owner::new(owner);
        let refuse = |reason: &str| {
            let asked = format!("take {graph:p} as its graph");
            Err(Error::unsupported(&self.object, asked, reason))
        };
        let captured = match &self.captured {
            None => return refuse("it has no slot; launch the graph in a submission's work"),
            Some((_, captured)) if captured.0 != graph => {
                return refuse("its slots were captured into another graph");
            }
            Some(_) if self.has_unknown_node => {
                return refuse("the driver has not told the node of a slot; capture it again");
            }
            Some((_, captured)) => captured.0,
        };
        let commands = self.commands(captured)?;
        Ok(Graph(Arc::new(Executable {
            commands,
            object: self.object,
            device: self.device,
            raw: Raw(executable),
            slots: self.slots.into(),
            launching: Mutex::default(),
            _owner: owner,
        })))
    }

    /// The commands of a launch: one for each node of the graph, and at least [`GRAPH`].
    fn commands(&self, graph: sys::CUgraph) -> Result<u64> {
        let context = self.device.context();
        let mut nodes = 0_usize;
        // SAFETY: `GraphSlots::adopt` demands a live graph. With no list of nodes the driver writes
        // only their number.
        let known = unsafe {
            let driver = context.driver();
            driver.graph_get_nodes(graph, std::ptr::null_mut(), &raw mut nodes)
        };
        require_function(known, "cuGraphGetNodes")
            .map_err(|code| context.error_on(&self.object, code))?;
        Ok(GRAPH.max(nodes as u64))
    }

    /// The object that the node of a slot for the timeline of `point` uses.
    fn object_of(
        &self,
        point: Point<'_>,
        asked: &impl Fn() -> String,
        instead: &str,
    ) -> Result<NodeObject> {
        let refuse = |reason: String| Err(Error::unsupported(&self.object, asked(), reason));
        let semaphore = self.imported::<ExternalPort>(point);
        let counter = self.imported::<CounterPort>(point);
        let word = self.imported::<WordPort>(point);
        let driver = self.device.context().driver();
        let for_words = match (&counter, &word) {
            (None, None) => None,
            _ => driver.missing_for_word_slots(),
        };
        if let Some(missing) = driver.missing_for_slots().or(for_words) {
            return refuse(format!("the driver lacks {missing}; {instead}"));
        }
        if let Some(semaphore) = semaphore {
            return Ok(NodeObject::Semaphore(semaphore));
        }
        if let Some(counter) = counter {
            return Ok(NodeObject::Word(counter));
        }
        if let Some(word) = word {
            return Ok(NodeObject::Word(word));
        }
        if point.port::<EventPort>(self.device.id()).is_some() {
            let idle = self.device.plain_events().fresh()?;
            return Ok(NodeObject::Event(idle));
        }
        refuse(format!(
            "it has no port on {}; {instead}",
            self.device.object()
        ))
    }

    /// The object of the timeline's port here, if the port is of type `P`.
    fn imported<P: Imported>(&self, point: Point<'_>) -> Option<Arc<P::Object>> {
        let port = point.port::<P>(self.device.id())?;
        let context: &Context = self.device.context();
        std::ptr::eq(port.context(), context).then(|| port.object().clone())
    }

    /// Adds the node to the graph.
    fn capture(
        &mut self,
        queue: &Queue,
        asked: &impl Fn() -> String,
        operation: Operation,
        object: NodeObject,
    ) -> Result<Slot> {
        if queue.device().id() != self.device.id() {
            let (own, other) = (self.device.object(), queue.object());
            return Err(Error::wrong_device(&self.object, own, other));
        }
        let stream = queue.queue_stream().stream();
        // Locked until the node is known, so that no other thread ends the capture or adds to it.
        let locked = stream.stream_lock().lock();
        let captured = match stream.capture_while_locked(&locked)? {
            Capture::Active { id, graph } => (id, Raw(graph)),
            Capture::Unusable(why) => return Err(queue.capturing(&asked(), why)),
            Capture::None => {
                let reason = "it is not being captured into a graph";
                return Err(Error::unsupported(queue.object(), asked(), reason));
            }
        };
        if self
            .captured
            .as_ref()
            .is_some_and(|(id, _)| *id != captured.0)
        {
            let reason = "its other slots are in another capture";
            return Err(Error::unsupported(&self.object, asked(), reason));
        }
        let _bound = self.device.context().bind()?;
        add(stream, &operation, &object)?;
        self.captured = Some(captured);
        let raw = stream.last_node(&locked);
        self.has_unknown_node |= raw.is_err();
        let raw = raw?;
        self.slots.push(SlotNode {
            raw,
            operation,
            object,
        });
        Ok(Slot {
            graph: self.object.id(),
            index: self.slots.len() - 1,
        })
    }
}

/// Adds the node of a slot to the stream's capture. Each launch sets its value.
fn add(stream: &Stream, operation: &Operation, object: &NodeObject) -> Result<()> {
    match (object, operation) {
        (NodeObject::Semaphore(semaphore), Operation::Wait(_)) => {
            wait_all(stream, 1, [(&**semaphore, 0)].into_iter())
        }
        (NodeObject::Semaphore(semaphore), Operation::Signal(_)) => {
            signal_all(stream, 1, [(&**semaphore, 0)].into_iter())
        }
        (NodeObject::Word(word), Operation::Wait(_)) => word.capture_wait(stream),
        (NodeObject::Word(word), Operation::Signal(_)) => word.capture_write(stream),
        (NodeObject::Event(idle), Operation::Wait(_)) => stream.wait_external(idle),
        (NodeObject::Event(idle), Operation::Signal(_)) => stream.record_external(idle),
    }
}

/// A graph of the application whose slots wait for timelines and signal them. Cheap to clone.
///
/// Made by [`GraphSlots::adopt`], and launched by [`Queue::launch`].
#[derive(Clone)]
pub struct Graph(Arc<Executable>);

impl Graph {
    /// The name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// The raw executable graph.
    #[must_use]
    pub fn raw(&self) -> sys::CUgraphExec {
        self.0.raw.0
    }

    /// The value of each slot.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a slot of another graph, a slot twice, and a missing slot.
    fn values(&self, given: &[SlotValue]) -> Result<SmallVec<[u64; 8]>> {
        let refuse = |reason: String| {
            let asked = format!("be launched with {} values", given.len());
            Err(Error::unsupported(self.object(), asked, reason))
        };
        let mut values: SmallVec<[Option<u64>; 8]> = SmallVec::new();
        values.resize(self.0.slots.len(), None);
        for &SlotValue { slot, value } in given {
            let known = self.0.slots.get(slot.index);
            let (Some(known), true) = (known, slot.graph == self.object().id()) else {
                return refuse(format!("slot {} belongs to another graph", slot.index));
            };
            if values[slot.index].replace(value).is_some() {
                let what = known.describe(value);
                return refuse(format!("slot {} has two values ({what})", slot.index));
            }
        }
        let mut set = SmallVec::new();
        for (index, value) in values.into_iter().enumerate() {
            match value {
                Some(value) => set.push(value),
                None => {
                    let what = self.0.slots[index].describe(0);
                    return refuse(format!("slot {index} has no value ({what})"));
                }
            }
        }
        Ok(set)
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.object(), f)
    }
}

impl fmt::Debug for GraphSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} slots)", self.object, self.slots.len())
    }
}

impl Queue {
    /// Launches `graph` as a submission whose waits and signals its slots make.
    ///
    /// Every slot of the graph has one value. The launch is held until all values that its slots
    /// wait for are pending (Q2). From then on its signals are pending, so other queues begin their
    /// work in the middle of the graph. A launch that would wait for what follows from its own
    /// signals is a circle (Q4).
    ///
    /// If another queue signals the value before one of the graph's, the whole launch waits for
    /// that value (T3). If the graph both waits for a timeline and signals it, that wait is before
    /// the whole launch, too. The host may find a signal of an imported timeline reached only when
    /// the launch has finished.
    ///
    /// A launch counts as many commands as the graph has nodes, and at least 64
    /// ([`Recorder::commands`]). A child graph is one node.
    ///
    /// See `cuGraphLaunch` and `cuGraphExecExternalSemaphoresSignalNodeSetParams`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a slot without a value, with two values, or of another graph.
    /// [`Error::WrongDevice`]. Same errors as
    /// [`submit`](syncline_core::backend::Queue::submit). A refused launch changes nothing.
    pub fn launch<'q>(&'q self, graph: &Graph, values: &[SlotValue]) -> Result<Submitted<'q>> {
        let executable = &graph.0;
        if executable.device.id() != self.device().id() {
            let (own, other) = (executable.device.object(), self.object());
            return Err(Error::wrong_device(graph.object(), own, other));
        }
        let launch = Arc::new(Launch::new(executable, graph.values(values)?));
        self.refuse_capture()?;
        let mut waits: SmallVec<[Point<'_>; 8]> = SmallVec::new();
        let mut signals: SmallVec<[Signal<'_>; 8]> = SmallVec::new();
        for (slot, value) in launch.slots() {
            match &slot.operation {
                Operation::Wait(line) => waits.push(line.at(value)),
                Operation::Signal(line) => signals.push(line.signal_at(value)),
            }
        }
        let launched = launch.clone();
        let work = move |recorder: &mut Recorder<'_>| launched.run(recorder);
        let submissions = self.submissions();
        submissions.submit_attached(&waits, work, &signals, launch.clone())
    }
}

#[cfg(test)]
mod tests;
