//! A CUDA graph that waits for timelines and signals them at each launch.
#![allow(
    unsafe_code,
    reason = "captures and adopts graphs, as an application does"
)]

use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{self, Graph, GraphSlots, Slot, sys};
use syncline::{QueueKind, Timeline, host, share};

use super::cuda::{done, end_capture, open};
use super::{PATIENCE, Scenario, Stop, Verdict, expect, vulkan};
use crate::one_run::{DROPPING, step};

pub(super) static SCENARIOS: &[Scenario] = &[Scenario {
    name: "cuda.slots",
    run: slots,
}];

/// The addresses of a graph and of its executable form. The drop destroys both.
struct Owned(usize, usize);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: destroyed once, and nothing launches it any more.
        unsafe {
            if self.1 != 0 {
                sys::cuGraphExecDestroy(with_exposed_provenance_mut(self.1));
            }
            sys::cuGraphDestroy(with_exposed_provenance_mut(self.0));
        }
    }
}

/// Makes an executable graph. The context is current during the work of a submission.
fn instantiate(queue: &cuda::Queue, graph: sys::CUgraph) -> Verdict<Owned> {
    let mut owned = Owned(graph.expose_provenance(), 0);
    let address = owned.0;
    let (sender, receiver) = std::sync::mpsc::channel();
    let work = move |_: &mut cuda::Recorder<'_>| {
        let mut executable = null_mut::<sys::CUgraphExec_st>();
        let graph = with_exposed_provenance_mut(address);
        // SAFETY: the graph has just been captured, and is destroyed after this.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) };
        let _ = sender.send((made, executable.expose_provenance()));
        Ok(())
    };
    let submitted = queue.submit(&[], work, &[]).map(drop);
    if let Ok((made, executable)) = receiver.try_recv() {
        owned.1 = executable;
        done("cuGraphInstantiate", made)?;
    }
    submitted?;
    Ok(owned)
}

/// The slots that the scenario captures: three waits and three signals.
fn capture(
    queue: &cuda::Queue,
    mut slots: GraphSlots,
    waits: [&Timeline; 3],
    signals: [&Timeline; 3],
) -> Verdict<(Graph, [Slot; 6])> {
    {
        let guard = queue.stream();
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream.
        done("cuStreamBeginCapture", unsafe {
            sys::cuStreamBeginCapture_v2(guard.raw(), mode)
        })?;
    }
    let captured = (|| -> Verdict<[Slot; 6]> {
        Ok([
            slots.wait(queue, waits[0].at(0))?,
            slots.wait(queue, waits[1].at(0))?,
            slots.wait(queue, waits[2].at(0))?,
            slots.signal(queue, signals[0])?,
            slots.signal(queue, signals[1])?,
            slots.signal(queue, signals[2])?,
        ])
    })();
    let graph = end_capture(queue);
    if let (Err(_), Ok(graph)) = (&captured, &graph) {
        // SAFETY: the graph has just been captured.
        unsafe { sys::cuGraphDestroy(*graph) };
    }
    let captured = captured?;
    let graph = graph.map_err(|code| Stop::Own(format!("cuStreamEndCapture: {code:?}")))?;
    let owned = instantiate(queue, graph)?;
    let executable = with_exposed_provenance_mut(owned.1);
    // SAFETY: the owner keeps both. The graph has only the nodes of the slots.
    let graph = unsafe { slots.adopt(graph, executable, Some(Arc::new(owned))) }?;
    Ok((graph, captured))
}

fn slots() -> Verdict {
    let (cuda, vulkan) = (open()?, vulkan::open()?);
    step("sharing");
    let link = share(&cuda, &vulkan)?;
    let (theirs, ours) = (link.timeline("theirs")?, link.timeline("ours")?);
    let counters = share(&cuda, &host::Device::new())?;
    let (told, heard) = (counters.timeline("told")?, counters.timeline("heard")?);
    let (before, after) = (cuda.timeline("before")?, cuda.timeline("after")?);
    let seen = vulkan.timeline("seen")?;
    let (queue, other) = (
        cuda.queue(QueueKind::Compute, "captured")?,
        cuda.queue(QueueKind::Compute, "other")?,
    );
    let right = vulkan.queue(QueueKind::Compute, "right")?;
    step("capturing");
    let slots = cuda.graph_slots("graph");
    let (waits, signals) = ([&before, &theirs, &told], [&after, &ours, &heard]);
    let (graph, captured) = capture(&queue, slots, waits, signals)?;
    step("launching");
    let launched = (|| -> Verdict {
        for round in 1..=3 {
            right.submit(&[], |_| Ok(()), &[theirs.signal_at(round)])?;
            other.submit(&[], |_| Ok(()), &[before.signal_at(round)])?;
            told.signal(round)?;
            let values = captured.map(|slot| slot.at(round));
            let refused = queue.launch(&graph, &values).map(drop).err();
            if let Some(error) = refused {
                queue.idle(PATIENCE)?;
                // The timeline does not tell of a value that nothing claims.
                let semaphore = vulkan.semaphore_of(&ours)?;
                // SAFETY: a live semaphore, which the timeline keeps.
                let value = unsafe { vulkan.raw().get_semaphore_counter_value(semaphore) };
                let signalled = value.is_ok_and(|value| value >= round);
                // A lost device may have executed what it refuses.
                let is_lost = cuda.check().is_err();
                expect(is_lost || !signalled, "a refused launch has signalled")?;
                return Err(error.into());
            }
            let waits = [ours.at(round), after.at(round)];
            right.submit(&waits, |_| Ok(()), &[seen.signal_at(round)])?;
        }
        step("waiting");
        after.at(3).wait(PATIENCE)?;
        ours.at(3).wait(PATIENCE)?;
        seen.at(3).wait(PATIENCE)?;
        heard.at(3).wait(PATIENCE)?;
        expect(ours.value()? == 3, "the shared timeline is not at 3")
    })();
    // Work of it may be in flight after an error.
    let idle = queue.idle(PATIENCE);
    launched?;
    idle?;
    cuda.check()?;
    vulkan.check()?;
    step(DROPPING);
    Ok(())
}
