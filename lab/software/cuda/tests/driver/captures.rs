//! Stream capture and graphs.

use std::ffi::c_void;
use std::os::fd::IntoRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use syncline_software_payload::{Kind, Semaphore};

use super::cuda::*;

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

fn begin(mode: u32) -> Handle {
    let captured = stream();
    ok(cuStreamBeginCapture_v2(captured, mode));
    captured
}

fn end(stream: Handle) -> u32 {
    let mut graph = 0;
    let code = cuStreamEndCapture(stream, &raw mut graph);
    assert_eq!(graph == 0, code != 0);
    code
}

/// The status of a capture, and its graph.
fn info(stream: Handle) -> (u32, Handle) {
    let (mut status, mut id, mut graph) = (9, 0, 0);
    ok(cuStreamGetCaptureInfo_v2(
        stream,
        &raw mut status,
        &raw mut id,
        &raw mut graph,
        null_mut(),
        null_mut(),
    ));
    assert_eq!(id == 0, status != 1);
    (status, graph)
}

#[test]
fn a_graph_does_its_work_at_each_launch() {
    let _context = Context::new();
    let (other, memory) = (stream(), Pinned::new(1));
    let (fork, join) = (event(), event());
    let captured = begin(THREAD_LOCAL);
    ok(cuEventRecord(fork, captured));
    ok(cuStreamWaitEvent(other, fork, 0));
    ok(cuMemsetD32Async(memory.address(), 5, 1, other));
    ok(cuEventRecord(join, other));
    ok(cuMemsetD32Async(memory.address() + 4, 6, 1, captured));
    ok(cuStreamWaitEvent(captured, join, 0));
    let (status, known) = info(other);
    assert_eq!(status, 1);
    let graph = made(|to| cuStreamEndCapture(captured, to));
    assert_eq!(graph, known);
    assert_eq!(info(captured).0, 0);
    // Nothing has happened yet, and the events of the graph have no position for the host.
    assert_eq!(memory.get(), 0);
    assert_eq!(cuEventQuery(join), 1);
    assert_eq!(cuStreamWaitEvent(other, join, 0), 1);
    let mut nodes = 0;
    ok(cuGraphGetNodes(graph, null_mut(), &raw mut nodes));
    assert_eq!(nodes, 2);
    let launched = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
    ok(cuGraphDestroy(graph));
    for _ in 0..2 {
        memory.set(0);
        ok(cuGraphLaunch(launched, other));
        ok(cuStreamSynchronize(other));
        assert_eq!(memory.get(), (6 << 32) | 5);
    }
    ok(cuGraphExecDestroy(launched));
    assert_eq!(cuGraphLaunch(launched, other), 1);
}

#[test]
fn each_launch_records_and_waits_for_external_events() {
    let _context = Context::new();
    let (gate, busy, launching) = (Pinned::new(1), stream(), stream());
    let (start, through) = (event(), event());
    assert_eq!(cuEventRecordWithFlags(through, launching, 1), 401);
    let captured = begin(THREAD_LOCAL);
    ok(cuStreamWaitEvent(captured, start, 1));
    ok(cuEventRecordWithFlags(through, captured, 1));
    let graph = made(|to| cuStreamEndCapture(captured, to));
    let graph = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
    ok(cuEventQuery(through));
    ok(cuStreamWaitValue64_v2(busy, gate.address(), 1, 0));
    ok(cuEventRecord(start, busy));
    ok(cuGraphLaunch(graph, launching));
    assert_eq!(cuEventQuery(through), 600);
    gate.set(1);
    ok(cuEventSynchronize(through));
    ok(cuEventQuery(start));
}

#[test]
fn what_a_capture_forbids_invalidates_it() {
    let _context = Context::new();
    let (free, place, recorded) = (stream(), event(), event());
    ok(cuEventRecord(recorded, free));
    let forbidden: [(u32, &dyn Fn(Handle) -> u32); 6] = [
        (900, &|captured| cuStreamQuery(captured)),
        (900, &|captured| cuStreamSynchronize(captured)),
        (905, &|captured| cuStreamWaitEvent(captured, recorded, 0)),
        (907, &|captured| {
            ok(cuEventRecord(place, captured));
            cuEventQuery(place)
        }),
        (906, &|captured| {
            ok(cuEventRecord(place, captured));
            cuStreamWaitEvent(0, place, 0)
        }),
        (900, &|_| cuEventQuery(recorded)),
    ];
    for (number, (code, call)) in forbidden.iter().enumerate() {
        let captured = begin(THREAD_LOCAL);
        assert_eq!(call(captured), *code, "call {number}");
        assert_eq!(info(captured).0, 2, "call {number}");
        assert_eq!(cuEventRecord(place, captured), 901);
        assert_eq!(end(captured), 901);
        assert_eq!(end(captured), 401);
        ok(cuEventRecord(recorded, captured));
        ok(cuEventSynchronize(recorded));
    }
}

