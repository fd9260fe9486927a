//! Timelines that CUDA and Vulkan share: submissions to streams, and launches of graphs.

use std::array::from_fn;
use std::sync::Arc;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Point, QueueKind, Signal, Timeline, share, vulkan};

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::cuda::{self, External, Graph, signal_params, wait_params};
use crate::raw::vulkan::{Awaited, Hand, Semaphore};
use crate::row::{BURST, Call, EACH, LONG, Question, Row};
use crate::side::{OURS, Outcome, RAW, Side};

/// Largest number of outstanding launches.
///
/// A launch counts as 64 of 416 commands. Above that the engine holds submissions.
const LAUNCHES: u64 = 4;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "cuda.external.signal",
        question: Question::Submission,
        ours: "a submission to a stream that signals a shared timeline, 64 at a time, without their end",
        raw: "cuSignalExternalSemaphoresAsync, 64 at a time",
        limits: &[Limit::OverRaw(550.0)],
        on: &[On::Shared],
        variants: &[],
        run: signal,
    },
    Row {
        id: "cuda.external.wait",
        question: Question::Submission,
        ours: "a submission to a stream that waits for a shared timeline, 64 at a time; their signals are pending, and the host makes them after the timed part",
        raw: "cuWaitExternalSemaphoresAsync, 64 at a time",
        limits: &[Limit::OverRaw(550.0)],
        on: &[On::Shared],
        variants: &[],
        run: wait,
    },
    Row {
        id: "cuda.graph.slots",
        question: Question::Submission,
        ours: "a launch of a graph that waits for a shared timeline, sets memory and signals another, 4 at a time, without their end; what they wait for is pending, and the host makes it come after what is timed",
        raw: "cuGraphExecExternalSemaphoresWaitNodeSetParams, the same for the signal, and cuGraphLaunch, 4 at a time",
        limits: &[Limit::OverRaw(1000.0)],
        on: &[On::Shared],
        variants: &[],
        run: slots,
    },
];

/// The two devices of a subject, with a hand on each.
struct Pair {
    cuda: syncline::cuda::Device,
    vulkan: vulkan::Device,
    /// Dropped before the hand whose semaphores it imports.
    cuda_hand: cuda::Hand,
    vulkan_hand: Hand,
}

impl Pair {
    fn new(call: &Call<'_>) -> Outcome<Self> {
        let cuda = call.machine.cuda(call.subject)?;
        let vulkan = call.machine.vulkan(call.subject)?;
        Ok(Self {
            vulkan_hand: Hand::new(&vulkan, &vulkan.queue(QueueKind::Compute, "vulkan")?)?,
            cuda_hand: cuda::Hand::new(&cuda)?,
            cuda,
            vulkan,
        })
    }

    /// A timeline that both devices share.
    fn timeline(&self, label: &str) -> syncline::Result<Timeline> {
        share(&self.cuda, &self.vulkan)?.timeline(label)
    }

    /// A semaphore that both devices share, by hand.
    fn semaphore(&self) -> Outcome<(Semaphore, External)> {
        let semaphore = self.vulkan_hand.semaphore(true)?;
        let handle = self.vulkan_hand.export(semaphore)?;
        Ok((semaphore, self.cuda_hand.import(handle)?))
    }

    /// Makes the signals that CUDA has waited for, and notes those that it makes.
    fn open(&self, waited: &[Semaphore], signalled: &[Semaphore], value: u64) -> Outcome<()> {
        for semaphore in waited {
            self.vulkan_hand.signal(semaphore.raw, value)?;
        }
        for semaphore in waited.iter().chain(signalled) {
            self.vulkan_hand.expect(*semaphore, value);
        }
        Ok(())
    }
}

fn signal(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let pair = Pair::new(call)?;
    let timeline = pair.timeline("signalled")?;
    let queue = pair.cuda.queue(QueueKind::Compute, "signalling")?;
    let (semaphore, imported) = pair.semaphore()?;
    let stream = pair.cuda_hand.stream()?;
    lab.race(vec![
        Side::values(
            OURS,
            BURST,
            |value| {
                queue.submit(&[], |_| Ok(()), &[timeline.signal_at(value)])?;
                Ok(())
            },
            |last| Ok(timeline.at(last).wait(LONG)?),
        ),
        Side::values(
            RAW,
            BURST,
            |value| cuda::signal_external(&[imported], &[signal_params(value)], stream),
            |last| {
                pair.open(&[], &[semaphore], last)?;
                cuda::finish(stream)
            },
        ),
    ])
}

