//! Calls during a stream capture, from its thread and from others.

use super::capture::{MODES, begin, end, status};
use crate::cuda::{Handle, cu};
use crate::harness::{Probe, line};
use crate::kit::{
    Answer, NO_TIMING, Words, alloc, context, elsewhere, event, name, record, stream,
};

pub(crate) fn list() -> Vec<Probe> {
    let mut list = Vec::new();
    for (name, call) in SPOILING {
        list.push(Probe::new(format!("capture.during.{name}"), move || {
            during(*call)
        }));
    }
    for (mode, number) in MODES {
        for (name, call) in UNSAFE {
            list.push(Probe::new(
                format!("capture.unsafe.{mode}.{name}"),
                move || from_threads(*number, *call),
            ));
        }
    }
    list
}

/// What a call may touch while a stream is captured.
#[derive(Clone, Copy)]
struct During {
    /// Captured.
    stream: Handle,
    /// Not captured, idle.
    other: Handle,
    /// Recorded in the capture.
    captured: Handle,
    /// Recorded in `other`.
    complete: Handle,
    fresh: Handle,
    memory: u64,
    words: Words,
    /// Instantiated as `exec`.
    graph: Handle,
    exec: Handle,
}

type Call = fn(During) -> u32;

/// Calls that concern the capture itself, on its thread.
const SPOILING: &[(&str, Call)] = &[
    ("query_captured", |it| cu().event_query(it.captured)),
    ("synchronize_captured", |it| {
        cu().event_synchronize(it.captured)
    }),
    ("elapsed_captured", |it| {
        cu().event_elapsed_time(&mut 0.0, it.captured, it.captured)
    }),
    ("stream_query", |it| cu().stream_query(it.stream)),
    ("stream_synchronize", |it| {
        cu().stream_synchronize(it.stream)
    }),
    ("ctx_synchronize", |_| cu().ctx_synchronize()),
    ("stream_get_ctx", |it| {
        cu().stream_get_ctx(it.stream, &mut 0)
    }),
    ("record_captured_again", |it| {
        cu().event_record(it.captured, it.stream)
    }),
    ("wait_captured", |it| {
        cu().stream_wait_event(it.stream, it.captured, 0)
    }),
    ("graph_launch_captured", |it| {
        cu().graph_launch(it.exec, it.stream)
    }),
    ("graph_launch_other", |it| {
        cu().graph_launch(it.exec, it.other)
    }),
    ("launch_0_blocks", |it| {
        cu().launch_kernel(0, 0, 1, 1, 1, 1, 1, 0, it.stream, 0, 0)
    }),
    ("memset_unknown", |it| {
        cu().memset_d32_async(16, 1, 1, it.stream)
    }),
    ("write_value_unknown", |it| {
        cu().stream_write_value64(it.stream, 16, 1, 0)
    }),
    ("record_null_event", |it| cu().event_record(0, it.stream)),
    ("record_bad_flags", |it| {
        cu().event_record_with_flags(it.fresh, it.stream, 8)
    }),
];

