//! Helpers for captures, for graphs, and for streams that the host blocks.
#![allow(unsafe_code, reason = "captures streams, as an application does")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use syncline_core::QueueKind;
use syncline_core::backend::kit::MutexGuard;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_cuda::{Buffer, Device, Queue, Recorder, sys};

use crate::common::{LIMIT, alone, open};

pub(crate) const SHORT: Duration = Duration::from_millis(20);

pub(crate) const WORDS: u64 = 1 << 10;

pub(crate) const THREAD_LOCAL: sys::CUstreamCaptureMode =
    sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

pub(crate) const RELAXED: sys::CUstreamCaptureMode =
    sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;

pub(crate) const GLOBAL: sys::CUstreamCaptureMode =
    sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL;

pub(crate) fn ok(result: sys::CUresult) {
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
}

pub(crate) struct Setup {
    pub(crate) device: Device,
    pub(crate) _alone: MutexGuard<'static, ()>,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let alone = alone();
        let device = open().unwrap();
        // The driver does some work only once. That must happen before a capture.
        let (from, to) = (device.buffer(64).unwrap(), device.buffer(64).unwrap());
        let queue = device.queue(QueueKind::Compute, "warm-up").unwrap();
        let work = move |r: &mut Recorder| {
            r.memset_d32(&from, 1)?;
            r.copy(&from, &to)
        };
        queue.submit(&[], work, &[]).unwrap();
        queue.idle(LIMIT).unwrap();
        Self {
            device,
            _alone: alone,
        }
    }

    pub(crate) fn queue(&self, label: &str) -> Queue {
        self.device.queue(QueueKind::Compute, label).unwrap()
    }

    /// Allocates words on the device.
    ///
    /// A graph that copies from host memory to host memory does so when it is launched.
    pub(crate) fn memory(&self) -> Buffer {
        self.device.buffer(WORDS * 4).unwrap()
    }

    /// Allocates words that the host can read.
    pub(crate) fn words(&self) -> Buffer {
        self.device.host_buffer(WORDS * 4).unwrap()
    }

    /// Makes the context current until the test's thread ends, as an application does.
    pub(crate) fn make_current(&self) {
        // SAFETY: the context is alive as long as the device.
        ok(unsafe { sys::cuCtxSetCurrent(self.device.raw_context()) });
    }
}

/// A capture of a queue's stream.
///
/// It begins and ends under the stream's guard. Otherwise another thread could send a held
/// submission in between.
pub(crate) struct Recording<'q> {
    queue: &'q Queue,
    pub(crate) stream: sys::CUstream,
}

impl<'q> Recording<'q> {
    pub(crate) fn begin(queue: &'q Queue, mode: sys::CUstreamCaptureMode) -> Self {
        let guard = queue.stream();
        // SAFETY: a live stream.
        ok(unsafe { sys::cuStreamBeginCapture_v2(guard.raw(), mode) });
        Self::begun(queue)
    }

    /// Returns the capture that has begun on the queue's stream.
    pub(crate) fn begun(queue: &'q Queue) -> Self {
        let stream = queue.stream().raw();
        Self { queue, stream }
    }

    pub(crate) fn try_end(self) -> Result<Graph, sys::CUresult> {
        let mut graph = null_mut();
        let guard = self.queue.stream();
        // SAFETY: this thread began the capture. The call writes one handle.
        let ended = unsafe { sys::cuStreamEndCapture(guard.raw(), &raw mut graph) };
        drop(guard);
        if ended != sys::CUresult::CUDA_SUCCESS {
            return Err(ended);
        }
        Ok(Graph::of(graph))
    }

    pub(crate) fn end(self) -> Graph {
        self.try_end().expect("the capture is whole")
    }

    /// Ends the capture and returns how many nodes it has.
    pub(crate) fn end_counting(self) -> usize {
        let (mut graph, mut nodes) = (null_mut(), 0);
        let guard = self.queue.stream();
        // SAFETY: this thread began the capture, and only this function has the graph. The calls
        // write one handle and one number.
        unsafe {
            ok(sys::cuStreamEndCapture(guard.raw(), &raw mut graph));
            ok(sys::cuGraphGetNodes(graph, null_mut(), &raw mut nodes));
            ok(sys::cuGraphDestroy(graph));
        }
        nodes
    }
}

pub(crate) struct Graph(pub(crate) sys::CUgraphExec);

impl Graph {
    /// Makes an executable graph, and destroys the one that has just been captured.
    pub(crate) fn of(captured: sys::CUgraph) -> Self {
        let mut executable = null_mut();
        // SAFETY: the graph has just been captured. The call writes one handle.
        ok(unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, captured, 0) });
        // SAFETY: nothing uses the graph itself any more.
        ok(unsafe { sys::cuGraphDestroy(captured) });
        Self(executable)
    }
}

// SAFETY: graphs may be used from any thread, one at a time.
unsafe impl Send for Graph {}

// SAFETY: the tests launch from one thread only.
unsafe impl Sync for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: submissions keep it until they have finished.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

pub(crate) fn launch(
    graph: &Arc<Graph>,
) -> impl FnOnce(&mut Recorder) -> syncline_core::Result<()> + use<> {
    let graph = graph.clone();
    move |r| {
        // SAFETY: the graph is kept. Its memory lives until the test has waited for the launch.
        unsafe { r.launch_graph(graph.0) }?;
        r.keep(graph);
        Ok(())
    }
}

pub(crate) fn set(stream: sys::CUstream, buffer: &Buffer, value: u32) {
    // SAFETY: the buffer has that many words and lives until the test ends.
    ok(unsafe { sys::cuMemsetD32Async(buffer.pointer(), value, WORDS as usize, stream) });
}

pub(crate) fn copy(stream: sys::CUstream, from: &Buffer, to: &Buffer) {
    // SAFETY: as for `set`.
    ok(unsafe {
        sys::cuMemcpyDtoDAsync_v2(to.pointer(), from.pointer(), WORDS as usize * 4, stream)
    });
}

/// A host function that blocks a stream until the test releases it, for at most 20 seconds.
#[derive(Default)]
pub(crate) struct Stall(pub(crate) AtomicBool);

impl Stall {
    pub(crate) fn holding() -> ReleasesOnDrop {
        ReleasesOnDrop(Arc::default())
    }
}

pub(crate) struct ReleasesOnDrop(pub(crate) Arc<Stall>);

impl ReleasesOnDrop {
    pub(crate) fn put_into(&self, stream: sys::CUstream) {
        unsafe extern "C" fn wait(stall: *mut c_void) {
            // SAFETY: the test keeps it until the stream has finished.
            let stall = unsafe { &*stall.cast::<Stall>() };
            let start = Instant::now();
            while !stall.0.load(Ordering::SeqCst) && start.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        let stall = Arc::as_ptr(&self.0).cast_mut().cast::<c_void>();
        // SAFETY: the stall outlives the work. The function calls no driver.
        ok(unsafe { sys::cuLaunchHostFunc(stream, Some(wait), stall) });
    }

    pub(crate) fn release(&self) {
        self.0.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn hold(&self) {
        self.0.0.store(false, Ordering::SeqCst);
    }
}

impl Drop for ReleasesOnDrop {
    fn drop(&mut self) {
        self.release();
    }
}

/// Reads without a driver call, which would wait for the device.
pub(crate) trait ReadNow {
    fn read_words_now(&self) -> Vec<u32>;
}

impl ReadNow for Buffer {
    fn read_words_now(&self) -> Vec<u32> {
        let words = self.as_words().unwrap();
        words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect()
    }
}
