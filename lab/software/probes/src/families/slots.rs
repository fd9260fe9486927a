//! Nodes of graphs whose values and events change from launch to launch.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use crate::vulkan::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("slot", QUESTIONS);
}

/// The nodes after which the next node of a captured stream comes.
fn nodes(stream: Handle) -> Vec<Handle> {
    let (mut status, mut id, mut graph, mut nodes, mut count) = (0, 0, 0, 0_usize, 0_usize);
    let (to, number) = (&raw mut nodes as usize, &raw mut count as usize);
    let code = capture_info(stream, &mut status, &mut id, &mut graph, to, number);
    check(code);
    let first = nodes as *const Handle;
    // SAFETY: the driver has written where so many handles are.
    (0..count)
        .map(|at| unsafe { first.add(at).read() })
        .collect()
}

fn node(stream: Handle) -> Handle {
    match nodes(stream)[..] {
        [node] => node,
        ref other => stop(format_args!("not asked: {} nodes", other.len())),
    }
}

/// Sets the parameters of a node with external semaphores.
type Set = fn(Handle, Handle, &SemaphoreNode) -> Code;

/// Gives a node so many semaphores and values.
fn set(
    call: Set,
    exec: Handle,
    node: Handle,
    semaphore: &Imported,
    value: u64,
    count: u32,
) -> Code {
    let (semaphores, params) = ([semaphore.cuda; 2], [params(value); 2]);
    let params = SemaphoreNode {
        semaphores: semaphores.as_ptr(),
        params: params.as_ptr(),
        count,
    };
    call(exec, node, &params)
}

fn set_signal(exec: Handle, node: Handle, semaphore: &Imported, value: u64) -> Code {
    set(graph_set_signal, exec, node, semaphore, value, 1)
}

/// Captures a signal between two parked places. Returns the node and the executable graph.
fn signal_between(semaphore: &Imported, words: Words) -> (Handle, Handle) {
    let mut signal = 0;
    let (_, exec) = capture(|stream| {
        park(stream, words, 0);
        semaphore.signal(0, stream);
        signal = node(stream);
        park(stream, words, 1)
    });
    (signal, exec)
}

fn set_op(exec: Handle, node: Handle, context: Handle, op: MemOp) -> Code {
    let params = MemoryNode {
        context,
        count: 1,
        ops: &raw const op,
        flags: 0,
    };
    graph_set_mem_op(exec, node, &params)
}

