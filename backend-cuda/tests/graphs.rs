//! Graph capture: fences that become places in a graph, and fences that every launch records or waits for.
#![allow(unsafe_code, reason = "captures streams, as an application does")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use common::{LIMIT, alone, open, trials};
use libtest_mimic::Arguments;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::trace::{Outcome, Trace};
use syncline_core::{Error, Fence, QueueKind, host};
use syncline_cuda::{Device, DeviceBuffer, Queue, Recorder, sys};

const SHORT: Duration = Duration::from_millis(20);
const WORDS: u64 = 1 << 10;
const THREAD_LOCAL: sys::CUstreamCaptureMode =
    sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: sys::CUstreamCaptureMode =
    sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
const GLOBAL: sys::CUstreamCaptureMode =
    sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL;

fn ok(result: sys::CUresult) {
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
}

struct Setup {
    device: Device,
    _alone: MutexGuard<'static, ()>,
}

impl Setup {
    fn new() -> Self {
        let alone = alone();
        let device = open().unwrap();
        // Whatever the driver does only once is done before anything is captured.
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

    fn queue(&self, label: &str) -> Queue {
        self.device.queue(QueueKind::Compute, label).unwrap()
    }

    /// Words on the device. (A graph that copies from host memory to host memory does so when it is launched.)
    fn memory(&self) -> DeviceBuffer {
        self.device.buffer(WORDS * 4).unwrap()
    }

    /// Words that the host reads too.
    fn words(&self) -> DeviceBuffer {
        self.device.host_buffer(WORDS * 4).unwrap()
    }

    /// The context is current until the end of the test's thread, as an application has it.
    fn make_current(&self) {
        // SAFETY: the context is alive as long as the device.
        ok(unsafe { sys::cuCtxSetCurrent(self.device.raw_context()) });
    }
}

/// A capture that begins now on the queue's stream.
struct Recording {
    stream: sys::CUstream,
}

impl Recording {
    fn begin(queue: &Queue, mode: sys::CUstreamCaptureMode) -> Self {
        let stream = queue.stream().raw();
        // SAFETY: a live stream.
        ok(unsafe { sys::cuStreamBeginCapture_v2(stream, mode) });
        Self { stream }
    }

    fn try_end(self) -> Result<Graph, sys::CUresult> {
        let mut graph = null_mut();
        // SAFETY: this thread began it; writes one handle.
        let ended = unsafe { sys::cuStreamEndCapture(self.stream, &raw mut graph) };
        if ended != sys::CUresult::CUDA_SUCCESS {
            return Err(ended);
        }
        let mut executable = null_mut();
        // SAFETY: the graph has just been captured; writes one handle.
        ok(unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) });
        // SAFETY: nothing uses the graph itself any more.
        ok(unsafe { sys::cuGraphDestroy(graph) });
        Ok(Graph(executable))
    }

    fn end(self) -> Graph {
        self.try_end().expect("the capture is whole")
    }

    /// How many nodes were captured.
    fn end_counting(self) -> usize {
        let (mut graph, mut nodes) = (null_mut(), 0);
        // SAFETY: this thread began it, and nobody else has the graph; writes one handle and one number.
        unsafe {
            ok(sys::cuStreamEndCapture(self.stream, &raw mut graph));
            ok(sys::cuGraphGetNodes(graph, null_mut(), &raw mut nodes));
            ok(sys::cuGraphDestroy(graph));
        }
        nodes
    }
}

struct Graph(sys::CUgraphExec);

// SAFETY: graphs may be used from any thread, one at a time.
unsafe impl Send for Graph {}
// SAFETY: as above; the tests launch from one thread.
unsafe impl Sync for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: submissions keep it until they have finished.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

fn launch(graph: &Arc<Graph>) -> impl FnOnce(&mut Recorder) -> syncline_core::Result<()> + use<> {
    let graph = graph.clone();
    move |r| {
        // SAFETY: kept; what it uses outlives the test's waits.
        unsafe { r.launch_graph(graph.0) }?;
        r.keep(graph);
        Ok(())
    }
}

