//! A CUDA graph with two slots. Vulkan begins in the middle of each launch.

#![allow(unsafe_code, reason = "captures and adopts a graph")]

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use syncline::cuda::sys;
use syncline::prelude::*;

const PATIENCE: Duration = Duration::from_secs(30);
const FRAMES: u64 = 100;
const WORDS: usize = 1024;

/// A graph of the application, and its executable form. The drop destroys both.
struct Captured(sys::CUgraph, sys::CUgraphExec);

// SAFETY: any thread may destroy graphs, and only Syncline launches this one.
unsafe impl Send for Captured {}
// SAFETY: as above.
unsafe impl Sync for Captured {}

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: Syncline keeps this until all launches have finished.
        unsafe {
            let _ = sys::cuGraphExecDestroy(self.1);
            let _ = sys::cuGraphDestroy(self.0);
        }
    }
}

fn done(call: &str, code: sys::CUresult) -> syncline::Result<()> {
    let failed = || syncline::Error::work(format!("{call} returned {code:?}"));
    (code == sys::CUresult::CUDA_SUCCESS)
        .then_some(())
        .ok_or_else(failed)
}

fn main() -> syncline::Result<()> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let (cuda, vulkan) = inventory.pair()?;
    let link = share(&cuda, &vulkan)?;
    let (ready, shown) = (link.timeline("ready")?, link.timeline("shown")?);
    let picture = link.buffer(4 * WORDS as u64)?;
    let (simulate, show) = (
        cuda.queue(QueueKind::Compute, "simulate")?,
        vulkan.queue(QueueKind::Compute, "show")?,
    );
    let (address, rest) = (picture.left().pointer(), cuda.buffer(4 * WORDS as u64)?);

    // The application captures as usual. Begin and end are under the stream's guard.
    let (mut graph, mut executable) = (null_mut(), null_mut());
    let mut slots = cuda.graph_slots("frame");
    let guard = simulate.stream();
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the context and the stream live, and the memory lives until all work has ended.
    unsafe {
        done("cuCtxSetCurrent", sys::cuCtxSetCurrent(cuda.raw_context()))?;
        done("begin", sys::cuStreamBeginCapture_v2(guard.raw(), mode))?;
    }
    // Each launch waits here until Vulkan has shown the picture before.
    let free = slots.wait(&simulate, shown.at(0))?;
    // SAFETY: as above.
    done("paint", unsafe {
        sys::cuMemsetD32Async(address, 7, WORDS, guard.raw())
    })?;
    // Vulkan begins here, while the rest of the graph still runs.
    let painted = slots.signal(&simulate, &ready)?;
    // SAFETY: as above.
    unsafe {
        done(
            "rest",
            sys::cuMemsetD32Async(rest.pointer(), 8, WORDS, guard.raw()),
        )?;
        done("end", sys::cuStreamEndCapture(guard.raw(), &raw mut graph))?;
        done(
            "make",
            sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0),
        )?;
    }
    drop(guard);
    let captured = Arc::new(Captured(graph, executable));
    // SAFETY: `captured` keeps both, and nothing else launches the graph.
    let graph = unsafe { slots.adopt(graph, executable, Some(captured)) }?;

    let seen = vulkan.host_buffer(4 * WORDS as u64, Default::default())?;
    for frame in 1..=FRAMES {
        simulate.launch(&graph, &[free.at(frame - 1), painted.at(frame)])?;
        let (from, to) = (picture.right().clone(), seen.clone());
        show.submit(
            &[ready.at(frame)],
            move |commands| commands.copy_buffer(&from, &to),
            &[shown.signal_at(frame)],
        )?;
    }
    shown.at(FRAMES).wait(PATIENCE)?;
    simulate.idle(PATIENCE)?;
    let words = seen.as_words().unwrap_or_default();
    let right = words.iter().filter(|word| word.load(Relaxed) == 7).count();
    println!("frame {}: {right} of {WORDS} words are 7", shown.value()?);
    Ok(())
}