fn wait(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let pair = Pair::new(call)?;
    let awaited = Awaited::new(&pair.vulkan, || pair.timeline("awaited"), 1)?;
    let timeline = &awaited.timelines[0];
    let queue = pair.cuda.queue(QueueKind::Compute, "waiting")?;
    let (semaphore, imported) = pair.semaphore()?;
    let stream = pair.cuda_hand.stream()?;
    lab.race(vec![
        Side::gated(
            OURS,
            BURST,
            |values| awaited.promise(values.end - 1),
            |value| {
                queue.submit(&[timeline.at(value)], |_| Ok(()), &[])?;
                Ok(())
            },
            |last| {
                awaited.keep(&pair.vulkan_hand, last)?;
                Ok(queue.idle(LONG)?)
            },
        ),
        Side::values(
            RAW,
            BURST,
            |value| cuda::wait_external(&[imported], &[wait_params(value)], stream),
            |last| {
                pair.open(&[semaphore], &[], last)?;
                cuda::finish(stream)
            },
        ),
    ])
}

/// The row `batch` on a stream, with timelines that Vulkan shares.
pub(super) fn batch(call: &Call<'_>, lab: &mut Lab, burst: u64) -> Outcome<()> {
    let pair = Pair::new(call)?;
    let awaited = Awaited::new(&pair.vulkan, || pair.timeline("awaited"), EACH)?;
    let signalled = (0..EACH).map(|_| pair.timeline("signalled"));
    let signalled = signalled.collect::<Result<Vec<_>, _>>()?;
    let queue = pair.cuda.queue(QueueKind::Compute, "batches")?;
    let semaphores = || -> Outcome<(Vec<_>, Vec<_>)> {
        let made = (0..EACH).map(|_| pair.semaphore());
        Ok(made.collect::<Outcome<Vec<_>>>()?.into_iter().unzip())
    };
    let ((before, waits), (after, signals)) = (semaphores()?, semaphores()?);
    let stream = pair.cuda_hand.stream()?;
    lab.race(vec![
        Side::gated(
            OURS,
            burst,
            |values| awaited.promise(values.end - 1),
            |value| {
                let waits: [Point<'_>; EACH] = from_fn(|at| awaited.timelines[at].at(value));
                let signals: [Signal<'_>; EACH] = from_fn(|at| signalled[at].signal_at(value));
                queue.submit(&waits, |_| Ok(()), &signals)?;
                Ok(())
            },
            |last| {
                awaited.keep(&pair.vulkan_hand, last)?;
                Ok(queue.idle(LONG)?)
            },
        ),
        Side::values(
            RAW,
            burst,
            |value| {
                cuda::wait_external(&waits, &[wait_params(value); EACH], stream)?;
                cuda::signal_external(&signals, &[signal_params(value); EACH], stream)
            },
            |last| {
                pair.open(&before, &after, last)?;
                cuda::finish(stream)
            },
        ),
    ])
}

fn slots(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let pair = Pair::new(call)?;
    let awaited = Awaited::new(&pair.vulkan, || pair.timeline("awaited"), 1)?;
    let (timeline, signalled) = (&awaited.timelines[0], pair.timeline("signalled")?);
    let queue = pair.cuda.queue(QueueKind::Compute, "launching")?;
    let (hand, stream) = (&pair.cuda_hand, pair.cuda_hand.stream()?);
    let buffer = pair.cuda.buffer(4096)?;

    let mut slots = pair.cuda.graph_slots("ours");
    let guard = queue.stream();
    let (mut wait, mut signal) = (None, None);
    let captured = Graph::capture(hand, guard.raw(), || {
        wait = Some(slots.wait(&queue, timeline.at(0))?);
        cuda::clear(&buffer, guard.raw())?;
        signal = Some(slots.signal(&queue, &signalled)?);
        Ok(())
    })?;
    drop(guard);
    let (graph, executable) = (captured.graph, captured.executable);
    // SAFETY: the owner keeps both, and only this row launches the graph.
    #[allow(unsafe_code, reason = "adopts a graph, as an application does")]
    let graph = unsafe { slots.adopt(graph, executable, Some(Arc::new(captured))) }?;
    let (Some(wait), Some(signal)) = (wait, signal) else {
        return Ok(());
    };

    let (semaphore, imported) = pair.semaphore()?;
    let (target, target_imported) = pair.semaphore()?;
    let by_hand = Graph::capture(hand, stream, || {
        cuda::wait_external(&[imported], &[wait_params(0)], stream)?;
        cuda::clear(&buffer, stream)?;
        cuda::signal_external(&[target_imported], &[signal_params(0)], stream)
    })?;
    let [wait_node, signal_node] = by_hand.nodes()?;
    lab.race(vec![
        Side::gated(
            OURS,
            LAUNCHES,
            |values| awaited.promise(values.end - 1),
            |value| {
                queue.launch(&graph, &[wait.at(value), signal.at(value)])?;
                Ok(())
            },
            |last| {
                awaited.keep(&pair.vulkan_hand, last)?;
                Ok(queue.idle(LONG)?)
            },
        ),
        Side::values(
            RAW,
            LAUNCHES,
            |value| {
                by_hand.set_wait(wait_node, imported, value)?;
                by_hand.set_signal(signal_node, target_imported, value)?;
                by_hand.launch(stream)
            },
            |last| {
                pair.open(&[semaphore], &[target], last)?;
                cuda::finish(stream)
            },
        ),
    ])
}