fn set(stream: sys::CUstream, buffer: &DeviceBuffer, value: u32) {
    // SAFETY: that many words, alive until the test ends.
    ok(unsafe { sys::cuMemsetD32Async(buffer.pointer(), value, WORDS as usize, stream) });
}

fn copy(stream: sys::CUstream, from: &DeviceBuffer, to: &DeviceBuffer) {
    // SAFETY: as for `set`.
    ok(unsafe {
        sys::cuMemcpyDtoDAsync_v2(to.pointer(), from.pointer(), WORDS as usize * 4, stream)
    });
}

/// A place on a stream where the device waits for the host, but no more than 20 seconds.
#[derive(Default)]
struct Gate(AtomicBool);

impl Gate {
    fn closed() -> OpensOnDrop {
        OpensOnDrop(Arc::default())
    }
}

struct OpensOnDrop(Arc<Gate>);

impl OpensOnDrop {
    fn put_into(&self, stream: sys::CUstream) {
        unsafe extern "C" fn wait(gate: *mut c_void) {
            // SAFETY: the test keeps it until the stream is through.
            let gate = unsafe { &*gate.cast::<Gate>() };
            let start = Instant::now();
            while !gate.0.load(Ordering::SeqCst) && start.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        let gate = Arc::as_ptr(&self.0).cast_mut().cast::<c_void>();
        // SAFETY: the gate outlives the work; the function calls no driver.
        ok(unsafe { sys::cuLaunchHostFunc(stream, Some(wait), gate) });
    }

    fn open(&self) {
        self.0.0.store(true, Ordering::SeqCst);
    }

    fn close(&self) {
        self.0.0.store(false, Ordering::SeqCst);
    }
}

impl Drop for OpensOnDrop {
    fn drop(&mut self) {
        self.open();
    }
}

fn is_captured<T: std::fmt::Debug>(result: &syncline_core::Result<T>) -> bool {
    matches!(result, Err(Error::Captured { fence }) if fence.label() == "place")
}

fn a_fence_of_a_capture_has_no_position() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let words = setup.words();
    let fence = setup.device.fence("place");
    let (elsewhere, host) = (setup.queue("elsewhere"), host::Device::new());
    let worker = host.queue(QueueKind::Compute, "worker").unwrap();
    for mode in [THREAD_LOCAL, GLOBAL] {
        let recording = Recording::begin(&queue, mode);
        set(recording.stream, &words, 1);
        queue.record(&fence).unwrap();
        for _ in 0..2 {
            let asked = fence.is_complete();
            assert!(is_captured(&asked), "{asked:?}");
            let waited = fence.wait(Duration::ZERO);
            assert!(is_captured(&waited), "{waited:?}");
            let point = fence.point();
            assert!(is_captured(&point), "{point:?}");
            let queued = worker.wait(&fence);
            assert!(is_captured(&queued), "{queued:?}");
            let elapsed = setup.device.timed_fence("place");
            queue.record(&elapsed).unwrap();
            let elapsed = elapsed.elapsed_since(&elapsed);
            assert!(is_captured(&elapsed), "{elapsed:?}");
        }
        // Others go on meanwhile, and are asked for.
        elsewhere.submit(&[], |_| Ok(()), &[]).unwrap();
        elsewhere.idle(LIMIT).unwrap();
        let graph = Arc::new(recording.end());
        // After the capture it is no position either, and no place any more.
        assert!(is_captured(&fence.is_complete()));
        let ended = elsewhere.wait(&fence);
        assert!(
            matches!(ended, Err(Error::CaptureEnded { .. })),
            "{ended:?}"
        );
        queue.submit(&[], launch(&graph), &[]).unwrap();
        queue.record(&fence).unwrap();
        fence.wait(LIMIT).unwrap();
        elsewhere.wait(&fence).unwrap();
        elsewhere.idle(LIMIT).unwrap();
    }
}