#[test]
fn captures_do_not_merge_and_must_be_joined() {
    let _context = Context::new();
    let (left, right) = (begin(RELAXED), begin(RELAXED));
    let (place, other, memory) = (event(), stream(), Pinned::new(1));
    ok(cuEventRecord(place, left));
    assert_eq!(cuStreamWaitEvent(right, place, 0), 902);
    assert_eq!((end(left), end(right)), (901, 901));
    let captured = begin(RELAXED);
    ok(cuEventRecord(place, captured));
    ok(cuStreamWaitEvent(other, place, 0));
    ok(cuMemsetD32Async(memory.address(), 1, 1, other));
    assert_eq!(end(captured), 904);
    assert_eq!(info(other).0, 0);
    ok(cuStreamSynchronize(other));
    // A stream that has only joined cannot end a capture.
    let captured = begin(RELAXED);
    ok(cuEventRecord(place, captured));
    ok(cuStreamWaitEvent(other, place, 0));
    assert_eq!(end(other), 903);
    assert_eq!(end(captured), 901);
    assert_eq!(cuStreamBeginCapture_v2(0, RELAXED), 900);
}

#[test]
fn the_legacy_stream_does_not_meet_a_captured_blocking_stream() {
    let _context = Context::new();
    let blocking = made(|to| cuStreamCreate(to, 0));
    let memory = Pinned::new(1);
    ok(cuStreamBeginCapture_v2(blocking, THREAD_LOCAL));
    // A query has no effect.
    let mut status = 0;
    let asked = cuStreamGetCaptureInfo_v2(
        0,
        &raw mut status,
        null_mut(),
        null_mut(),
        null_mut(),
        null_mut(),
    );
    assert_eq!(asked, 906);
    assert_eq!(info(blocking).0, 1);
    assert_eq!(cuMemsetD32Async(memory.address(), 1, 1, 0), 906);
    assert_eq!(end(blocking), 901);
}

#[test]
fn modes_say_whose_calls_are_forbidden() {
    let context = Context::new();
    let recorded = event();
    ok(cuEventRecord(recorded, stream()));
    let elsewhere = || {
        std::thread::scope(|scope| {
            let ask = || {
                ok(cuCtxSetCurrent(context.0));
                cuEventQuery(recorded)
            };
            scope.spawn(ask).join().unwrap()
        })
    };
    ok(cuEventSynchronize(recorded));
    // The global mode would disturb other tests of this process, so it is tested in a process of
    // its own.
    let captured = begin(THREAD_LOCAL);
    ok(elsewhere());
    let mut mode = RELAXED;
    ok(cuThreadExchangeStreamCaptureMode(&raw mut mode));
    assert_eq!(mode, GLOBAL);
    ok(cuEventQuery(recorded));
    ok(cuThreadExchangeStreamCaptureMode(&raw mut mode));
    assert_eq!(mode, RELAXED);
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| end(captured)).join().unwrap();
        assert_eq!(ended, 908);
    });
    // It has ended the capture nevertheless.
    assert_eq!(end(captured), 401);
}

#[test]
fn a_capture_ends_with_its_context() {
    let context = Context::new();
    let captured = begin(THREAD_LOCAL);
    drop(context);
    let _context = Context::new();
    // A capture of this thread would forbid it.
    ok(cuEventQuery(event()));
    assert_eq!(end(captured), 709);
}

