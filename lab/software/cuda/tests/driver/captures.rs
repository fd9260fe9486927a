//! Stream capture and graphs.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cuda::*;

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
fn the_legacy_stream_is_not_asked_during_a_capture() {
    let _context = Context::new();
    let blocking = made(|to| cuStreamCreate(to, 0));
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
    ok(end(blocking));
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

/// The driver finds a node by its graph.
#[test]
fn a_node_is_not_changed_without_its_graph() {
    let _context = Context::new();
    let (place, captured) = (event(), begin(THREAD_LOCAL));
    ok(cuEventRecordWithFlags(place, captured, 1));
    let graph = made(|to| cuStreamEndCapture(captured, to));
    let node = made(|to| cuGraphGetNodes(graph, to, &mut 1));
    let launched = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
    let set = || cuGraphExecEventRecordNodeSetEvent(launched, node, place);
    ok(set());
    ok(cuGraphDestroy(graph));
    assert_eq!(set(), 1);
}
