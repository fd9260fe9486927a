//! Nodes of graphs whose values and events change from launch to launch.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use std::time::Instant;

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

fn set_signal(exec: Handle, node: Handle, semaphore: &Imported, value: u64) -> Code {
    set(semaphore.cuda, value, |params| {
        graph_set_signal(exec, node, params)
    })
}

fn set_wait(exec: Handle, node: Handle, semaphore: &Imported, value: u64) -> Code {
    set(semaphore.cuda, value, |params| {
        graph_set_wait(exec, node, params)
    })
}

fn set(semaphore: Handle, value: u64, call: impl FnOnce(&SemaphoreNode) -> Code) -> Code {
    let params = params(value);
    call(&SemaphoreNode {
        semaphores: &raw const semaphore,
        params: &raw const params,
        count: 1,
    })
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
    graph_set_mem_op(
        exec,
        node,
        &MemoryNode {
            context,
            count: 1,
            ops: &raw const op,
            flags: 0,
        },
    )
}

/// The nanoseconds of one call, as the median of 2000.
fn median(mut call: impl FnMut(u64)) -> String {
    let mut times = Vec::new();
    for round in 1..=2000 {
        let start = Instant::now();
        call(round);
        times.push(start.elapsed().as_nanos());
    }
    times.sort_unstable();
    format!("~{} ns", times[times.len() / 2])
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
            let (mut kind, mut other) = (99, 99);
            let codes = [
                graph_node_get_type(first, &mut kind),
                graph_node_get_type(second, &mut other),
            ];
            line("kinds", format!("{} {kind} {other}", names(&codes)));
        });
        line("after", super::capture::kinds(graph));
    }),
    ("values", || {
        let (semaphore, stream, mut signal) = (timeline(), stream(), 0);
        let (_, exec) = capture(|stream| {
            semaphore.signal(0, stream);
            signal = node(stream);
        });
        for value in [3, 4, 1000, 1 << 40] {
            let codes = [
                set_signal(exec, signal, &semaphore, value),
                graph_launch(exec, stream),
                outcome(stream),
            ];
            let seen = semaphore.value();
            line(value, format!("{} {seen}", names(&codes)));
        }
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
            let set = set_wait(exec, wait, &semaphore, value);
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
        let (semaphore, other) = (timeline(), timeline());
        let (stream, mut signal) = (stream(), 0);
        let (_, exec) = capture(|stream| {
            semaphore.signal(0, stream);
            signal = node(stream);
        });
        let codes = [
            set_signal(exec, signal, &other, 3),
            graph_launch(exec, stream),
            outcome(stream),
        ];
        line("codes", codes);
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
        let mut foreign = 0;
        let (_, other) = capture(|stream| {
            semaphore.signal(0, stream);
            foreign = node(stream);
        });
        line("other_kind", set_signal(exec, wait, &semaphore, 3));
        line("other_graph", set_signal(exec, foreign, &semaphore, 3));
        line("other_exec", set_signal(other, signal, &semaphore, 3));
        line("event", graph_set_record(exec, signal, event(NO_TIMING)));
        let (semaphores, values) = ([semaphore.cuda; 2], [params(3); 2]);
        for count in [0, 2] {
            let node = SemaphoreNode {
                semaphores: semaphores.as_ptr(),
                params: values.as_ptr(),
                count,
            };
            let code = graph_set_signal(exec, signal, &node);
            line(format_args!("count_{count}"), code);
        }
    }),
    // Changes after the original graph was destroyed. The documentation forbids it.
    ("graph_gone", || {
        let (semaphore, stream, mut signal) = (timeline(), stream(), 0);
        let (graph, exec) = capture(|stream| {
            semaphore.signal(0, stream);
            signal = node(stream);
        });
        line("set", set_signal(exec, signal, &semaphore, 3));
        line("destroy", graph_destroy(graph));
        line("launch", ended(graph_launch(exec, stream), stream));
        line("value", semaphore.value());
    }),
    ("events", || {
        let (words, stream, mut place) = (Words::new(), stream(), 0);
        let (first, second) = (event(NO_TIMING), event(NO_TIMING));
        let (_, exec) = capture(|stream| {
            park(stream, words, 0);
            check(record_with_flags(first, stream, 1));
            place = node(stream);
            park(stream, words, 1)
        });
        line("set", graph_set_record(exec, place, second));
        line("launch", graph_launch(exec, stream));
        let queries = || names(&[event_query(first), event_query(second)]);
        line("launched", queries());
        words.store(0, 1);
        line("in_the_middle", within(1000, || event_query(second) == 0));
        line("still_runs", stream_query(stream));
        words.store(1, 1);
        line("then", outcome(stream));
    }),
    // Two launches in flight, with an event each, and a wait whose event changes.
    ("event_in_flight", || {
        let (words, stream, other) = (Words::new(), stream(), stream());
        let (gate, done) = (
            [event(NO_TIMING), event(NO_TIMING)],
            [event(NO_TIMING), event(NO_TIMING)],
        );
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
        let queries = || names(&[event_query(done[0]), event_query(done[1])]);
        line("launched", queries());
        words.store(0, 1);
        line("first", within(1000, || event_query(done[0]) == 0));
        line("second_waits", !within(300, || event_query(done[1]) == 0));
        words.store(1, 1);
        line("then", outcome(stream));
        line("ended", queries());
    }),
    // A node that waits for an event without a record.
    ("event_never_recorded", || {
        let (stream, never, mut wait) = (stream(), event(NO_TIMING), 0);
        let (_, exec) = capture(|stream| {
            check(stream_wait_event(stream, never, 1));
            wait = node(stream);
        });
        let codes = ended(graph_launch(exec, stream), stream);
        line("captured", codes);
        let fresh = event(NO_TIMING);
        let codes = [
            graph_set_event_wait(exec, wait, fresh),
            graph_launch(exec, stream),
            outcome(stream),
        ];
        line("set", codes);
    }),
    // Waits for a word and writes of a word, with two launches in flight.
    ("words", || {
        let context = primary();
        let (words, stream, mut wait, mut write) = (Words::new(), stream(), 0, 0);
        let (graph, exec) = capture(|stream| {
            park(stream, words, 0);
            wait = node(stream);
            mark(stream, words, 1);
            write = node(stream);
        });
        line("kinds", super::capture::kinds(graph));
        for value in [1, 2] {
            let codes = [
                set_op(exec, wait, context, wait_op(words.at(0), value, 0)),
                set_op(exec, write, context, write_op(words.at(1), 10 * value, 0)),
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
        line(
            "address",
            set_op(exec, write, context, write_op(words.at(2), 1, 0)),
        );
        line(
            "other_kind",
            set_op(exec, wait, context, write_op(words.at(0), 1, 0)),
        );
        line(
            "flush",
            set_op(exec, wait, context, wait_op(words.at(0), 1, 1 << 30)),
        );
        line(
            "no_context",
            set_op(exec, write, 0, write_op(words.at(1), 1, 0)),
        );
    }),
    // What a change costs, and a launch with such nodes beside one without.
    ("cost", || {
        let (waited, signalled) = (timeline(), timeline());
        let (words, launching) = (Words::new(), stream());
        let (first, second) = (event(NO_TIMING), event(NO_TIMING));
        let idle = |exec| {
            move |_| {
                check(graph_launch(exec, launching));
                check(stream_synchronize(launching))
            }
        };
        let (_, plain) = capture(|stream| mark(stream, words, 0));
        line("launch_and_end_without", median(idle(plain)));
        let (mut wait, mut signal) = (0, 0);
        let (_, exec) = capture(|stream| {
            waited.wait(0, stream);
            wait = node(stream);
            mark(stream, words, 0);
            signalled.signal(0, stream);
            signal = node(stream);
        });
        line(
            "set_wait",
            median(|_| check(set_wait(exec, wait, &waited, 0))),
        );
        line(
            "set_signal",
            median(|round| check(set_signal(exec, signal, &signalled, round))),
        );
        let mut next = 2000;
        let both = median(|_| {
            next += 1;
            check(set_wait(exec, wait, &waited, 0));
            check(set_signal(exec, signal, &signalled, next));
            check(graph_launch(exec, launching));
            check(stream_synchronize(launching))
        });
        line("launch_and_end_with_two", both);
        let (mut place, mut gate) = (0, 0);
        let (_, exec) = capture(|stream| {
            check(stream_wait_event(stream, first, 1));
            gate = node(stream);
            mark(stream, words, 0);
            check(record_with_flags(first, stream, 1));
            place = node(stream);
        });
        line(
            "set_event_wait",
            median(|_| check(graph_set_event_wait(exec, gate, first))),
        );
        line(
            "set_record",
            median(|_| check(graph_set_record(exec, place, second))),
        );
        line("launch_and_end_with_events", median(idle(exec)));
    }),
];
