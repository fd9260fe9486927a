//! F7: fences in a CUDA graph capture, and fences that each launch of a graph records or waits for.

#![allow(unsafe_code, reason = "captures streams, as an application does")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use syncline::cuda::{self, sys};
use syncline::{Buffer, Device, Error, Queue, QueueKind, Recorder, host};

use crate::case::{Stop, Verdict, check, check_eq, check_error, equipped_cases};
use crate::cases::{DELAY, LONG_DELAY, WORDS, copying, filled};
use crate::user;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "capture.fence_belongs_to_the_graph": [F7 E5] => fence_belongs;
    "capture.wait_becomes_an_edge": [F7] => edge;
    "capture.timelines_are_refused_unharmed": [F7 Q5] => timelines;
    "capture.valid_again_after_a_new_record": [F7 F2] => valid_again;
    "capture.queries_do_not_break_it": [F7 F3] => queries;
    "capture.each_launch_records": [F7 F2] => each_records;
    "capture.each_launch_waits": [F7] => each_waits;
    "capture.a_launch_is_one_submission": [F7 Q1] => launches;
    "capture.released_meanwhile_goes_after_it": [F7 Q2] => released;
}

/// A wait that must time out.
const SHORT: Duration = Duration::from_millis(5);

type Fence = user::Fence<Equipped>;

/// Creates a queue of the left side, which is CUDA. Makes its context current on this thread.
pub(super) fn cuda_queue(
    world: &World<Equipped>,
    label: &str,
) -> Result<(user::Queue<Equipped>, cuda::Queue), Stop> {
    let Device::Cuda(device) = world.left.library() else {
        return Stop::skip("only CUDA captures work into graphs");
    };
    // SAFETY: the context lives as long as the device.
    done("cuCtxSetCurrent", unsafe {
        sys::cuCtxSetCurrent(device.raw_context())
    })?;
    let queue = world.left_queue(label)?;
    match queue.library().clone() {
        Queue::Cuda(native) => Ok((queue, native)),
        _ => Stop::skip("a wrapped queue is not CUDA's own"),
    }
}

pub(super) fn done(call: &str, result: sys::CUresult) -> Verdict {
    check_eq!(result, sys::CUresult::CUDA_SUCCESS, "call {call}");
    Ok(())
}

/// A capture that has begun. The drop ends it. Begin and end are under the stream's guard (F7).
pub(super) struct Capture<'q> {
    queue: &'q cuda::Queue,
    pub(super) stream: sys::CUstream,
    ended: bool,
}

impl<'q> Capture<'q> {
    pub(super) fn begin(queue: &'q cuda::Queue) -> Result<Self, Stop> {
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        Self::begin_in(queue, mode)
    }

    fn begin_in(queue: &'q cuda::Queue, mode: sys::CUstreamCaptureMode) -> Result<Self, Stop> {
        let guard = queue.stream();
        // SAFETY: a live stream.
        let begun = unsafe { sys::cuStreamBeginCapture_v2(guard.raw(), mode) };
        done("cuStreamBeginCapture", begun)?;
        Ok(Self {
            queue,
            stream: guard.raw(),
            ended: false,
        })
    }

    /// Ends the capture and returns the graph. The capture must be valid.
    fn end(self) -> Result<Graph, Stop> {
        let (graph, executable) = self.end_raw()?;
        // SAFETY: nothing uses the graph itself any more.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
        Ok(Graph(Arc::new(Executable(executable))))
    }