fn a_wait_in_the_capture_is_an_edge() {
    let setup = Setup::new();
    setup.make_current();
    let (first, second) = (setup.queue("first"), setup.queue("second"));
    let (made, taken) = (setup.memory(), setup.memory());
    let (fork, join) = (setup.device.fence("fork"), setup.device.fence("join"));
    let gate = Gate::closed();
    gate.open();
    let recording = Recording::begin(&first, THREAD_LOCAL);
    gate.put_into(recording.stream);
    set(recording.stream, &made, 7);
    first.record(&fork).unwrap();
    second.wait(&fork).unwrap();
    copy(second.stream().raw(), &made, &taken);
    second.record(&join).unwrap();
    // Recorded again: the edge that is there stays.
    first.record(&fork).unwrap();
    first.wait(&join).unwrap();
    let graph = Arc::new(recording.end());
    for round in 0..3 {
        for buffer in [&made, &taken] {
            buffer.write_words(&vec![round; WORDS as usize]).unwrap();
        }
        gate.close();
        let done = setup.device.timeline("done").unwrap();
        first
            .submit(&[], launch(&graph), &[done.signal_at(1)])
            .unwrap();
        // Were there no edge, the copy would be through by now.
        assert!(done.at(1).wait(SHORT).unwrap_err().is_timeout());
        assert_eq!(taken.read_words().unwrap()[0], round);
        gate.open();
        done.at(1).wait(LIMIT).unwrap();
        assert!(taken.read_words().unwrap().iter().all(|&word| word == 7));
    }
    // The second stream is its own again.
    second.submit(&[], |_| Ok(()), &[]).unwrap();
    second.idle(LIMIT).unwrap();
    first.idle(LIMIT).unwrap();
}

/// Reads without the driver, which would wait for the device.
trait ReadNow {
    fn read_words_now(&self) -> Vec<u32>;
}

impl ReadNow for DeviceBuffer {
    fn read_words_now(&self) -> Vec<u32> {
        let words = self.as_words().unwrap();
        words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect()
    }
}

fn timelines_have_no_place_in_a_capture() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let timeline = setup.device.timeline("timeline").unwrap();
    let (outside, never) = (setup.device.fence("outside"), setup.device.fence("never"));
    let elsewhere = setup.queue("elsewhere");
    elsewhere.record(&outside).unwrap();
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    let capturing = |result: syncline_core::Result<()>| {
        assert!(matches!(result, Err(Error::Capturing { .. })), "{result:?}");
        println!("{}", result.unwrap_err());
    };
    let submit = |waits: &[_], signals: &[_]| queue.submit(waits, |_| Ok(()), signals).map(|_| ());
    capturing(submit(&[], &[]));
    capturing(submit(&[timeline.at(1)], &[]));
    capturing(submit(&[], &[timeline.signal_at(1)]));
    capturing(queue.wait(&outside));
    let mut claim = timeline.claim(1, 0).unwrap();
    // SAFETY: the claim is the timeline's, the stream alive.
    capturing(unsafe {
        setup
            .device
            .submit_claimed(&timeline, &mut claim, recording.stream)
    });
    drop(claim);
    // Nothing to wait for adds nothing.
    queue.wait(&never).unwrap();
    assert_eq!(queue.position().value(), 0);
    drop(recording.end());
    queue
        .submit(&[], |_| Ok(()), &[timeline.signal_at(1)])
        .unwrap();
    timeline.at(1).wait(LIMIT).unwrap();
}

fn another_captures_fence_is_refused_and_harms_neither() {
    let setup = Setup::new();
    setup.make_current();
    let (first, second) = (setup.queue("first"), setup.queue("second"));
    let place = setup.device.fence("place");
    // Relaxed, because one of them ends, and its graph is made, while the other goes on.
    let one = Recording::begin(&first, RELAXED);
    let two = Recording::begin(&second, RELAXED);
    first.record(&place).unwrap();
    let refused = second.wait(&place);
    assert!(
        matches!(refused, Err(Error::Capturing { .. })),
        "{refused:?}"
    );
    drop(two.end());
    // A capture of the same stream later is another one.
    drop(one.end());
    let again = Recording::begin(&first, THREAD_LOCAL);
    let ended = first.wait(&place);
    assert!(
        matches!(ended, Err(Error::CaptureEnded { .. })),
        "{ended:?}"
    );
    drop(again.end());
}

