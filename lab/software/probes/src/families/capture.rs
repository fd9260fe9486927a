//! Stream capture: what ends it, what joins it, what it forbids.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("capture", QUESTIONS);
}

pub(super) const MODES: &[(&str, u32)] = &[("global", 0), ("thread_local", 1), ("relaxed", 2)];

pub(super) fn begin(stream: Handle, mode: u32) {
    check(stream_begin_capture(stream, mode))
}

pub(super) fn status(stream: Handle) -> String {
    let mut status = 9;
    let code = stream_is_capturing(stream, &mut status);
    let status = match status {
        0 => "none",
        1 => "active",
        2 => "invalidated",
        _ => "not told",
    };
    if code == 0 {
        status.into()
    } else {
        format!("{code} {status}")
    }
}

pub(super) fn end(stream: Handle) -> String {
    let (mut graph, mut count) = (0, 0);
    let code = stream_end_capture(stream, &mut graph);
    if graph == 0 {
        return format!("{code} no graph");
    }
    graph_get_nodes(graph, 0, &mut count);
    format!("{code} {count} nodes")
}

/// The kinds of the nodes, in numbers of `CUgraphNodeType`.
pub(super) fn kinds(graph: Handle) -> String {
    let mut count = 0;
    let code = graph_get_nodes(graph, 0, &mut count);
    let mut nodes = vec![0_usize; count];
    graph_get_nodes(graph, nodes.as_mut_ptr() as usize, &mut count);
    let mut kinds: Vec<_> = nodes
        .into_iter()
        .map(|node| {
            let mut kind = 99;
            graph_node_get_type(node, &mut kind);
            kind
        })
        .collect();
    kinds.sort_unstable();
    format!("{code} {kinds:?}")
}