    /// Ends the capture. Returns the graph and its executable form, which the caller destroys.
    pub(super) fn end_raw(mut self) -> Result<(sys::CUgraph, sys::CUgraphExec), Stop> {
        self.ended = true;
        let (mut graph, mut executable) = (null_mut(), null_mut());
        let guard = self.queue.stream();
        // SAFETY: this thread began the capture. The call writes one handle.
        let ended = unsafe { sys::cuStreamEndCapture(guard.raw(), &raw mut graph) };
        drop(guard);
        done(
            "cuStreamEndCapture, of a capture that was to stay whole,",
            ended,
        )?;
        // SAFETY: the graph has just been captured. The call writes one handle.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) };
        if made != sys::CUresult::CUDA_SUCCESS {
            // SAFETY: nothing uses the graph any more.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
        }
        done("cuGraphInstantiate", made)?;
        Ok((graph, executable))
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let mut graph = null_mut();
            let guard = self.queue.stream();
            // SAFETY: this thread began the capture. The call writes one handle or null.
            let ended = unsafe { sys::cuStreamEndCapture(guard.raw(), &raw mut graph) };
            if ended == sys::CUresult::CUDA_SUCCESS && !graph.is_null() {
                // SAFETY: the graph was just created.
                let _ = unsafe { sys::cuGraphDestroy(graph) };
            }
        }
    }
}

#[derive(Clone)]
struct Graph(Arc<Executable>);

struct Executable(sys::CUgraphExec);

// SAFETY: graphs may be used from any thread, one at a time. The cases launch from one thread.
unsafe impl Send for Executable {}

// SAFETY: the same.
unsafe impl Sync for Executable {}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: submissions keep it until they have finished.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

impl Graph {
    /// Returns work that launches the graph.
    fn launch(&self) -> impl FnOnce(&mut Recorder<'_>) -> syncline::Result<()> + Send + use<> {
        let graph = self.clone();
        move |recorder| {
            let Recorder::Cuda(recorder) = recorder else {
                return Err(Error::work(std::io::Error::other("not a CUDA recorder")));
            };
            // SAFETY: the graph is kept. Its buffers and stalls outlive the case's waits.
            unsafe { recorder.launch_graph(graph.0.0) }?;
            recorder.keep(graph.0);
            Ok(())
        }
    }
}

pub(super) fn set(stream: sys::CUstream, buffer: &Buffer, value: u32) -> Verdict {
    let Buffer::Cuda(buffer) = buffer else {
        return Stop::skip("not CUDA's memory");
    };
    // SAFETY: the buffer has that many words, and lives until the case has waited for the stream.
    done("cuMemsetD32Async", unsafe {
        sys::cuMemsetD32Async(buffer.pointer(), value, WORDS, stream)
    })
}

/// A host function in a graph that blocks the stream until the case releases it.
///
/// It ends by itself after twice the time that a case waits for anything. So a failing case does
/// not hang.
pub(super) struct Stall(Arc<AtomicBool>);