fn an_invalidated_capture_is_a_typed_error() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let place = setup.device.fence("place");
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    queue.record(&place).unwrap();
    // What an application must not do.
    // SAFETY: a live stream.
    let broken = unsafe { sys::cuStreamSynchronize(recording.stream) };
    assert_ne!(broken, sys::CUresult::CUDA_SUCCESS);
    let fence = setup.device.fence("too late");
    for refused in [
        queue.record(&fence),
        queue.wait(&fence),
        queue.record_external(&fence),
        queue.wait_external(&fence),
    ] {
        assert!(
            matches!(refused, Err(Error::Capturing { .. })),
            "{refused:?}"
        );
    }
    let joined = setup.queue("joins").wait(&place);
    assert!(
        matches!(joined, Err(Error::CaptureEnded { .. })),
        "{joined:?}"
    );
    assert!(recording.try_end().is_err());
    queue.record(&fence).unwrap();
    fence.wait(LIMIT).unwrap();
}

fn what_is_released_during_a_capture_goes_after_it() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let (gate, done) = (
        setup.device.timeline("gate").unwrap(),
        setup.device.timeline("done").unwrap(),
    );
    let words = setup.words();
    for value in 1..=3 {
        let filled = words.clone();
        let work = move |r: &mut Recorder| r.memset_d32(&filled, value as u32);
        let sent = queue
            .submit(&[gate.at(1)], work, &[done.signal_at(value)])
            .unwrap();
        assert!(sent.is_held());
    }
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    // Released here, while nothing can go.
    gate.signal(1).unwrap();
    assert!(done.at(1).wait(SHORT).unwrap_err().is_timeout());
    assert_eq!(queue.held().count, 3);
    drop(recording.end());
    done.at(3).wait(LIMIT).unwrap();
    queue.idle(LIMIT).unwrap();
    assert_eq!(words.read_words().unwrap()[0], 3);
}

fn each_launch_records_an_external_fence() {
    let setup = Setup::new();
    setup.make_current();
    let (queue, other) = (setup.queue("captured"), setup.queue("other"));
    let host = host::Device::new();
    let worker = host.queue(QueueKind::Compute, "worker").unwrap();
    let (fence, words) = (setup.device.fence("through"), setup.words());
    let unsupported = queue.record_external(&fence);
    assert!(
        matches!(unsupported, Err(Error::Unsupported { .. })),
        "{unsupported:?}"
    );
    let gates = [Gate::closed(), Gate::closed()];
    let graphs = gates.each_ref().map(|gate| {
        let recording = Recording::begin(&queue, THREAD_LOCAL);
        gate.put_into(recording.stream);
        set(recording.stream, &words, 5);
        queue.record_external(&fence).unwrap();
        // It is no place in the graph, and so has no edges.
        let refused = queue.record(&fence);
        assert!(
            matches!(refused, Err(Error::Capturing { .. })),
            "{refused:?}"
        );
        let refused = queue.wait(&fence);
        assert!(
            matches!(refused, Err(Error::Capturing { .. })),
            "{refused:?}"
        );
        assert!(fence.is_complete().unwrap(), "no launch has recorded it");
        Arc::new(recording.end())
    });
    fence.wait(Duration::ZERO).unwrap();
    for _ in 0..3 {
        gates.iter().for_each(OpensOnDrop::close);
        queue.submit(&[], launch(&graphs[0]), &[]).unwrap();
        assert!(!fence.is_complete().unwrap());
        let early = fence.point().unwrap();
        let waits = [other.clone(), setup.queue("another")];
        for waiting in &waits {
            waiting.wait(&fence).unwrap();
        }
        worker.wait(&fence).unwrap();
        assert!(fence.wait(SHORT).unwrap_err().is_timeout());
        assert!(!waits[0].position().is_reached().unwrap());
        // A second launch records it again; what waits already is not moved.
        queue.submit(&[], launch(&graphs[1]), &[]).unwrap();
        gates[0].open();
        early.point().wait(LIMIT).unwrap();
        for waiting in &waits {
            waiting.idle(LIMIT).unwrap();
        }
        worker.idle(LIMIT).unwrap();
        assert_eq!(words.read_words_now()[0], 5);
        assert!(!fence.is_complete().unwrap());
        gates[1].open();
        fence.wait(LIMIT).unwrap();
        assert!(fence.is_complete().unwrap());
        queue.idle(LIMIT).unwrap();
    }
}

