//! CUDA graphs that wait for shared timelines and signal them.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use syncline::QueueKind;
use syncline::backend::{Device as _, Queue as _};

use super::batch::Awaited;
use super::external::Pair;
use super::{Call, Floor, Row};
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::cuda::{signal_params, wait_params};
use crate::side::{Outcome, Side, gated_bursts};

/// Time-out of all waits of this row.
const LONG: Duration = Duration::from_secs(20);

/// Largest number of outstanding launches.
///
/// A launch counts as 64 of 416 commands. Above that the engine holds submissions.
const BURST: u64 = 4;

pub(super) const ROWS: &[Row] = &[Row {
    id: "cuda.graph.slots",
    ours: "a launch of a graph that waits for a shared timeline, sets memory and signals another, 4 at a time, without their end; what they wait for is pending, and the host makes it come after what is timed",
    raw: "cuGraphExecExternalSemaphoresWaitNodeSetParams, the same for the signal, and cuGraphLaunch, 4 at a time",
    floor: Floor::Unmeasured("the limit is above raw"),
    limits: &[Limit::OverRaw(1000.0)],
    on: &[On::Shared(None)],
    variants: &[],
    run: slots,
}];

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
    let captured = hand.capture(guard.raw(), || {
        wait = Some(slots.wait(&queue, timeline.at(0))?);
        hand.clear(&buffer, guard.raw())?;
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
    let (mut wait_node, mut signal_node) = (None, None);
    let by_hand = hand.capture(stream, || {
        hand.wait_external(&[imported], &[wait_params(0)], stream)?;
        wait_node = Some(hand.node(stream)?);
        hand.clear(&buffer, stream)?;
        hand.signal_external(&[target_imported], &[signal_params(0)], stream)?;
        signal_node = Some(hand.node(stream)?);
        Ok(())
    })?;
    let (Some(wait_node), Some(signal_node)) = (wait_node, signal_node) else {
        return Ok(());
    };
    let (ours, raw) = (Cell::new(0), Cell::new(0));
    lab.race(vec![
        Side::ours(|n| {
            gated_bursts(
                n,
                BURST,
                |count| awaited.promise(count),
                |count| {
                    for value in ours.get() + 1..=ours.get() + count {
                        queue.launch(&graph, &[wait.at(value), signal.at(value)])?;
                    }
                    ours.set(ours.get() + count);
                    Ok(())
                },
                || {
                    awaited.keep(&pair.vulkan_hand)?;
                    Ok(queue.idle(LONG)?)
                },
            )
        })
        .step(BURST),
        Side::raw(|n| {
            gated_bursts(
                n,
                BURST,
                |_| Ok(()),
                |count| {
                    for value in raw.get() + 1..=raw.get() + count {
                        by_hand.set_wait(wait_node, imported, value)?;
                        by_hand.set_signal(signal_node, target_imported, value)?;
                        by_hand.launch(stream)?;
                    }
                    raw.set(raw.get() + count);
                    Ok(())
                },
                || {
                    pair.vulkan_hand.signal(semaphore.raw, raw.get())?;
                    pair.vulkan_hand.expect(semaphore, raw.get());
                    pair.vulkan_hand.expect(target, raw.get());
                    hand.finish(stream)
                },
            )
        })
        .step(BURST),
    ])
}