impl Stall {
    pub(super) fn released() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    pub(super) fn hold(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    pub(super) fn release(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(super) fn put_into(&self, stream: sys::CUstream) -> Verdict {
        unsafe extern "C" fn wait(released: *mut c_void) {
            // SAFETY: the case keeps the flag until the stream has finished.
            let released = unsafe { &*released.cast::<AtomicBool>() };
            let start = Instant::now();
            while !released.load(Ordering::SeqCst) && start.elapsed() < 2 * patience() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        let released = Arc::as_ptr(&self.0).cast_mut().cast::<c_void>();
        // SAFETY: the flag outlives the work. The function calls no driver.
        done("cuLaunchHostFunc", unsafe {
            sys::cuLaunchHostFunc(stream, Some(wait), released)
        })
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.release();
        // A host function that still waits reads the flag once more.
        std::mem::forget(self.0.clone());
    }
}

/// Makes every query that a host thread or a queue outside the capture can make.
fn ask(world: &World<Equipped>, fence: &Fence) -> Verdict {
    let captured = |result: syncline::Result<()>, what: &str| -> Verdict {
        check!(
            matches!(&result, Err(Error::Captured { fence, .. }) if fence.label() == "place"),
            "{what} of a captured fence gave {result:?}"
        );
        Ok(())
    };
    captured(fence.is_complete().map(|_| ()), "a query")?;
    captured(fence.wait(Duration::ZERO), "a wait of no time")?;
    captured(fence.wait(patience()), "a wait")?;
    captured(fence.point().map(|_| ()), "the position")?;
    let worker = syncline::backend::Device::queue(&host::Device::new(), QueueKind::Compute, "w")?;
    captured(
        syncline::backend::Queue::wait(&worker, fence.library()),
        "the wait of a host queue",
    )?;
    if world.is_pair() && !matches!(world.right.library(), Device::Cuda(_)) {
        captured(
            world.right_queue("right")?.wait(fence),
            "the wait of another device's queue",
        )?;
    }
    Ok(())
}

fn fence_belongs(world: &World<Equipped>) -> Verdict {
    let (queue, native) = cuda_queue(world, "captured")?;
    let buffer = world.left.buffer(WORDS)?;
    let fence = world.left.fence("place");
    let clocked = match world.left.clocked_fence("place") {
        Ok(clocked) => Some(clocked),
        Err(Stop::Skipped(_)) => None,
        Err(failed) => return Err(failed),
    };
    let capture = Capture::begin(&native)?;
    set(capture.stream, &buffer, 1)?;
    queue.record(&fence)?;
    ask(world, &fence)?;
    queue.record(&fence)?;
    ask(world, &fence)?;
    // A clocked fence has a place in the graph, too, and no time.
    if let Some(clocked) = &clocked {
        queue.record(clocked)?;
        ask(world, clocked)?;
        check_error!(clocked.time(), Captured);
        check_error!(clocked.elapsed_since(clocked), Captured);
    }
    // The queries have done the capture no harm.
    let graph = capture.end()?;
    ask(world, &fence)?;
    queue.submit(&[], graph.launch(), &[])?;
    queue.idle(patience())?;
    filled::<Equipped>(&buffer, 1, "the graph did not do its work")?;
    Ok(())
}

fn edge(world: &World<Equipped>) -> Verdict {
    let ((first, native), (second, other)) =
        (cuda_queue(world, "first")?, cuda_queue(world, "second")?);
    let buffer = world.left.buffer(WORDS)?;
    let (fork, join) = (world.left.fence("fork"), world.left.fence("join"));
    let stall = Stall::released();
    let capture = Capture::begin(&native)?;
    stall.put_into(capture.stream)?;
    set(capture.stream, &buffer, 1)?;
    first.record(&fork)?;
    second.wait(&fork)?;
    set(other.stream().raw(), &buffer, 2)?;
    second.record(&join)?;
    // Recorded again later. The existing edge stays.
    first.record(&fork)?;
    first.wait(&join)?;
    let graph = capture.end()?;
    for _ in 0..3 {
        stall.hold();
        let line = world.left.timeline("line")?;
        first.submit(&[], graph.launch(), &[line.signal_at(1)])?;
        check_error!(line.at(1).wait(SHORT), TimedOut);
        stall.release();
        line.at(1).wait(patience())?;
        // Without the edge the second stream's work comes first, before the stall.
        filled::<Equipped>(
            &buffer,
            2,
            "the wait became no edge: the other stream's work came first",
        )?;
    }
    second.submit_empty(&[], &[])?;
    second.idle(patience())?;
    first.idle(patience())?;
    Ok(())
}

fn timelines(world: &World<Equipped>) -> Verdict {
    let (queue, native) = cuda_queue(world, "captured")?;
    let line = world.timeline("line")?;
    let (outside, never) = (world.left.fence("outside"), world.left.fence("never"));
    let beside = world.left_queue("beside")?;
    beside.record(&outside)?;
    let capture = Capture::begin(&native)?;
    for (waits, signals) in [
        (&[][..], &[][..]),
        (&[line.at(1)][..], &[][..]),
        (&[][..], &[line.signal_at(1)][..]),
    ] {
        check_error!(queue.submit_empty(waits, signals), Capturing);
    }
    check_error!(queue.wait(&outside), Capturing);
    // A fence that was never recorded adds nothing.
    queue.wait(&never)?;
    check!(
        queue.position().value() == 0 && queue.held().count == 0,
        "a refused submission left something behind"
    );
    capture.end()?;
    queue.signal(&line, 1)?;
    line.at(1).wait(patience())?;
    Ok(())
}

fn valid_again(world: &World<Equipped>) -> Verdict {
    let ((queue, native), (beside, _)) =
        (cuda_queue(world, "captured")?, cuda_queue(world, "beside")?);
    let fence = world.left.fence("place");
    let capture = Capture::begin(&native)?;
    queue.record(&fence)?;
    capture.end()?;
    for waiting in [&beside, &queue] {
        check_error!(waiting.wait(&fence), CaptureEnded);
    }
    // The same in a later capture of the stream.
    let capture = Capture::begin(&native)?;
    check_error!(queue.wait(&fence), CaptureEnded);
    capture.end()?;
    ask(world, &fence)?;
    let gate = world.timeline("gate")?;
    queue.submit_empty(&[gate.at(1)], &[])?;
    queue.record(&fence)?;
    check!(!fence.is_complete()?);
    world.right_queue("right")?.wait(&fence)?;
    gate.signal(1)?;
    fence.wait(patience())?;
    check!(fence.is_complete()?, "not complete after the wait for it");
    Ok(())
}

fn queries(world: &World<Equipped>) -> Verdict {
    let (queue, native) = cuda_queue(world, "captured")?;
    let (beside, right) = (world.left_queue("beside")?, world.right_queue("right")?);
    let (line, fence) = (world.timeline("line")?, world.left.fence("beside"));
    let (begin, end) = (
        world.left.timed_fence("begin"),
        world.left.timed_fence("end"),
    );
    // Uses each queue once before a capture in the strictest mode, so that it is set up.
    for each in [&beside, &right] {
        each.submit_empty(&[], &[])?.end().wait(patience())?;
    }
    let place = world.left.fence("place");
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL;
    let capture = Capture::begin_in(&native, mode)?;
    queue.record(&place)?;
    beside.record(&begin)?;
    beside.signal(&line, 1)?;
    beside.record(&end)?;
    beside.record(&fence)?;
    right.submit_empty(&[line.at(1)], &[line.signal_at(2)])?;
    line.at(2).wait(patience())?;
    fence.wait(patience())?;
    check!(fence.is_complete()?, "not complete after the wait for it");
    check!(end.elapsed_since(&begin)? >= 0);
    world.left.check()?;
    ask(world, &place)?;
    capture.end()?;
    Ok(())
}

fn each_records(world: &World<Equipped>) -> Verdict {
    let (queue, native) = cuda_queue(world, "captured")?;
    let right = world.right_queue("right")?;
    let fence = world.left.fence("through");
    check_error!(native.record_external(fence.library()), Unsupported);
    let stall = Stall::released();
    let capture = Capture::begin(&native)?;
    stall.put_into(capture.stream)?;
    native.record_external(fence.library())?;
    check_error!(queue.record(&fence), Capturing);
    let graph = capture.end()?;
    check!(fence.is_complete()?, "not complete before the first launch");
    for _ in 0..3 {
        stall.hold();
        queue.submit(&[], graph.launch(), &[])?;
        check!(!fence.is_complete()?);
        check_error!(fence.wait(SHORT), TimedOut);
        let early = fence.point()?;
        right.wait(&fence)?;
        let waits = right.position().keep();
        check_error!(waits.point().wait(SHORT), TimedOut);
        stall.release();
        fence.wait(patience())?;
        early.point().wait(patience())?;
        waits.point().wait(patience())?;
        queue.idle(patience())?;
        // A later launch does not change waits that were submitted before.
        stall.hold();
        queue.submit(&[], graph.launch(), &[])?;
        check!(
            !fence.is_complete()? && early.point().is_reached()?,
            "a launch moved a wait that was issued before it"
        );
        stall.release();
        fence.wait(patience())?;
        queue.idle(patience())?;
    }
    Ok(())
}

fn each_waits(world: &World<Equipped>) -> Verdict {
    let (queue, native) = cuda_queue(world, "captured")?;
    let producer = world.left_queue("producer")?;
    let (gate, fence) = (world.timeline("gate")?, world.left.fence("produced"));
    let buffer = world.left.buffer(WORDS)?;
    let capture = Capture::begin(&native)?;
    native.wait_external(fence.library())?;
    set(capture.stream, &buffer, 7)?;
    let graph = capture.end()?;
    for round in 1..=3 {
        producer.fill(&[gate.at(round)], &buffer, 1, &[])?;
        producer.record(&fence)?;
        check!(!fence.is_complete()?);
        let point = fence.point()?;
        queue.submit(&[point.point()], graph.launch(), &[])?;
        check_error!(queue.position().wait(SHORT), TimedOut);
        gate.signal(round)?;
        queue.idle(patience())?;
        filled::<Equipped>(&buffer, 7, "the launch did not wait for the record")?;
    }
    // The record is with the driver, and nothing but the wait in the graph holds the launch back.
    // Without the wait in the graph, the producer would write last, because it is delayed.
    for delay in [LONG_DELAY, DELAY] {
        producer.fill_after(delay, &buffer, 1, &[])?;
        producer.record(&fence)?;
        producer.settle(patience())?;
        queue.submit(&[], graph.launch(), &[])?;
        queue.idle(patience())?;
        producer.idle(patience())?;
        filled::<Equipped>(&buffer, 7, "the wait in the graph is missing")?;
    }
    Ok(())
}

/// Launches a graph that waits and records.
///
/// It starts after its submission's waits and after its own wait. Its submission's signal comes
/// after the whole graph.
fn launches(world: &World<Equipped>) -> Verdict {
    let (queue, native) = cuda_queue(world, "captured")?;
    let (right, beside) = (world.right_queue("right")?, world.left_queue("beside")?);
    let line = world.timeline("line")?;
    let (start, end) = (world.left.fence("start"), world.left.fence("end"));
    let (buffer, seen) = (world.left.buffer(WORDS)?, world.left.buffer(WORDS)?);
    let capture = Capture::begin(&native)?;
    native.wait_external(start.library())?;
    set(capture.stream, &buffer, 3)?;
    native.record_external(end.library())?;
    let graph = capture.end()?;
    // Without the wait inside the graph, this would overwrite what the graph writes.
    beside.fill_after(LONG_DELAY, &buffer, 9, &[])?;
    beside.record(&start)?;
    beside.settle(patience())?;
    // The launch is submitted first, and is held like other work.
    let launch = queue.submit(&[line.at(1)], graph.launch(), &[line.signal_at(2)])?;
    check!(launch.is_held(), "launched before what it waits for");
    let copy = copying::<Equipped>(&buffer, &seen);
    beside.submit(&[line.at(2)], copy, &[line.signal_at(3)])?;
    check_error!(line.at(2).wait(SHORT), TimedOut);
    right.signal(&line, 1)?;
    line.at(2).wait(patience())?;
    check!(
        start.is_complete()? && end.is_complete()?,
        "the signal behind a launch came before the fences inside"
    );
    line.at(3).wait(patience())?;
    for (words, whose) in [(&seen, "the copy behind it"), (&buffer, "its buffer")] {
        filled::<Equipped>(words, 3, whose)?;
    }
    queue.idle(patience())?;
    beside.idle(patience())?;
    Ok(())
}

fn released(world: &World<Equipped>) -> Verdict {
    let (queue, native) = cuda_queue(world, "captured")?;
    let (gate, line) = (world.timeline("gate")?, world.timeline("line")?);
    for value in 1..=3 {
        queue.submit_empty(&[gate.at(1)], &[line.signal_at(value)])?;
    }
    let capture = Capture::begin(&native)?;
    gate.signal(1)?;
    check_error!(line.at(1).wait(SHORT), TimedOut);
    check_eq!(queue.held().count, 3);
    capture.end()?;
    line.at(3).wait(patience())?;
    queue.idle(patience())?;
    Ok(())
}