fn each_launch_waits_for_an_external_fence() {
    let setup = Setup::new();
    setup.make_current();
    let (queue, producer) = (setup.queue("captured"), setup.queue("producer"));
    let fence = setup.device.fence("produced");
    let (from, to) = (setup.memory(), setup.memory());
    let gate = Gate::closed();
    // Recorded before it was known to any graph: that record counts.
    let record = |value: u32| {
        gate.close();
        let filled = from.clone();
        let latch = OpensOnDrop(gate.0.clone());
        let work = move |r: &mut Recorder| {
            latch.put_into(r.stream());
            std::mem::forget(latch);
            r.memset_d32(&filled, value)
        };
        producer.submit(&[], work, &[]).unwrap();
        producer.record(&fence).unwrap();
        assert!(!fence.is_complete().unwrap());
    };
    record(10);
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    queue.wait_external(&fence).unwrap();
    copy(recording.stream, &from, &to);
    let graph = Arc::new(recording.end());
    for value in [10, 20, 30] {
        if value > 10 {
            record(value);
        }
        let done = setup.device.timeline("done").unwrap();
        queue
            .submit(&[], launch(&graph), &[done.signal_at(1)])
            .unwrap();
        assert!(done.at(1).wait(SHORT).unwrap_err().is_timeout());
        gate.open();
        done.at(1).wait(LIMIT).unwrap();
        assert_eq!(to.read_words().unwrap()[0], value);
        fence.wait(LIMIT).unwrap();
        // Again, with nothing recorded since: nothing to wait for.
        queue.submit(&[], launch(&graph), &[]).unwrap();
        queue.idle(LIMIT).unwrap();
    }
    producer.idle(LIMIT).unwrap();
}

fn a_held_record_of_an_external_fence_is_not_complete() {
    let setup = Setup::new();
    setup.make_current();
    let (queue, producer) = (setup.queue("captured"), setup.queue("producer"));
    let (fence, gate) = (
        setup.device.fence("produced"),
        setup.device.timeline("gate").unwrap(),
    );
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    queue.wait_external(&fence).unwrap();
    let graph = Arc::new(recording.end());
    producer.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
    producer.record(&fence).unwrap();
    // The driver's event knows of nothing yet.
    assert!(!fence.is_complete().unwrap());
    let point = fence.point().unwrap();
    let sent = queue.submit(&[point.point()], launch(&graph), &[]).unwrap();
    assert!(sent.is_held());
    let ready = queue.position().keep();
    assert!(ready.point().wait(SHORT).unwrap_err().is_timeout());
    gate.signal(1).unwrap();
    ready.point().wait(LIMIT).unwrap();
    fence.wait(LIMIT).unwrap();
    queue.idle(LIMIT).unwrap();
}