const QUESTIONS: Questions = &[
    ("modes", || {
        for mode in 0..=3 {
            let stream = stream();
            let code = stream_begin_capture(stream, mode);
            line(mode, (code, status(stream), end(stream)));
        }
    }),
    // The kinds of nodes that calls become.
    ("plain", || {
        let (memory, words, nop) = (alloc(4096), Words::new(), kernel(c"nop"));
        let capture = |what: &str, call: &dyn Fn(Handle) -> Code| {
            let (stream, mut graph) = (stream(), 0);
            begin(stream, 0);
            let code = call(stream);
            let ended = stream_end_capture(stream, &mut graph);
            let kinds = if graph == 0 {
                "no graph".into()
            } else {
                kinds(graph)
            };
            line(what, format!("{}, {kinds}", names(&[code, ended])));
        };
        capture("memset", &|stream| memset_d32_async(memory, 1, 1, stream));
        capture("memset_d8", &|stream| memset_d8_async(memory, 1, 1, stream));
        capture("copy", &|stream| {
            memcpy_dtod_async(memory + 64, memory, 8, stream)
        });
        capture("launch", &|stream| launch(nop, stream, &[]));
        capture("host_function", &|stream| {
            launch_host_func(stream, nothing, 0)
        });
        capture("wait_value", &|stream| {
            wait_value64(stream, words.at(0), 0, 0)
        });
        capture("wait_value_32", &|stream| {
            wait_value32(stream, words.at(0), 0, 0)
        });
        capture("write_value", &|stream| {
            write_value64(stream, words.at(0), 0, 0)
        });
        capture("batch", &|stream| {
            let ops = [write_op(words.at(0), 1, 0), wait_op(words.at(0), 1, 0)];
            batch_mem_op(stream, 2, ops.as_ptr() as usize, 0)
        });
        let plain = event(NO_TIMING);
        capture("record", &|stream| event_record(plain, stream));
        capture("record_external", &|stream| {
            record_with_flags(plain, stream, 1)
        });
        capture("wait_external", &|stream| {
            stream_wait_event(stream, plain, 1)
        });
        let timed = event(0);
        capture("record_timed", &|stream| event_record(timed, stream));
        capture("record_external_timed", &|stream| {
            record_with_flags(timed, stream, 1)
        });
        let interprocess = event(6);
        capture("record_interprocess", &|stream| {
            event_record(interprocess, stream)
        });
        capture("record_external_interprocess", &|stream| {
            record_with_flags(interprocess, stream, 1)
        });
    }),
    ("info", || {
        let (stream, memory) = (stream(), alloc(64));
        let ask = |when: &str, stream: Handle| {
            let (mut status, mut id, mut graph) = (9, 0, 0);
            let code = capture_info(stream, &mut status, &mut id, &mut graph, 0, 0);
            line(
                when,
                format!(
                    "{code} {status}, id: {}, graph: {}",
                    yes(id != 0),
                    yes(graph != 0)
                ),
            );
        };
        ask("before", stream);
        begin(stream, 0);
        ask("begun", stream);
        memset_d32_async(memory, 1, 1, stream);
        ask("active", stream);
        stream_query(stream);
        ask("invalidated", stream);
        end(stream);
        ask("ended", stream);
        ask("null", 0);
        ask("legacy", 1);
        ask("per_thread", 2);
    }),
    ("empty", || {
        let (stream, mut graph, mut exec) = (stream(), 0, 0);
        begin(stream, 0);
        line("end", stream_end_capture(stream, &mut graph));
        line("instantiate", graph_instantiate(&mut exec, graph, 0));
        line("launch", done(graph_launch(exec, stream), stream));
    }),
    ("nested", || {
        let stream = stream();
        begin(stream, 0);
        line("begin", stream_begin_capture(stream, 0));
        line("status", status(stream));
        line("end", end(stream));
    }),
    ("end_not_begun", || answer(end(stream()))),
    ("end_wrong_stream", || {
        let (first, second, event) = (stream(), stream(), event(NO_TIMING));
        begin(first, 0);
        record(event, first);
        line("join", stream_wait_event(second, event, 0));
        line("end_joined", end(second));
        line("status", status(first));
        line("end", end(first));
    }),
    ("end_wrong_thread", || {
        let context = primary();
        for (mode, number) in &MODES[..2] {
            let stream = stream();
            begin(stream, *number);
            line(format!("{mode}_other"), elsewhere(context, || end(stream)));
            line(format!("{mode}_status"), status(stream));
            line(format!("{mode}_own"), end(stream));
        }
    }),
    ("end_wrong_thread_relaxed", || {
        let stream = stream();
        begin(stream, 2);
        answer(elsewhere(primary(), || end(stream)));
    }),
    ("null_streams", || {
        for stream in [0, 1, 2] {
            let code = stream_begin_capture(stream, 0);
            line(stream, (code, status(stream), end(stream)));
        }
    }),
    // The legacy stream while streams that do or do not synchronize with it are captured.
    ("legacy_during", || {
        let memory = alloc(64);
        for (mode, number) in MODES {
            for (kind, stream) in [("blocking", stream_with(0)), ("non_blocking", stream())] {
                begin(stream, *number);
                let code = memset_d32_async(memory, 1, 1, 0);
                line(format!("{mode}.{kind}.memset"), (code, status(stream)));
                line(format!("{mode}.{kind}.end"), end(stream));
                let other = stream_with(u32::from(kind == "non_blocking"));
                begin(other, *number);
                let event = event(NO_TIMING);
                let code = event_record(event, 0);
                line(format!("{mode}.{kind}.record"), (code, status(other)));
                let code = stream_wait_event(0, event, 0);
                line(format!("{mode}.{kind}.wait"), (code, status(other)));
                let code = stream_query(0);
                // Without an error, it depends on whether the record has ended.
                let varies = if matches!(code.number, 0 | NOT_READY) {
                    "~"
                } else {
                    ""
                };
                line(
                    format!("{mode}.{kind}.query"),
                    format!("{varies}{code}, {}", status(other)),
                );
                line(format!("{mode}.{kind}.is_capturing"), status(0));
                line(format!("{mode}.{kind}.end_second"), end(other));
            }
        }
    }),
    // An event that was recorded in a capture, once the capture is over.
    ("event_after", || {
        let (first, second, timed, memory) = (stream(), stream(), event(0), alloc(64));
        begin(first, 0);
        memset_d32_async(memory, 1, 1, first);
        record(timed, first);
        line("end", end(first));
        line("query", event_query(timed));
        line("synchronize", event_synchronize(timed));
        line("wait", stream_wait_event(second, timed, 0));
        line("elapsed", elapsed(timed, timed));
        line("record", event_record(timed, second));
        line(
            "query_again",
            [event_synchronize(timed), event_query(timed)],
        );
    }),
    // A captured event is recorded in a stream that is not captured, while the capture is active.
    ("record_outside_during", || {
        let (first, second, event) = (stream(), stream(), event(NO_TIMING));
        begin(first, 2);
        record(event, first);
        line("record", event_record(event, second));
        within(1000, || event_query(event) != NOT_READY);
        line("query", event_query(event));
        line("status", status(first));
        line("wait", stream_wait_event(first, event, 0));
        line("end", end(first));
    }),
    // An event recorded by a node: query before and after the launch.
    ("external_flags", || {
        let (stream, event, mut graph, mut exec) = (stream(), event(NO_TIMING), 0, 0);
        begin(stream, 0);
        line("record", record_with_flags(event, stream, 1));
        line("query_during", event_query(event));
        line("status", status(stream));
        line("end", stream_end_capture(stream, &mut graph));
        line("instantiate", graph_instantiate(&mut exec, graph, 0));
        line("query_before", event_query(event));
        line("launch", graph_launch(exec, stream));
        line(
            "query_after",
            [event_synchronize(event), event_query(event)],
        );
    }),
    // Waits for an event of outside with the flag, and without.
    ("external_wait_outside", || {
        let (first, second, event) = (stream(), stream(), event(NO_TIMING));
        record(event, second);
        begin(first, 0);
        line("external", stream_wait_event(first, event, 1));
        line("status", status(first));
        line("plain", stream_wait_event(first, event, 0));
        line("status_then", status(first));
        line("end", end(first));
    }),
    ("destroy_stream", || {
        let stream = stream();
        begin(stream, 0);
        line("destroy", stream_destroy(stream));
        line("alloc", mem_alloc(&mut 0, 64));
    }),
    ("destroy_event", || {
        let (first, second, event) = (stream(), stream(), event(NO_TIMING));
        begin(first, 0);
        record(event, first);
        let _ = second;
        line("destroy", event_destroy(event));
        line("status", status(first));
        line("end", end(first));
    }),
    ("exchange", || {
        let context = primary();
        let mut mode = 0;
        line("first", format!("{} {mode}", thread_exchange(&mut mode)));
        mode = 2;
        let code = thread_exchange(&mut mode);
        line("to_relaxed", format!("{code} {mode}"));
        mode = 1;
        let code = thread_exchange(&mut mode);
        line("to_thread_local", format!("{code} {mode}"));
        mode = 3;
        let code = thread_exchange(&mut mode);
        line("to_3", format!("{code} {mode}"));
        let other = elsewhere(context, || {
            let mut mode = 0;
            let code = thread_exchange(&mut mode);
            format!("{code} {mode}")
        });
        line("other_thread", other);
    }),
    ("elapsed_outside", || {
        let (first, one, two) = (stream(), event(0), event(0));
        let second = stream();
        record(one, second);
        record(two, second);
        stream_synchronize(second);
        begin(first, 0);
        line("elapsed", elapsed(one, two));
        line("status", status(first));
        line("end", end(first));
    }),
    ("wait_uncaptured", || {
        let (first, fresh) = (stream(), event(NO_TIMING));
        begin(first, 0);
        line("unrecorded", stream_wait_event(first, fresh, 0));
        line("status", status(first));
        line("end", end(first));
    }),
    ("wait_pending_uncaptured", || {
        let (first, second, event, words) = (stream(), stream(), event(NO_TIMING), Words::new());
        park(second, words, 0);
        record(event, second);
        begin(first, 0);
        line("pending", stream_wait_event(first, event, 0));
        line("status", status(first));
        line("end", end(first));
        words.store(0, 1);
    }),
];