const QUESTIONS: Questions = &[
    // What `cuStreamGetCaptureInfo` tells before and after each command.
    ("told", || {
        let semaphore = timeline();
        let (graph, _) = capture(|stream| {
            line("empty", nodes(stream).len());
            semaphore.wait(1, stream);
            let first = node(stream);
            semaphore.signal(2, stream);
            let second = node(stream);
            line("differ", first != second);
            line("again", node(stream) == second);
        });
        line("after", super::capture::kinds(graph));
    }),
    // Whether a change reaches a launch that is in flight.
    ("in_flight", || {
        let (semaphore, stream, words) = (timeline(), stream(), Words::new());
        let (signal, exec) = signal_between(&semaphore, words);
        for value in [1, 2] {
            let set = set_signal(exec, signal, &semaphore, value);
            line(value, [set, graph_launch(exec, stream)]);
        }
        words.store(0, 1);
        let value = || semaphore.value();
        line("begun", within(1000, || value() > 0));
        line("first", value());
        // While the first launch runs.
        line("set_running", set_signal(exec, signal, &semaphore, 3));
        words.store(1, 1);
        line("then", outcome(stream));
        line("second", value());
        line("third", ended(graph_launch(exec, stream), stream));
        line("value", value());
    }),
    ("wait_in_flight", || {
        let (semaphore, stream, words) = (timeline(), stream(), Words::new());
        let mut wait = 0;
        let (_, exec) = capture(|stream| {
            semaphore.wait(0, stream);
            wait = node(stream);
            mark(stream, words, 0)
        });
        for value in [1, 5] {
            let set = set(graph_set_wait, exec, wait, &semaphore, value, 1);
            line(value, [set, graph_launch(exec, stream)]);
        }
        line("passes", marked_early(words, 0));
        need(semaphore.signal_host(1));
        line("first", marked(words, 0));
        line("second_waits", !idle(stream));
        need(semaphore.signal_host(5));
        line("then", outcome(stream));
    }),
    // Whether others see the signal while the rest of the graph has not executed.
    ("middle", || {
        let (semaphore, launching) = (timeline(), stream());
        let (words, other) = (Words::new(), stream());
        let (signal, exec) = signal_between(&semaphore, words);
        words.store(0, 1);
        line("set", set_signal(exec, signal, &semaphore, 7));
        line("launch", graph_launch(exec, launching));
        semaphore.wait(7, other);
        mark(other, words, 2);
        line("other_stream", marked(words, 2));
        line("host", semaphore.wait_host(7));
        line("still_runs", stream_query(launching));
        words.store(1, 1);
        line("then", outcome(launching));
    }),
    // Whether a node takes another semaphore than that of the capture.
    ("other_semaphore", || {
        let (semaphore, other, words) = (timeline(), timeline(), Words::new());
        let (signal, exec) = signal_between(&semaphore, words);
        words.store(0, 1);
        words.store(1, 1);
        let (set, stream) = (set_signal(exec, signal, &other, 3), stream());
        line("codes", [set, graph_launch(exec, stream), outcome(stream)]);
        line("captured", semaphore.value());
        line("other", other.value());
    }),
    ("wrong", || {
        let (semaphore, mut signal, mut wait) = (timeline(), 0, 0);
        let (_, exec) = capture(|stream| {
            semaphore.wait(0, stream);
            wait = node(stream);
            semaphore.signal(0, stream);
            signal = node(stream);
        });
        let (foreign, other) = signal_between(&semaphore, Words::new());
        line("other_kind", set_signal(exec, wait, &semaphore, 3));
        line("other_graph", set_signal(exec, foreign, &semaphore, 3));
        line("other_exec", set_signal(other, signal, &semaphore, 3));
        line("event", graph_set_record(exec, signal, event(NO_TIMING)));
        for count in [0, 2] {
            let code = set(graph_set_signal, exec, signal, &semaphore, 3, count);
            line(format!("count_{count}"), code);
        }
    }),
    // Two launches in flight, with an event each, and a wait whose event changes.
    ("event_in_flight", || {
        let (words, stream, other) = (Words::new(), stream(), stream());
        let [gate, done] = [(); 2].map(|()| [(); 2].map(|()| event(NO_TIMING)));
        let (mut wait, mut place) = (0, 0);
        let (_, exec) = capture(|stream| {
            check(stream_wait_event(stream, gate[0], 1));
            wait = node(stream);
            check(record_with_flags(done[0], stream, 1));
            place = node(stream);
        });
        for (index, gate) in gate.into_iter().enumerate() {
            park(other, words, index);
            record(gate, other);
            let codes = [
                graph_set_event_wait(exec, wait, gate),
                graph_set_record(exec, place, done[index]),
                graph_launch(exec, stream),
            ];
            line(index, codes);
        }
        line("launched", done.map(event_query));
        words.store(0, 1);
        line("first", within(1000, || event_query(done[0]) == 0));
        line("second_waits", !within(300, || event_query(done[1]) == 0));
        words.store(1, 1);
        line("then", outcome(stream));
        line("ended", done.map(event_query));
    }),
    // Waits for a word and writes of a word, with two launches in flight.
    ("words", || {
        let context = primary();
        let (words, stream, mut wait, mut write) = (Words::new(), stream(), 0, 0);
        let [waited, written] = [0, 1].map(|index| words.at(index));
        let (_, exec) = capture(|stream| {
            park(stream, words, 0);
            wait = node(stream);
            mark(stream, words, 1);
            write = node(stream);
        });
        for value in [1, 2] {
            let codes = [
                set_op(exec, wait, context, wait_op(waited, value, 0)),
                set_op(exec, write, context, write_op(written, 10 * value, 0)),
                graph_launch(exec, stream),
            ];
            line(value, codes);
        }
        line("passes", marked_early(words, 1));
        words.store(0, 1);
        line("first", within(1000, || words.load(1) == 10));
        line("second_waits", !within(300, || words.load(1) == 20));
        words.store(0, 2);
        line("then", format!("{} {}", outcome(stream), words.load(1)));
        // Another address, a wait as a write, and flags of a flush.
        for (what, node, context, op) in [
            ("address", write, context, write_op(words.at(2), 1, 0)),
            ("other_kind", wait, context, write_op(waited, 1, 0)),
            ("flush", wait, context, wait_op(waited, 1, 1 << 30)),
            ("no_context", write, 0, write_op(written, 1, 0)),
        ] {
            line(what, set_op(exec, node, context, op));
        }
    }),
];