fn graphs_keep_what_they_need_and_no_longer() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    for _ in 0..500 {
        let fence = setup.device.fence("short-lived");
        let recording = Recording::begin(&queue, THREAD_LOCAL);
        queue.wait_external(&fence).unwrap();
        queue.record_external(&fence).unwrap();
        let graph = Arc::new(recording.end());
        drop(fence);
        queue.submit(&[], launch(&graph), &[]).unwrap();
    }
    queue.idle(LIMIT).unwrap();
    // And one that outlives its device.
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    let fence = setup.device.fence("outlived");
    queue.record_external(&fence).unwrap();
    let graph = recording.end();
    drop((fence, queue));
    let Setup { device, _alone } = setup;
    drop(device);
    drop(graph);
}

fn housekeeping_harms_no_global_capture() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let module = || setup.device.module(include_str!("kernels.ptx")).unwrap();
    let words = setup.memory();
    let mut kept = Some((setup.memory(), setup.words(), module()));
    for elsewhere in [false, true] {
        let recording = Recording::begin(&queue, GLOBAL);
        set(recording.stream, &words, 1);
        let gone = kept.take();
        let housekeeping = || {
            drop(gone);
            let made = (setup.memory(), setup.words(), module());
            made.0.write_words(&[7; 4]).unwrap();
            assert_eq!(made.0.read_words().unwrap()[..4], [7; 4]);
            made.2.function(c"delay").unwrap();
            let other = setup.queue("made meanwhile");
            let (start, end) = (
                setup.device.timed_fence("start"),
                setup.device.timed_fence("end"),
            );
            other.record(&start).unwrap();
            other.record(&end).unwrap();
            end.wait(LIMIT).unwrap();
            end.elapsed_since(&start).unwrap();
            drop((start, end, other));
            made
        };
        kept = Some(if elsewhere {
            std::thread::scope(|scope| scope.spawn(housekeeping).join().unwrap())
        } else {
            housekeeping()
        });
        let graph = Arc::new(recording.end());
        queue.submit(&[], launch(&graph), &[]).unwrap();
        queue.idle(LIMIT).unwrap();
    }
}

fn the_legacy_stream_cannot_join_a_capture() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    // SAFETY: the legacy default stream is always there.
    let legacy = unsafe { setup.device.adopt_raw_stream(null_mut(), None, "legacy") }.unwrap();
    let place = setup.device.fence("place");
    for mode in [THREAD_LOCAL, GLOBAL] {
        let recording = Recording::begin(&queue, mode);
        queue.record(&place).unwrap();
        let refused = legacy.wait(&place);
        assert!(
            matches!(refused, Err(Error::Capturing { .. })),
            "{refused:?}"
        );
        drop(recording.end());
    }
    legacy.submit(&[], |_| Ok(()), &[]).unwrap();
    legacy.idle(LIMIT).unwrap();
}

fn waits_for_a_graph_fence_do_not_wait_for_each_other() {
    let setup = Setup::new();
    setup.make_current();
    let (queue, other) = (setup.queue("captured"), setup.queue("other"));
    let fence = setup.device.fence("again and again");
    let gate = Gate::closed();
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    gate.put_into(recording.stream);
    queue.record_external(&fence).unwrap();
    let graph = Arc::new(recording.end());
    for _ in 0..3 {
        gate.close();
        queue.submit(&[], launch(&graph), &[]).unwrap();
        let early = fence.point().unwrap();
        assert!(!early.point().is_reached().unwrap());
        // Recorded again where nothing is in the way: complete at once, although the launch is not through.
        other.record(&fence).unwrap();
        other.idle(LIMIT).unwrap();
        let (slow, latch) = (setup.queue("slow"), setup.device.timeline("latch").unwrap());
        slow.submit(&[latch.at(1)], |_| Ok(()), &[]).unwrap();
        slow.record(&fence).unwrap();
        let late = fence.point().unwrap();
        assert!(!late.point().is_reached().unwrap());
        latch.signal(1).unwrap();
        late.point().wait(Duration::from_secs(2)).unwrap();
        assert!(!early.point().is_reached().unwrap());
        gate.open();
        early.point().wait(LIMIT).unwrap();
        queue.idle(LIMIT).unwrap();
        slow.idle(LIMIT).unwrap();
    }
}

