//! Stream capture: what ends it, what joins it, what it forbids.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("capture", QUESTIONS);
}

pub(super) const MODES: Table<u32> = &[("global", 0), ("thread_local", 1), ("relaxed", 2)];

pub(super) fn begin(stream: Handle, mode: u32) {
    check(stream_begin_capture(stream, mode))
}

fn status(stream: Handle) -> String {
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

fn statuses(streams: &[Handle]) -> String {
    let all: Vec<_> = streams.iter().map(|stream| status(*stream)).collect();
    all.join(" ")
}

fn end(stream: Handle) -> String {
    let (mut graph, mut count) = (0, 0);
    let code = stream_end_capture(stream, &mut graph);
    if graph == 0 {
        return format!("{code} no graph");
    }
    graph_get_nodes(graph, 0, &mut count);
    format!("{code} {count} nodes")
}

/// The status of a capture, and how it ends.
pub(super) fn status_and_end(stream: Handle) -> (String, String) {
    (status(stream), format!("end: {}", end(stream)))
}

/// Prints the status of a capture and how it ends.
fn show_end(stream: Handle) {
    line("status", status(stream));
    line("end", end(stream));
}

/// The kinds of the nodes, in numbers of `CUgraphNodeType`.
pub(super) fn kinds(graph: Handle) -> String {
    let mut count = 0;
    let code = graph_get_nodes(graph, 0, &mut count);
    let mut nodes = vec![0_usize; count];
    graph_get_nodes(graph, nodes.as_mut_ptr() as usize, &mut count);
    let kind = |node| {
        let mut kind = 99;
        graph_node_get_type(node, &mut kind);
        kind
    };
    let mut kinds: Vec<_> = nodes.into_iter().map(kind).collect();
    kinds.sort_unstable();
    format!("{code} {kinds:?}")
}

/// Records a new event in a stream.
fn recorded(stream: Handle) -> Handle {
    let event = event(NO_TIMING);
    record(event, stream);
    event
}

const QUESTIONS: Questions = &[
    ("modes", || {
        for mode in 0..=3 {
            let stream = stream();
            let code = stream_begin_capture(stream, mode);
            line(mode, (code, (status(stream), end(stream))));
        }
    }),
    // The kinds of nodes that calls become.
    ("plain", || {
        let (memory, words, nop) = (alloc(4096), Words::new(), kernel(c"nop"));
        let (plain, interprocess) = (event(NO_TIMING), event(6));
        let capture = |what: &str, call: &dyn Fn(Handle) -> Code| {
            let (stream, mut graph) = (stream(), 0);
            begin(stream, 0);
            let code = call(stream);
            let ended = stream_end_capture(stream, &mut graph);
            let kinds = match graph {
                0 => "no graph".into(),
                graph => kinds(graph),
            };
            line(what, format!("{code} {ended}, {kinds}"));
        };
        capture("memset", &|stream| fill(memory, stream));
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
        capture("batch", &|stream| {
            let ops = [write_op(words.at(0), 1, 0), wait_op(words.at(0), 1, 0)];
            batch(stream, &ops, 0)
        });
        capture("record", &|stream| event_record(plain, stream));
        capture("record_external", &|stream| {
            record_with_flags(plain, stream, 1)
        });
        capture("wait_external", &|stream| {
            stream_wait_event(stream, plain, 1)
        });
        capture("record_interprocess", &|stream| {
            event_record(interprocess, stream)
        });
        capture("record_external_interprocess", &|stream| {
            record_with_flags(interprocess, stream, 1)
        });
    }),
    ("info", || {
        let (stream, memory) = (stream(), alloc(64));
        let ask = |when: &str| {
            let (mut status, mut id, mut graph) = (9, 0, 0);
            let code = capture_info(stream, &mut status, &mut id, &mut graph, 0, 0);
            let (id, graph) = (yes(id != 0), yes(graph != 0));
            line(when, format!("{code} {status}, id: {id}, graph: {graph}"));
        };
        ask("before");
        begin(stream, 0);
        fill(memory, stream);
        ask("active");
        stream_query(stream);
        ask("invalidated");
        end(stream);
        ask("ended");
    }),
    ("nested", || {
        let stream = stream();
        begin(stream, 0);
        line("begin", stream_begin_capture(stream, 0));
        show_end(stream);
    }),
    ("end_not_begun", || answer(end(stream()))),
    ("end_wrong_stream", || {
        let (first, second) = (stream(), stream());
        begin(first, 0);
        line("join", wait_for(second, recorded(first)));
        line("end_joined", end(second));
        show_end(first);
    }),
    ("end_wrong_thread", || {
        for (mode, number) in &MODES[..2] {
            let stream = stream();
            begin(stream, *number);
            let other = elsewhere(primary(), || end(stream));
            line(format!("{mode}_other"), other);
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
            line(stream, (code, (status(stream), end(stream))));
        }
    }),
    // The legacy stream while streams that do or do not synchronize with it are captured.
    ("legacy_during", || {
        let (memory, modes) = (alloc(64), [MODES[0], MODES[2]]);
        for (mode, number) in modes {
            for (kind, flags) in [("blocking", 0), ("non_blocking", 1)] {
                let line = |part: &str, shown: (Code, String)| {
                    line(format_args!("{mode}.{kind}.{part}"), shown);
                };
                let (first, second) = (stream_with(flags), stream_with(flags));
                begin(first, number);
                line("memset", (fill(memory, 0), status(first)));
                end(first);
                begin(second, number);
                let event = event(NO_TIMING);
                line("record", (event_record(event, 0), status(second)));
                line("wait", (wait_for(0, event), status(second)));
                let code = stream_query(0);
                // Without an error, it depends on whether the record has ended.
                if !matches!(code.number, 0 | NOT_READY) {
                    line("query", (code, status(second)));
                }
                end(second);
            }
        }
    }),
    // An event that was recorded in a capture, once the capture is over.
    ("event_after", || {
        let (first, second, timed, memory) = (stream(), stream(), event(0), alloc(64));
        begin(first, 0);
        fill(memory, first);
        record(timed, first);
        line("end", end(first));
        line("query", event_query(timed));
        line("synchronize", event_synchronize(timed));
        line("wait", wait_for(second, timed));
        line("elapsed", elapsed(timed, timed));
        line("record", event_record(timed, second));
        let codes = [event_synchronize(timed), event_query(timed)];
        line("query_again", codes);
    }),
    // A captured event is recorded in a stream that is not captured, while the capture is active.
    ("record_outside_during", || {
        let (first, second) = (stream(), stream());
        begin(first, 2);
        let event = recorded(first);
        line("record", event_record(event, second));
        within(1000, || event_query(event) != NOT_READY);
        line("query", event_query(event));
        line("status", status(first));
        line("wait", wait_for(first, event));
        line("end", end(first));
    }),
    // Waits for an event of outside with the flag, and without.
    ("external_wait_outside", || {
        let (first, second) = (stream(), stream());
        let event = recorded(second);
        begin(first, 0);
        line("external", stream_wait_event(first, event, 1));
        line("status", status(first));
        line("plain", wait_for(first, event));
        line("end", end(first));
    }),
    ("destroy_stream", || {
        let stream = stream();
        begin(stream, 0);
        line("destroy", stream_destroy(stream));
        line("alloc", mem_alloc(&mut 0, 64));
    }),
    ("exchange", || {
        let exchange = |mut mode: u32| format!("{} {mode}", thread_exchange(&mut mode));
        line("first", exchange(0));
        line("to_relaxed", exchange(2));
        line("to_thread_local", exchange(1));
        line("to_3", exchange(3));
        line("other_thread", elsewhere(primary(), || exchange(0)));
    }),
    ("wait_uncaptured", || {
        let stream = stream();
        begin(stream, 0);
        line("unrecorded", wait_for(stream, event(NO_TIMING)));
        show_end(stream);
    }),
    // A stream that is not captured waits for a captured event.
    ("wait_outside", || {
        let (first, second) = (stream(), stream_with(0));
        begin(first, 0);
        line("blocking.wait", wait_for(second, recorded(first)));
        line("blocking.status", statuses(&[first, second]));
        line("blocking.end", end(first));
        line("blocking.status_after", statuses(&[first, second]));
        begin(first, 0);
        line("null.wait", wait_for(0, recorded(first)));
        line("null.status", status(first));
        line("null.end", end(first));
    }),
    ("wait_joins", || {
        let (first, second, memory) = (stream(), stream(), alloc(64));
        begin(first, 0);
        fill(memory, first);
        line("wait", wait_for(second, recorded(first)));
        line("memset", fill(memory + 8, second));
        line("wait_back", wait_for(first, recorded(second)));
        line("end", end(first));
        line("status", statuses(&[first, second]));
    }),
    ("join_not_returned", || {
        let (first, second, memory) = (stream(), stream(), alloc(64));
        begin(first, 0);
        line("wait", wait_for(second, recorded(first)));
        line("memset", fill(memory, second));
        line("end", end(first));
        line("status", statuses(&[first, second]));
        line("use", fill(memory, second));
    }),
    ("joined_twice", || {
        let (first, second, third) = (stream(), stream(), stream());
        begin(first, 0);
        begin(second, 0);
        let (one, two) = (recorded(first), recorded(second));
        line("first", wait_for(third, one));
        line("second", wait_for(third, two));
        line("status", statuses(&[first, second, third]));
        line("end", (end(first), end(second)));
    }),
];
