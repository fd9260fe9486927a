//! Graphs: launches, nodes for events, memory and semaphores.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use crate::vulkan::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("graph", QUESTIONS);
}

const QUESTIONS: Questions = &[
    ("instantiate_flags", || {
        let (graph, _) = memset_graph();
        for flags in [0, 1, 2, 4, 8, 16] {
            line(flags, graph_instantiate(&mut 0, graph, flags));
        }
        let mut graph = 0;
        let codes = [
            graph_create(&mut graph, 0),
            graph_instantiate(&mut 0, graph, 0),
        ];
        line("empty_graph", codes);
        line("create_flags_1", graph_create(&mut 0, 1));
    }),
    // A graph that is parked is launched again in another stream.
    ("launch_overlap", || {
        let (words, first, second) = (Words::new(), stream(), stream());
        kernel(c"spin");
        let (_, exec) = capture(|stream| {
            mark(stream, words, 1);
            spin(stream, words, 0)
        });
        line("first", graph_launch(exec, first));
        line("began", marked(words, 1));
        words.store(1, 0);
        line("second", graph_launch(exec, second));
        line("second_overlaps", marked_early(words, 1));
        words.store(0, 1);
        line("then", ended(outcome(first), second));
        line("second_ran", marked(words, 1));
    }),
    ("launch_null_streams", || {
        let (_, exec) = memset_graph();
        let [null, legacy, own] = [0, 1, 2].map(|stream| graph_launch(exec, stream));
        answer([null, legacy, own, ctx_synchronize()]);
    }),
    ("destroy_graph_first", || {
        let ((graph, exec), stream) = (memset_graph(), stream());
        let destroyed = graph_destroy(graph);
        let [launched, synchronized] = done(graph_launch(exec, stream), stream);
        let exec = graph_exec_destroy(exec);
        answer([destroyed, launched, synchronized, exec]);
    }),
    ("destroy_exec_running", || {
        let (words, stream) = (Words::new(), stream());
        kernel(c"spin");
        let (_, exec) = capture(|stream| {
            spin(stream, words, 0);
            mark(stream, words, 1)
        });
        line("launch", graph_launch(exec, stream));
        let (code, early) = words.call_before(1000, || graph_exec_destroy(exec));
        line("destroy", code);
        line("returns_while_running", early);
        line("then", outcome(stream));
        line("ran_to_its_end", marked_early(words, 1));
    }),
    ("record_node", || {
        let (words, stream, other, event) = (Words::new(), stream(), stream(), event(NO_TIMING));
        kernel(c"spin");
        let (_, exec) = capture(|stream| {
            spin(stream, words, 0);
            check(record_with_flags(event, stream, 1))
        });
        line("query_before", event_query(event));
        line("launch", graph_launch(exec, stream));
        line("query_running", event_query(event));
        line("wait", wait_for(other, event));
        mark(other, words, 1);
        line("waiter_passes", marked_early(words, 1));
        words.store(0, 1);
        line("waiter_finishes", marked(words, 1));
        line("then", [outcome(stream), event_query(event)]);
    }),
    ("record_node_timed", || {
        let (stream, first, second) = (stream(), event(0), event(0));
        let (_, exec) = capture(|stream| {
            check(record_with_flags(first, stream, 1));
            check(record_with_flags(second, stream, 1))
        });
        line("before", elapsed(first, second));
        line("launch", ended(graph_launch(exec, stream), stream));
        let mut time = -1.0;
        let code = event_elapsed_time(&mut time, first, second);
        line("after", (code, that("0 or more", time >= 0.0)));
    }),
    // The event is recorded anew between launches: which record is waited for?
    ("wait_node", || {
        let (words, stream, other, event) = (Words::new(), stream(), stream(), event(NO_TIMING));
        let (_, exec) = capture(|stream| {
            check(stream_wait_event(stream, event, 1));
            mark(stream, words, 1)
        });
        line("unrecorded", ended(graph_launch(exec, stream), stream));
        words.store(1, 0);
        park(other, words, 0);
        record(event, other);
        line("pending", graph_launch(exec, stream));
        line("pending_passes", marked_early(words, 1));
        words.store(0, 1);
        line("pending_finishes", marked(words, 1));
    }),
    // Parameters are read at the capture.
    ("parameters_copied", || {
        let (words, stream, put) = (Words::new(), stream(), kernel(c"put"));
        let mut params = [words.at(1), 5];
        let (_, exec) = capture(|stream| check(launch(put, stream, &params)));
        params[1] = 6;
        std::hint::black_box(&params);
        let codes = ended(graph_launch(exec, stream), stream);
        answer(format!("{} {}", names(&codes), words.load(1)));
    }),
    // Two branches. The first waits until the second releases it.
    ("branches_run_apart", || {
        let (words, stream, side) = (Words::new(), stream(), stream());
        let (fork, join) = (event(NO_TIMING), event(NO_TIMING));
        kernel(c"spin");
        let (_, exec) = capture(|stream| {
            record(fork, stream);
            wait(side, fork);
            spin(stream, words, 0);
            mark(side, words, 0);
            record(join, side);
            wait(stream, join)
        });
        answer(ended(graph_launch(exec, stream), stream));
        words.store(0, 1);
    }),
    ("semaphore_nodes", || {
        let (semaphore, stream) = (timeline(), stream());
        let (graph, exec) = capture(|stream| {
            semaphore.wait(1, stream);
            semaphore.signal(2, stream)
        });
        line("kinds", super::capture::kinds(graph));
        line("launch", graph_launch(exec, stream));
        line("waits", !idle(stream));
        need(semaphore.signal_host(1));
        line("then", outcome(stream));
        line("value", semaphore.value());
    }),
    ("no_current_launch", || {
        let ((_, exec), stream) = (memset_graph(), stream());
        current(0);
        line("launch", graph_launch(exec, stream));
        line("begin", stream_begin_capture(stream, 0));
        line("is_capturing", stream_is_capturing(stream, &mut 0));
        line("end", stream_end_capture(stream, &mut 0));
    }),
];