/// Nothing of ours is in it either: no event, and no time of a trace.
fn a_capture_that_work_leaves_open_is_refused() {
    let setup = Setup::new();
    setup.make_current();
    let words = setup.memory();
    for traced in [false, true] {
        let queue = setup.queue("captured by work");
        let done = setup.device.timeline("done").unwrap();
        let trace = Trace::new();
        if traced {
            trace.follow(&queue).unwrap();
        }
        let begun = |r: &mut Recorder| {
            // SAFETY: a live stream.
            ok(unsafe { sys::cuStreamBeginCapture_v2(r.stream(), RELAXED) });
            Ok(())
        };
        let refused = queue.submit(&[], begun, &[done.signal_at(1)]).map(|_| ());
        assert!(
            matches!(refused, Err(Error::Capturing { .. })),
            "{refused:?}"
        );
        let stream = queue.stream().raw();
        set(stream, &words, 3);
        let nodes = Recording { stream }.end_counting();
        assert_eq!(nodes, 1, "traced: {traced}");
        queue.submit(&[], |_| Ok(()), &[done.signal_at(1)]).unwrap();
        done.at(1).wait(LIMIT).unwrap();
        queue.idle(LIMIT).unwrap();
        let recording = trace.finish(LIMIT);
        let recorded: Vec<_> = recording
            .tracks
            .iter()
            .flat_map(|track| &track.submissions)
            .map(|one| &one.outcome)
            .collect();
        assert!(
            recorded.iter().all(|one| **one == Outcome::Finished),
            "{recorded:?}"
        );
        assert_eq!(recorded.len(), usize::from(traced));
    }
}

