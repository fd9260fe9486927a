//! Captures a graph that waits for one timeline and signals another in its middle.

use std::ptr::null_mut;
use std::sync::Arc;

use syncline::cuda::{Buffer, Device, Graph, Queue, Slot, sys};
use syncline::{Error, Result, Timeline};

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

fn done(call: &str, code: sys::CUresult) -> Result<()> {
    let failed = || Error::work(format!("{call} returned {code:?}"));
    (code == sys::CUresult::CUDA_SUCCESS)
        .then_some(())
        .ok_or_else(failed)
}

/// Waits for `shown`, writes `picture`, signals `ready`, and then writes `rest`.
pub(crate) fn capture(
    (device, queue): (&Device, &Queue),
    (shown, ready): (&Timeline, &Timeline),
    (picture, rest): (&Buffer, &Buffer),
) -> Result<(Graph, Slot, Slot)> {
    let (mut graph, mut executable) = (null_mut(), null_mut());
    let words = (rest.size() / 4) as usize;
    let mut slots = device.graph_slots("frame");
    // Begin and end of a capture are under the stream's guard.
    let guard = queue.stream();
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the context and the stream live, and the memory lives until all work has ended.
    unsafe {
        let current = sys::cuCtxSetCurrent(device.raw_context());
        done("cuCtxSetCurrent", current)?;
        done("begin", sys::cuStreamBeginCapture_v2(guard.raw(), mode))?;
    }
    // Each launch waits here until Vulkan has shown the picture before.
    let free = slots.wait(queue, shown.at(0))?;
    let write = |buffer: &Buffer, word| {
        // SAFETY: as above.
        done("write", unsafe {
            sys::cuMemsetD32Async(buffer.pointer(), word, words, guard.raw())
        })
    };
    write(picture, 7)?;
    // Vulkan begins here, while the rest of the graph still runs.
    let painted = slots.signal(queue, ready)?;
    write(rest, 8)?;
    // SAFETY: as above.
    unsafe {
        done("end", sys::cuStreamEndCapture(guard.raw(), &raw mut graph))?;
        let made = sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0);
        done("make", made)?;
    }
    drop(guard);
    let owner = Arc::new(Captured(graph, executable));
    // SAFETY: `owner` keeps both, and nothing else launches the graph.
    let graph = unsafe { slots.adopt(graph, executable, Some(owner)) }?;
    Ok((graph, free, painted))
}
