//! Calls during a stream capture, from its thread and from others.

use super::capture::{MODES, begin, end, status};
use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.each("capture.during", SPOILING, |call| {
        let it = prepare(0);
        answer(shown(&it, call(it)));
    });
    for (mode, number) in MODES {
        all.each(&format!("capture.unsafe.{mode}"), UNSAFE, move |call| {
            from_threads(*number, call);
        });
    }
}

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

type Spoiling = fn(During) -> Code;

/// Calls that concern the capture itself, on its thread.
const SPOILING: &[(&str, Spoiling)] = &[
    ("query_captured", |it| event_query(it.captured)),
    ("synchronize_captured", |it| event_synchronize(it.captured)),
    ("elapsed_captured", |it| elapsed(it.captured, it.captured)),
    ("stream_query", |it| stream_query(it.stream)),
    ("stream_synchronize", |it| stream_synchronize(it.stream)),
    ("ctx_synchronize", |_| ctx_synchronize()),
    ("stream_get_ctx", |it| stream_get_ctx(it.stream, &mut 0)),
    ("record_captured_again", |it| {
        event_record(it.captured, it.stream)
    }),
    ("wait_captured", |it| {
        stream_wait_event(it.stream, it.captured, 0)
    }),
    ("graph_launch_captured", |it| {
        graph_launch(it.other.exec, it.stream)
    }),
    ("graph_launch_other", |it| {
        graph_launch(it.other.exec, it.other.stream)
    }),
    ("launch_0_blocks", |it| {
        launch_kernel(0, 0, 1, 1, 1, 1, 1, 0, it.stream, 0, 0)
    }),
    ("memset_unknown", |it| memset_d32_async(16, 1, 1, it.stream)),
    ("write_value_unknown", |it| {
        write_value64(it.stream, 16, 1, 0)
    }),
    ("record_null_event", |it| event_record(0, it.stream)),
    ("record_bad_flags", |it| {
        record_with_flags(it.other.fresh, it.stream, 8)
    }),
];

/// Calls that a capture in another mode than relaxed can forbid.
const UNSAFE: &[(&str, Call)] = &[
    ("mem_alloc", |_| mem_alloc(&mut 0, 64)),
    ("mem_alloc_large", |_| mem_alloc(&mut 0, 64 << 20)),
    ("mem_free", |it| mem_free(it.memory)),
    ("mem_host_alloc", |_| mem_host_alloc(&mut 0, 64, 3)),
    ("mem_free_host", |it| mem_free_host(it.words.host)),
    ("event_create", |_| event_create(&mut 0, 2)),
    ("event_destroy", |it| event_destroy(it.fresh)),
    ("event_query", |it| event_query(it.timed)),
    ("event_query_unrecorded", |it| event_query(it.fresh)),
    ("event_synchronize", |it| event_synchronize(it.timed)),
    ("event_record", |it| event_record(it.fresh, it.stream)),
    ("stream_create", |_| stream_create(&mut 0, 1)),
    ("stream_destroy", |it| stream_destroy(it.stream)),
    ("stream_query", |it| stream_query(it.stream)),
    ("stream_synchronize", |it| stream_synchronize(it.stream)),
    ("memset", |it| memset_d32_async(it.memory, 1, 1, it.stream)),
    ("memcpy_dtoh", |it| memcpy_dtoh(it.words.host, it.memory, 8)),
    ("memcpy_htod", |it| memcpy_htod(it.memory, it.words.host, 8)),
    ("write_value", |it| {
        write_value64(it.stream, it.words.at(0), 1, 0)
    }),
    ("module_load", |_| load_module()),
    ("ctx_synchronize", |_| ctx_synchronize()),
    ("ctx_create", |_| ctx_create(&mut 0, 0, 0)),
    ("primary_retain", |_| primary_retain(&mut 0, 0)),
    ("device_pointer", |it| {
        device_pointer(&mut 0, it.words.host, 0)
    }),
    ("host_register", |_| mem_host_register(leak(8192), 4096, 3)),
    ("graph_launch", |it| graph_launch(it.exec, it.stream)),
    ("graph_create", |_| graph_create(&mut 0, 0)),
    ("graph_instantiate", |it| {
        graph_instantiate(&mut 0, it.graph, 0)
    }),
    ("graph_exec_destroy", |it| graph_exec_destroy(it.exec)),
];

fn prepare(mode: u32) -> During {
    let it = During {
        stream: stream(),
        captured: event(0),
        other: Objects::new(),
    };
    begin(it.stream, mode);
    memset_d32_async(it.other.memory, 1, 1, it.stream);
    record(it.captured, it.stream);
    it
}

/// What a call returned, what it did to the capture, and how that ends.
fn shown(it: &During, code: Code) -> (Code, String, String) {
    (code, status(it.stream), format!("end: {}", end(it.stream)))
}

/// The same call on the thread that captures, on another one, and on one that has exchanged its
/// mode.
fn from_threads(mode: u32, call: Call) {
    let it = prepare(mode);
    line("own", shown(&it, call(it.other)));
    let it = prepare(mode);
    line("other", shown(&it, elsewhere(primary(), || call(it.other))));
    for (to, number) in &MODES[1..] {
        let it = prepare(mode);
        let code = elsewhere(primary(), || {
            thread_exchange(&mut { *number });
            call(it.other)
        });
        line(format!("other_{to}"), shown(&it, code));
    }
    let it = prepare(mode);
    thread_exchange(&mut 2);
    line("own_relaxed", shown(&it, call(it.other)));
}
