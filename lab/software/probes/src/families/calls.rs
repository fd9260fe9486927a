//! Calls in several situations: after a fault, during a capture, with a context that is gone.

use super::capture::{MODES, begin, status_and_end};
use super::external_memory::import_fd;
use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use crate::vulkan::*;

pub(crate) fn list(all: &mut Probes) {
    for calls in [COMMON, AFTER_FAULT] {
        all.each("fault.then", calls, |call| answer(call(faulted())));
    }
    for calls in [COMMON, CAPTURE] {
        all.each("capture.unsafe.global", calls, |call| from_threads(0, call));
    }
    for (mode, number) in &MODES[1..] {
        all.each(&format!("capture.unsafe.{mode}"), EACH_MODE, |call| {
            from_threads(*number, call);
        });
    }
    all.each("capture.during", SPOILING, |call| {
        let it = prepare(0);
        answer((call(it), status_and_end(it.stream)));
    });
    all.each("context.after_destroy", GONE, |call| {
        // First the primary context: in the other order an H200 returns 709 for five calls.
        let primary = primary();
        let other = another_context();
        let objects = Objects::new();
        current(primary);
        check(ctx_destroy(other));
        answer(call(objects));
    });
    all.each("context.after_release", GONE, |call| {
        let objects = Objects::new();
        check(primary_release(0));
        answer(call(objects));
    });
}

type Call = fn(Objects) -> Code;

/// What the calls are about.
#[derive(Clone, Copy)]
struct Objects {
    /// Idle.
    stream: Handle,
    /// Never recorded.
    fresh: Handle,
    complete: Handle,
    /// Complete, with a time.
    timed: Handle,
    memory: u64,
    words: Words,
    module: Handle,
    nop: Handle,
    graph: Handle,
    exec: Handle,
}

impl Objects {
    fn new() -> Self {
        let (module, (graph, exec)) = (module(), memset_graph());
        let new = Self {
            stream: stream(),
            fresh: event(NO_TIMING),
            complete: event(NO_TIMING),
            timed: event(0),
            memory: alloc(4096),
            words: Words::new(),
            module,
            nop: kernel_of(module, c"nop"),
            graph,
            exec,
        };
        record(new.complete, new.stream);
        record(new.timed, new.stream);
        check(stream_synchronize(new.stream));
        new
    }
}

/// Objects of a context in which a kernel has faulted.
fn faulted() -> Objects {
    let objects = Objects::new();
    fault();
    if ctx_synchronize() == 0 {
        stop("not asked: no fault");
    }
    objects
}

const COMMON: Table<Call> = &[
    ("mem_alloc", |_| mem_alloc(&mut 0, 64)),
    ("mem_free", |it| mem_free(it.memory)),
    ("mem_host_alloc", |_| mem_host_alloc(&mut 0, 64, 3)),
    ("mem_free_host", |it| mem_free_host(it.words.host)),
    ("event_create", |_| event_create(&mut 0, 2)),
    ("event_record", |it| event_record(it.fresh, it.stream)),
    ("stream_create", |_| stream_create(&mut 0, 1)),
    ("stream_destroy", |it| stream_destroy(it.stream)),
    ("stream_query", |it| stream_query(it.stream)),
    ("stream_synchronize", |it| stream_synchronize(it.stream)),
    ("memcpy_dtoh", |it| memcpy_dtoh(it.words.host, it.memory, 8)),
    ("memcpy_htod", |it| memcpy_htod(it.memory, it.words.host, 8)),
    ("ctx_synchronize", |_| ctx_synchronize()),
    ("ctx_create", |_| ctx_create(&mut 0, 0, 0)),
    ("primary_retain", |_| primary_retain(&mut 0, 0)),
    ("graph_create", |_| graph_create(&mut 0, 0)),
    ("graph_instantiate", |it| {
        graph_instantiate(&mut 0, it.graph, 0)
    }),
    ("graph_launch", |it| graph_launch(it.exec, it.stream)),
    ("graph_exec_destroy", |it| graph_exec_destroy(it.exec)),
];

const AFTER_FAULT: Table<Call> = &[
    ("primary_release", |_| primary_release(0)),
    ("primary_reset", |_| primary_reset(0)),
    ("ctx_get_device", |_| ctx_get_device(&mut 0)),
    ("ctx_get_current", |_| ctx_get_current(&mut 0)),
    ("ctx_set_current", |_| ctx_set_current(primary())),
    ("thread_exchange", |_| thread_exchange(&mut 2)),
    ("event_destroy", |it| event_destroy(it.complete)),
    ("event_query_complete", |it| event_query(it.complete)),
    ("event_elapsed_time", |it| elapsed(it.timed, it.timed)),
    ("stream_wait_event", |it| wait_for(it.stream, it.complete)),
    ("stream_begin_capture", |it| {
        stream_begin_capture(it.stream, 2)
    }),
    ("memset_d32_async", |it| fill(it.memory, it.stream)),
    ("module_load_data", |_| load_module()),
    ("launch_kernel", |it| launch(it.nop, it.stream, &[])),
    ("stream_write_value64", |it| {
        write_value64(it.stream, it.words.at(0), 0, 0)
    }),
    ("import_semaphore_closed", |_| import(TIMELINE_FD, -1).0),
    ("import_memory_closed", |_| import_fd(-1, 4096, 0).0),
];