fn no_submission_gets_into_a_capture_that_begins() {
    const ROUNDS: usize = 300;
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured now and then");
    let (words, ended) = (setup.words(), AtomicBool::new(false));
    let sent = std::thread::scope(|scope| {
        let submitter = scope.spawn(|| {
            let mut sent = 0_u32;
            while !ended.load(Ordering::SeqCst) {
                let filled = words.clone();
                let work = move |r: &mut Recorder| r.memset_d32(&filled, 1);
                match queue.submit(&[], work, &[]) {
                    Ok(_) => sent += 1,
                    Err(Error::Capturing { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(sent)
        });
        for _ in 0..ROUNDS {
            let guard = queue.stream();
            let stream = guard.raw();
            // SAFETY: a live stream.
            ok(unsafe { sys::cuStreamBeginCapture_v2(stream, RELAXED) });
            drop(guard);
            std::thread::sleep(Duration::from_micros(50));
            let _guard = queue.stream();
            let nodes = Recording { stream }.end_counting();
            if nodes > 0 {
                ended.store(true, Ordering::SeqCst);
                panic!("{nodes} nodes of a submission are in a capture");
            }
        }
        ended.store(true, Ordering::SeqCst);
        submitter.join().unwrap()
    });
    assert!(sent.unwrap() > 0);
    queue.idle(LIMIT).unwrap();
}

fn a_queue_may_go_before_its_capture_ends() {
    let setup = Setup::new();
    setup.make_current();
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let device = Device::adopt(&context).unwrap();
    let (queue, joins) = (
        device.adopt_stream(&stream, "captured").unwrap(),
        device.queue(QueueKind::Compute, "joins").unwrap(),
    );
    let (place, back) = (device.fence("place"), device.fence("back"));
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    queue.record(&place).unwrap();
    drop(queue);
    joins.wait(&place).unwrap();
    joins.record(&back).unwrap();
    let again = device.adopt_stream(&stream, "captured").unwrap();
    again.wait(&back).unwrap();
    drop(recording.end());
}

fn a_timed_fence_stays_timed_and_one_never_recorded_stays_so() {
    let setup = Setup::new();
    setup.make_current();
    let (queue, other) = (setup.queue("captured"), setup.queue("other"));
    let (timed, never) = (
        setup.device.timed_fence("timed"),
        setup.device.fence("never"),
    );
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    for refused in [queue.record_external(&timed), queue.wait_external(&timed)] {
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
    queue.wait_external(&never).unwrap();
    assert!(!never.is_recorded());
    // F1, as before the graph knew of it.
    queue.wait(&never).unwrap();
    drop(recording.end());
    other.record(&timed).unwrap();
    timed.wait(LIMIT).unwrap();
    assert_eq!(timed.elapsed_since(&timed).unwrap(), 0);
    other.record(&never).unwrap();
    assert!(never.is_recorded());
    never.wait(LIMIT).unwrap();
}

fn an_event_that_cannot_be_asked_fails_its_own_timeline() {
    let setup = Setup::new();
    setup.make_current();
    let (left, right) = (setup.queue("left"), setup.queue("right"));
    let (broken, whole) = (
        setup.device.timeline("broken").unwrap(),
        setup.device.timeline("whole").unwrap(),
    );
    let gates = [Gate::closed(), Gate::closed()];
    for (queue, timeline, gate) in [(&left, &broken, &gates[0]), (&right, &whole, &gates[1])] {
        gate.put_into(queue.stream().raw());
        queue
            .submit(&[], |_| Ok(()), &[timeline.signal_at(1)])
            .unwrap();
    }
    let event = setup.device.event(broken.at(1)).unwrap().unwrap();
    std::thread::scope(|scope| {
        let waits = [&broken, &whole].map(|line| scope.spawn(|| line.at(1).wait(LIMIT)));
        std::thread::sleep(SHORT);
        // What an application must not do with it: recorded into a capture, it cannot be asked any more.
        let captured = setup.queue("captured");
        let recording = Recording::begin(&captured, RELAXED);
        // SAFETY: a live event and stream.
        ok(unsafe { sys::cuEventRecord(event.raw(), recording.stream) });
        let [failed, fine] = waits;
        let error = failed.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Failed { .. }), "{error:?}");
        let _ = recording.try_end();
        gates.iter().for_each(OpensOnDrop::open);
        fine.join().unwrap().unwrap();
    });
}

fn another_devices_fence_is_refused() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let other = open().unwrap();
    let fences: [Fence; 2] = [other.fence("another's"), {
        let host = host::Device::new();
        host.import_descriptor(None, "done").unwrap()
    }];
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    for result in [
        queue.record(&fences[0]),
        queue.record_external(&fences[0]),
        queue.wait_external(&fences[0]),
    ] {
        assert!(
            matches!(result, Err(Error::WrongDevice { .. })),
            "{result:?}"
        );
    }
    for result in [
        queue.record(&fences[1]),
        queue.record_external(&fences[1]),
        queue.wait_external(&fences[1]),
    ] {
        assert!(
            matches!(result, Err(Error::ForeignFence { .. })),
            "{result:?}"
        );
    }
    drop(recording.end());
}

fn main() -> std::process::ExitCode {
    let trials = common::trials_on_a_gpu(trials![
        a_fence_of_a_capture_has_no_position,
        a_wait_in_the_capture_is_an_edge,
        timelines_have_no_place_in_a_capture,
        another_captures_fence_is_refused_and_harms_neither,
        an_invalidated_capture_is_a_typed_error,
        what_is_released_during_a_capture_goes_after_it,
        each_launch_records_an_external_fence,
        each_launch_waits_for_an_external_fence,
        a_held_record_of_an_external_fence_is_not_complete,
        graphs_keep_what_they_need_and_no_longer,
        another_devices_fence_is_refused,
        housekeeping_harms_no_global_capture,
        the_legacy_stream_cannot_join_a_capture,
        waits_for_a_graph_fence_do_not_wait_for_each_other,
        a_capture_that_work_leaves_open_is_refused,
        no_submission_gets_into_a_capture_that_begins,
        a_queue_may_go_before_its_capture_ends,
        a_timed_fence_stays_timed_and_one_never_recorded_stays_so,
        an_event_that_cannot_be_asked_fails_its_own_timeline,
    ]);
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