/// Calls that a capture in another mode than relaxed can forbid.
const UNSAFE: &[(&str, Call)] = &[
    ("mem_alloc", |_| cu().mem_alloc(&mut 0, 64)),
    ("mem_alloc_large", |_| cu().mem_alloc(&mut 0, 64 << 20)),
    ("mem_free", |it| cu().mem_free(it.memory)),
    ("mem_host_alloc", |_| cu().mem_host_alloc(&mut 0, 64, 3)),
    ("mem_free_host", |it| cu().mem_free_host(it.words.host)),
    ("event_create", |_| cu().event_create(&mut 0, 2)),
    ("event_destroy", |it| cu().event_destroy(it.fresh)),
    ("event_query", |it| cu().event_query(it.complete)),
    ("event_query_unrecorded", |it| cu().event_query(it.fresh)),
    ("event_synchronize", |it| {
        cu().event_synchronize(it.complete)
    }),
    ("event_record", |it| cu().event_record(it.fresh, it.other)),
    ("stream_create", |_| cu().stream_create(&mut 0, 1)),
    ("stream_destroy", |it| cu().stream_destroy(it.other)),
    ("stream_query", |it| cu().stream_query(it.other)),
    ("stream_synchronize", |it| cu().stream_synchronize(it.other)),
    ("memset", |it| {
        cu().memset_d32_async(it.memory, 1, 1, it.other)
    }),
    ("memcpy_dtoh", |it| {
        cu().memcpy_dtoh(it.words.host, it.memory, 8)
    }),
    ("memcpy_htod", |it| {
        cu().memcpy_htod(it.memory, it.words.host, 8)
    }),
    ("write_value", |it| {
        cu().stream_write_value64(it.other, it.words.at(0), 1, 0)
    }),
    ("module_load", |_| u32::from(crate::kit::module().is_err())),
    ("ctx_synchronize", |_| cu().ctx_synchronize()),
    ("ctx_create", |_| cu().ctx_create(&mut 0, 0, 0)),
    ("primary_retain", |_| cu().primary_retain(&mut 0, 0)),
    ("device_pointer", |it| {
        cu().mem_host_get_device_pointer(&mut 0, it.words.host, 0)
    }),
    ("host_register", |_| {
        let memory = Box::leak(Box::new([0_u64; 1024])).as_ptr() as usize;
        cu().mem_host_register(memory, 4096, 3)
    }),
    ("graph_launch", |it| cu().graph_launch(it.exec, it.other)),
    ("graph_create", |_| cu().graph_create(&mut 0, 0)),
    ("graph_instantiate", |it| {
        cu().graph_instantiate(&mut 0, it.graph, 0)
    }),
    ("graph_exec_destroy", |it| cu().graph_exec_destroy(it.exec)),
];

fn prepare(mode: u32) -> Result<During, String> {
    context()?;
    let (stream, other, memory) = (stream()?, stream()?, alloc(4096)?);
    let (mut graph, mut exec) = (0, 0);
    begin(other, 2)?;
    let _ = cu().memset_d32_async(memory, 1, 1, other);
    let _ = cu().stream_end_capture(other, &mut graph);
    let _ = cu().graph_instantiate(&mut exec, graph, 0);
    let it = During {
        stream,
        other,
        captured: event(0)?,
        complete: event(0)?,
        fresh: event(NO_TIMING)?,
        memory,
        words: Words::new()?,
        graph,
        exec,
    };
    record(it.complete, other)?;
    crate::kit::check("cuStreamSynchronize", cu().stream_synchronize(other))?;
    begin(stream, mode)?;
    let _ = cu().memset_d32_async(memory, 1, 1, stream);
    record(it.captured, stream)?;
    Ok(it)
}

fn during(call: Call) -> Answer {
    let it = prepare(0)?;
    let code = call(it);
    let then = status(it.stream);
    Ok(format!("{}, {then}, end: {}", name(code), end(it.stream)))
}

/// The same call on the thread that captures, on another one, and on one that has exchanged its
/// mode.
fn from_threads(mode: u32, call: Call) -> Answer {
    let context = context()?;
    let it = prepare(mode)?;
    let code = call(it);
    line(
        "own",
        format!(
            "{}, {}, end: {}",
            name(code),
            status(it.stream),
            end(it.stream)
        ),
    );
    let it = prepare(mode)?;
    let code = elsewhere(context, || call(it))?;
    line(
        "other",
        format!(
            "{}, {}, end: {}",
            name(code),
            status(it.stream),
            end(it.stream)
        ),
    );
    for (to, number) in &MODES[1..] {
        let it = prepare(mode)?;
        let code = elsewhere(context, || {
            let mut mode = *number;
            let _ = cu().thread_exchange(&mut mode);
            call(it)
        })?;
        let then = format!(
            "{}, {}, end: {}",
            name(code),
            status(it.stream),
            end(it.stream)
        );
        line(format!("other_{to}"), then);
    }
    let it = prepare(mode)?;
    let mut exchanged = 2;
    let _ = cu().thread_exchange(&mut exchanged);
    let code = call(it);
    line(
        "own_relaxed",
        format!(
            "{}, {}, end: {}",
            name(code),
            status(it.stream),
            end(it.stream)
        ),
    );
    Ok(String::new())
}