extern "C" fn destroy(counter: *mut c_void) {
    // SAFETY: the tests pass a counter that outlives the graphs.
    unsafe { &*counter.cast::<AtomicU64>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn an_event_keeps_no_graph() {
    let _context = Context::new();
    let destroyed = AtomicU64::new(0);
    let pointer = (&raw const destroyed).cast_mut().cast();
    let (place, captured) = (event(), begin(RELAXED));
    let graph = info(captured).1;
    let object = made(|to| cuUserObjectCreate(to, pointer, destroy, 1, 1));
    ok(cuGraphRetainUserObject(graph, object, 1, 1));
    // The event is a node of the graph, and has a position in it.
    ok(cuEventRecordWithFlags(place, captured, 1));
    ok(cuEventRecord(place, captured));
    ok(end(captured));
    ok(cuGraphDestroy(graph));
    assert_eq!(destroyed.load(Ordering::SeqCst), 1);
}

#[test]
fn a_graph_keeps_its_user_objects() {
    let _context = Context::new();
    let destroyed = AtomicU64::new(0);
    let pointer = (&raw const destroyed).cast_mut().cast();
    let captured = begin(RELAXED);
    let graph = info(captured).1;
    assert_eq!(cuUserObjectCreate(&mut 0, pointer, destroy, 1, 0), 1);
    let object = made(|to| cuUserObjectCreate(to, pointer, destroy, 1, 1));
    ok(cuGraphRetainUserObject(graph, object, 1, 1));
    ok(end(captured));
    let launched = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
    ok(cuGraphDestroy(graph));
    assert_eq!(destroyed.load(Ordering::SeqCst), 0);
    ok(cuGraphExecDestroy(launched));
    eventually(|| destroyed.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_fill_that_can_never_be_is_refused_in_a_capture() {
    let _context = Context::new();
    let memory = made(|to| cuMemAlloc_v2(to, 64));
    let captured = begin(THREAD_LOCAL);
    for (address, count) in [(memory + 2, 1), (memory, (1 << 62) + 16)] {
        assert_eq!(cuMemsetD32Async(address, 1, count, captured), 1);
    }
    // The capture goes on.
    ok(cuMemsetD32Async(memory, 1, 16, captured));
    ok(end(captured));
}

/// The nodes before the next node of a stream.
fn nodes(stream: Handle) -> Vec<Handle> {
    let (mut status, mut count, mut nodes) = (9, 9, std::ptr::null::<Handle>());
    ok(cuStreamGetCaptureInfo_v2(
        stream,
        &raw mut status,
        null_mut(),
        null_mut(),
        (&raw mut nodes).cast(),
        &raw mut count,
    ));
    assert_eq!(status, 1);
    // SAFETY: the driver has written so many handles.
    (0..count)
        .map(|at| unsafe { nodes.add(at).read() })
        .collect()
}

fn imported() -> (Semaphore, Handle) {
    let (payload, file) = Semaphore::create(Kind::Timeline, 0).unwrap();
    let semaphore = super::external::import(9, file.into_raw_fd()).unwrap();
    (payload, semaphore)
}

type SetSemaphore = fn(Handle, Handle, *const SemaphoreNode) -> u32;

fn set(call: SetSemaphore, graph: Handle, node: Handle, semaphore: Handle, to: u64) -> u32 {
    let node_params = SemaphoreNode {
        semaphores: &raw const semaphore,
        params: &value(to),
        count: 1,
    };
    call(graph, node, &raw const node_params)
}

#[test]
fn each_launch_has_the_values_of_its_call() {
    let _context = Context::new();
    let ((payload, semaphore), busy, gate) = (imported(), stream(), Pinned::new(1));
    let captured = begin(THREAD_LOCAL);
    assert_eq!(nodes(captured), []);
    ok(cuWaitExternalSemaphoresAsync(
        &semaphore,
        &value(0),
        1,
        captured,
    ));
    let [wait] = nodes(captured)[..] else {
        panic!("no node")
    };
    ok(cuSignalExternalSemaphoresAsync(
        &semaphore,
        &value(0),
        1,
        captured,
    ));
    let [signal] = nodes(captured)[..] else {
        panic!("no node")
    };
    let graph = made(|to| cuStreamEndCapture(captured, to));
    let mut known = [0; 2];
    ok(cuGraphGetNodes(graph, known.as_mut_ptr(), &mut 2));
    assert_eq!(known, [wait, signal]);
    let launched = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
    let waits: SetSemaphore =
        |graph, node, params| cuGraphExecExternalSemaphoresWaitNodeSetParams(graph, node, params);
    let signals: SetSemaphore =
        |graph, node, params| cuGraphExecExternalSemaphoresSignalNodeSetParams(graph, node, params);
    // Both are in flight, and the second change affects the second launch only.
    ok(cuStreamWaitValue64_v2(busy, gate.address(), 1, 0));
    for round in [1, 2] {
        ok(set(waits, launched, wait, semaphore, 10 * round - 1));
        ok(set(signals, launched, signal, semaphore, 10 * round));
        ok(cuGraphLaunch(launched, busy));
    }
    gate.set(1);
    payload.reach(9);
    eventually(|| payload.value() == 10);
    assert_eq!(cuStreamQuery(busy), 600);
    payload.reach(19);
    ok(cuStreamSynchronize(busy));
    assert_eq!(payload.value(), 20);
    // Wrong nodes, and a node of a graph that is gone.
    assert_eq!(set(signals, launched, wait, semaphore, 30), 1);
    assert_eq!(set(signals, launched, signal + 1, semaphore, 30), 1);
    assert_eq!(set(signals, launched, 0, semaphore, 30), 1);
    assert_eq!(
        cuGraphExecEventRecordNodeSetEvent(launched, signal, event()),
        1
    );
    let other = made(|to| cuGraphInstantiateWithFlags(to, made(|to| cuGraphCreate(to, 0)), 0));
    assert_eq!(set(signals, other, signal, semaphore, 30), 1);
    ok(cuGraphDestroy(graph));
    assert_eq!(set(signals, launched, signal, semaphore, 30), 1);
}

#[test]
fn each_launch_has_the_events_of_its_call() {
    let _context = Context::new();
    let (gate, busy, launching) = (Pinned::new(1), stream(), stream());
    let [start, other, first, second] = [(); 4].map(|()| event());
    let captured = begin(THREAD_LOCAL);
    ok(cuStreamWaitEvent(captured, other, 1));
    let [wait] = nodes(captured)[..] else {
        panic!("no node")
    };
    ok(cuEventRecordWithFlags(other, captured, 1));
    let [record] = nodes(captured)[..] else {
        panic!("no node")
    };
    let graph = made(|to| cuStreamEndCapture(captured, to));
    let launched = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
    ok(cuStreamWaitValue64_v2(busy, gate.address(), 1, 0));
    ok(cuEventRecord(start, busy));
    // The first launch waits for nothing, the second for the stream.
    ok(cuGraphExecEventRecordNodeSetEvent(launched, record, first));
    ok(cuGraphLaunch(launched, launching));
    ok(cuEventSynchronize(first));
    ok(cuGraphExecEventWaitNodeSetEvent(launched, wait, start));
    ok(cuGraphExecEventRecordNodeSetEvent(launched, record, second));
    ok(cuGraphLaunch(launched, launching));
    ok(cuEventQuery(first));
    assert_eq!(cuEventQuery(second), 600);
    gate.set(1);
    ok(cuEventSynchronize(second));
    ok(cuEventQuery(other));
}

#[test]
fn each_launch_has_the_words_of_its_call() {
    let context = Context::new();
    let (words, launching) = (Pinned::new(2), stream());
    let captured = begin(THREAD_LOCAL);
    ok(cuStreamWaitValue64_v2(captured, words.address(), 0, 0));
    let [wait] = nodes(captured)[..] else {
        panic!("no node")
    };
    ok(cuStreamWriteValue64_v2(captured, words.address() + 8, 0, 0));
    let [write] = nodes(captured)[..] else {
        panic!("no node")
    };
    let graph = made(|to| cuStreamEndCapture(captured, to));
    let launched = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
    let set = |node: Handle, operation: u64, word: u64, value: u64| {
        let op = MemoryOp {
            operation,
            address: words.address() + 8 * word,
            value,
            rest: [0; 3],
        };
        let params = MemoryNode {
            context: context.0,
            count: 1,
            ops: &raw const op,
            flags: 0,
        };
        cuGraphExecBatchMemOpNodeSetParams(launched, node, &raw const params)
    };
    for round in [1, 2] {
        ok(set(wait, 4, 0, round));
        ok(set(write, 5, 1, 10 * round));
        ok(cuGraphLaunch(launched, launching));
    }
    let second = || {
        // SAFETY: the second of two words that the host can access.
        unsafe { words.pointer.cast::<u64>().add(1).read_volatile() }
    };
    assert_eq!((second(), cuStreamQuery(launching)), (0, 600));
    words.set(1);
    eventually(|| second() == 10);
    assert_eq!(cuStreamQuery(launching), 600);
    words.set(2);
    ok(cuStreamSynchronize(launching));
    assert_eq!(second(), 20);
    // A wait stays a wait.
    assert_eq!(set(wait, 5, 0, 3), 1);
}
