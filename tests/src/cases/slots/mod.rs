//! F7: slots of captured graphs, which wait for timelines and signal them at each launch.
//!
//! On a pair the timelines are semaphores or counters that both devices have. On one device they
//! are rings of events, and the other side is another queue.

#![allow(unsafe_code, reason = "adopts captured graphs, as an application does")]

mod ends;
mod launches;
mod middle;
mod order;
mod refused;
mod words;

use std::time::{Duration, Instant};

use syncline::backend::Queue as _;
use syncline::cuda::{self, Graph, GraphSlots, Slot, sys};
use syncline::{Buffer, Device, Mechanism};

use super::captures::{Capture, Stall, set};
use super::devices::Current;
use super::sharing;
use crate::case::{Case, Stop, Verdict, check};
use crate::user::{self, Queue};
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

/// The cases of this family. They need a CUDA device on the left.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    let mut cases = middle::cases();
    cases.extend(launches::cases());
    cases.extend(order::cases());
    cases.extend(refused::cases());
    cases.extend(words::cases());
    cases.extend(ends::cases());
    cases
}

/// A wait that must time out.
const SHORT: Duration = Duration::from_millis(20);

type Timeline = user::Timeline<Equipped>;

/// Makes timelines that queues of both sides signal and wait for natively.
fn lines<const N: usize>(
    world: &World<Equipped>,
    labels: [&str; N],
) -> Result<[Timeline; N], Stop> {
    if !matches!(world.left.library(), Device::Cuda(_)) {
        return Stop::skip("only CUDA captures work into graphs");
    }
    let mut lines = Vec::new();
    if world.is_pair() {
        let link = sharing::linked(world.left.library(), world.right.library());
        // Host queues have no port of a counter, and act on values at the end of a launch.
        let is_native = match link.mechanism() {
            Mechanism::ExternalTimeline => true,
            Mechanism::SharedMemory => matches!(world.right.library(), Device::Cuda(_)),
            _ => false,
        };
        if !is_native {
            return Stop::skip("queues of the two do not wait for one timeline natively");
        }
        for label in labels {
            lines.push(world.left.own(link.timeline(label)?));
        }
    } else {
        for label in labels {
            lines.push(world.left.timeline(label)?);
        }
    }
    lines
        .try_into()
        .map_err(|_| Stop::Failed("not as many timelines as labels".into()))
}

/// A graph and its executable form, which the drop destroys.
struct Owned(sys::CUgraph, sys::CUgraphExec);

// SAFETY: any thread may destroy graphs. The library launches from one thread at a time.
unsafe impl Send for Owned {}

// SAFETY: the same.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: kept until all launches have finished.
        unsafe {
            let _ = sys::cuGraphExecDestroy(self.1);
            let _ = sys::cuGraphDestroy(self.0);
        }
    }
}

/// A capture with its slots.
struct Slotted<'q> {
    capture: Capture<'q>,
    slots: GraphSlots,
    queue: &'q cuda::Queue,
}

impl<'q> Slotted<'q> {
    fn begin(world: &World<Equipped>, queue: &'q cuda::Queue) -> Result<Self, Stop> {
        let Device::Cuda(device) = world.left.library() else {
            return Stop::skip("only CUDA captures work into graphs");
        };
        Ok(Self {
            slots: device.graph_slots("frame"),
            capture: Capture::begin(queue)?,
            queue,
        })
    }

    fn wait(&mut self, line: &Timeline) -> syncline::Result<Slot> {
        self.slots.wait(self.queue, line.library().at(0))
    }

    fn signal(&mut self, line: &Timeline) -> syncline::Result<Slot> {
        self.slots.signal(self.queue, line.library())
    }

    fn set(&self, buffer: &Buffer, value: u32) -> Verdict {
        set(self.capture.stream, buffer, value)
    }

    fn stall(&self, stall: &Stall) -> Verdict {
        stall.put_into(self.capture.stream)
    }

    fn end(self) -> Result<Graph, Stop> {
        let (graph, executable) = self.capture.end_raw()?;
        let owner = std::sync::Arc::new(Owned(graph, executable));
        // SAFETY: the owner keeps both. Buffers and stalls outlive the case's waits.
        Ok(unsafe { self.slots.adopt(graph, executable, Some(owner)) }?)
    }
}

/// A graph on `queue` that waits for one timeline and signals another one.
///
/// # Errors
/// A driver error, as the reason to stop.
pub fn passing_on(
    queue: &cuda::Queue,
    waited: &syncline::Timeline,
    signalled: &syncline::Timeline,
) -> Result<(Graph, [Slot; 2]), Stop> {
    let device = queue.device();
    let _current = Current::make(device.raw_context())?;
    let mut slots = device.graph_slots("passing on");
    let capture = Capture::begin(queue)?;
    let added = [
        slots.wait(queue, waited.at(0))?,
        slots.signal(queue, signalled)?,
    ];
    let (graph, executable) = capture.end_raw()?;
    let owner = std::sync::Arc::new(Owned(graph, executable));
    // SAFETY: the owner keeps both. The graph has only the nodes of the slots.
    let graph = unsafe { slots.adopt(graph, executable, Some(owner)) }?;
    Ok((graph, added))
}

/// Waits until the first word of `buffer`, which the host can see, is `value`.
fn shows_value(buffer: &Buffer, value: u32, what: &str) -> Verdict {
    let start = Instant::now();
    while Equipped::read(buffer)[0] != value {
        check!(
            start.elapsed() < patience(),
            "{what}: the word is {} and not {value}",
            Equipped::read(buffer)[0]
        );
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

/// Submits work of the other side that waits for `from` and signals `to`.
fn pass_on(
    queue: &Queue<Equipped>,
    from: &Timeline,
    at: u64,
    to: &Timeline,
    value: u64,
) -> syncline::Result<()> {
    let waits = [from.at(at)];
    queue.submit_empty(&waits, &[to.signal_at(value)]).map(drop)
}
