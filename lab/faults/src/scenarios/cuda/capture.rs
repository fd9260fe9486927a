//! Captures into graphs, and fences in them.

use std::ptr::{null_mut, with_exposed_provenance_mut};

use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{self, sys};
use syncline::{Error, QueueKind};

use super::{DROPPING, PATIENCE, Stop, Verdict, done, expect, open, step};

/// The addresses of a graph and of its executable form. The drop destroys both.
pub(super) struct Owned {
    graph: usize,
    executable: usize,
}

impl Owned {
    pub(super) fn graph(&self) -> sys::CUgraph {
        with_exposed_provenance_mut(self.graph)
    }

    pub(super) fn executable(&self) -> sys::CUgraphExec {
        with_exposed_provenance_mut(self.executable)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: destroyed once, and nothing launches it any more.
        unsafe {
            if self.executable != 0 {
                sys::cuGraphExecDestroy(self.executable());
            }
            if self.graph != 0 {
                sys::cuGraphDestroy(self.graph());
            }
        }
    }
}

/// Captures what `add` adds to the queue's stream. Makes an executable graph on `other`.
///
/// The context is current during the work of a submission.
pub(super) fn capture_into<T>(
    queue: &cuda::Queue,
    other: &cuda::Queue,
    add: impl FnOnce() -> Verdict<T>,
) -> Verdict<(Owned, T)> {
    {
        let guard = queue.stream();
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream.
        done("cuStreamBeginCapture", unsafe {
            sys::cuStreamBeginCapture_v2(guard.raw(), mode)
        })?;
    }
    let added = add();
    // Also after an error.
    let mut graph = null_mut();
    let guard = queue.stream();
    // SAFETY: this thread began the capture.
    let ended = unsafe { sys::cuStreamEndCapture(guard.raw(), &raw mut graph) };
    drop(guard);
    let mut owned = Owned {
        graph: graph.expose_provenance(),
        executable: 0,
    };
    let added = added?;
    done("cuStreamEndCapture", ended)?;
    let address = owned.graph;
    let (sender, receiver) = std::sync::mpsc::channel();
    let work = move |_: &mut cuda::Recorder<'_>| {
        let mut executable = null_mut::<sys::CUgraphExec_st>();
        let graph = with_exposed_provenance_mut(address);
        // SAFETY: the graph has just been captured, and is destroyed after this.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) };
        let _ = sender.send((made, executable.expose_provenance()));
        Ok(())
    };
    let submitted = other.submit(&[], work, &[]).map(drop);
    if let Ok((made, executable)) = receiver.try_recv() {
        owned.executable = executable;
        done("cuGraphInstantiate", made)?;
    }
    submitted?;
    Ok((owned, added))
}

/// Fences in a capture, and fences that each launch records and waits for.
pub(super) fn capture() -> Verdict {
    let device = open()?;
    step("set-up");
    let queue = device.queue(QueueKind::Compute, "captured")?;
    let other = device.queue(QueueKind::Compute, "other")?;
    let buffer = device.host_buffer(64)?;
    let (inner, each, before) = (
        device.fence("inner"),
        device.fence("each"),
        device.fence("before"),
    );
    step("capturing");
    let (owned, ()) = capture_into(&queue, &other, || {
        queue.wait_external(&before)?;
        queue.record(&inner)?;
        other.wait(&inner)?;
        other.record(&inner)?;
        queue.wait(&inner)?;
        queue.record_external(&each)?;
        let refused = queue.submit(&[], |_| Ok(()), &[]);
        match refused {
            Err(Error::Capturing { .. }) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Err(Stop::Wrong("a captured stream took a submission".into())),
        }
    })?;
    step("launching");
    let launched = (|| -> Verdict {
        other.record(&before)?;
        let address = owned.executable().addr();
        let to = buffer.clone();
        queue.submit(
            &[],
            move |recorder| {
                // SAFETY: the graph lives until the queue is idle.
                unsafe { recorder.launch_graph(std::ptr::with_exposed_provenance_mut(address)) }?;
                recorder.memset_d32(&to, 6)
            },
            &[],
        )?;
        other.wait(&each)?;
        other.idle(PATIENCE)?;
        each.wait(PATIENCE)?;
        queue.idle(PATIENCE)?;
        expect(
            buffer.read_words()? == [6; 16],
            "nothing was written behind the graph",
        )
    })();
    // Work of it may be in flight after an error.
    let idle = queue.idle(PATIENCE);
    drop(owned);
    launched?;
    idle?;
    device.check()?;
    step(DROPPING);
    Ok(())
}