/// Calls that a capture in another mode than relaxed can forbid, beside the common ones.
const CAPTURE: Table<Call> = &[
    ("event_destroy", |it| event_destroy(it.fresh)),
    ("event_query", |it| event_query(it.timed)),
    ("event_synchronize", |it| event_synchronize(it.timed)),
    ("memset", |it| fill(it.memory, it.stream)),
    ("write_value", |it| {
        write_value64(it.stream, it.words.at(0), 1, 0)
    }),
    ("module_load", |_| load_module()),
    ("device_pointer", |it| {
        device_pointer(&mut 0, it.words.host, 0)
    }),
    ("host_register", |_| register(leak(8192))),
];

/// A call of each kind: forbidden by some modes, by all, by none.
const EACH_MODE: Table<Call> = &[
    ("event_query", |it| event_query(it.timed)),
    ("ctx_synchronize", |_| ctx_synchronize()),
    ("memset", |it| fill(it.memory, it.stream)),
];

/// Calls with objects of a context that is gone, where an H200 does not crash.
const GONE: Table<Call> = &[
    ("event_query", |it| event_query(it.timed)),
    ("event_synchronize", |it| event_synchronize(it.timed)),
    ("event_elapsed", |it| elapsed(it.timed, it.timed)),
    ("event_destroy", |it| event_destroy(it.timed)),
    ("stream_wait_event", |it| wait_for(it.stream, it.timed)),
    ("mem_free", |it| mem_free(it.memory)),
    ("mem_free_host", |it| mem_free_host(it.words.host)),
    ("memcpy_dtoh", |it| memcpy_dtoh(leak(8), it.memory, 8)),
    ("get_function", |it| function_of(it.module, c"nop")),
    ("module_unload", |it| module_unload(it.module)),
];

/// What a call may touch while a stream is captured.
#[derive(Clone, Copy)]
struct During {
    /// Captured.
    stream: Handle,
    /// Recorded in the capture.
    captured: Handle,
    /// Not captured.
    other: Objects,
}

/// Calls that concern the capture itself, on its thread.
const SPOILING: Table<fn(During) -> Code> = &[
    ("query_captured", |it| event_query(it.captured)),
    ("synchronize_captured", |it| event_synchronize(it.captured)),
    ("elapsed_captured", |it| elapsed(it.captured, it.captured)),
    ("stream_query", |it| stream_query(it.stream)),
    ("stream_synchronize", |it| stream_synchronize(it.stream)),
    ("ctx_synchronize", |_| ctx_synchronize()),
    ("record_captured_again", |it| {
        event_record(it.captured, it.stream)
    }),
    ("wait_captured", |it| wait_for(it.stream, it.captured)),
    ("graph_launch_captured", |it| {
        graph_launch(it.other.exec, it.stream)
    }),
    ("graph_launch_other", |it| {
        graph_launch(it.other.exec, it.other.stream)
    }),
    ("launch_0_blocks", |it| {
        launch_kernel(0, 0, 1, 1, 1, 1, 1, 0, it.stream, 0, 0)
    }),
    ("memset_unknown", |it| fill(16, it.stream)),
    ("record_null_event", |it| event_record(0, it.stream)),
];

fn prepare(mode: u32) -> During {
    let it = During {
        stream: stream(),
        captured: event(0),
        other: Objects::new(),
    };
    begin(it.stream, mode);
    fill(it.other.memory, it.stream);
    record(it.captured, it.stream);
    it
}

/// The same call on the thread that captures, on another one, and on one that has exchanged its
/// mode.
fn from_threads(mode: u32, call: Call) {
    let shown = |place: &str, call: &dyn Fn(Objects) -> Code| {
        let it = prepare(mode);
        let code = call(it.other);
        line(place, (code, status_and_end(it.stream)));
    };
    let exchanged = |mode: u32, it| {
        thread_exchange(&mut { mode });
        call(it)
    };
    shown("own", &call);
    shown("other", &|it| elsewhere(primary(), || call(it)));
    for (to, number) in &MODES[1..] {
        let place = format!("other_{to}");
        shown(&place, &|it| {
            elsewhere(primary(), || exchanged(*number, it))
        });
    }
    shown("own_relaxed", &|it| exchanged(2, it));
}
