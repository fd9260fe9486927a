//! Graphs: launches, nodes for events, memory and semaphores, user objects.

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
        for flags in [0, 1, 2, 4, 8, 16, 1 << 40] {
            line(flags, graph_instantiate(&mut 0, graph, flags));
        }
        line("empty_graph", {
            let mut graph = 0;
            let code = graph_create(&mut graph, 0);
            names(&[code, graph_instantiate(&mut 0, graph, 0)])
        });
        line("create_flags_1", graph_create(&mut 0, 1));
    }),
    ("launch_twice", || {
        let ((_, exec), stream) = (memset_graph(), stream());
        let codes = [graph_launch(exec, stream), graph_launch(exec, stream)];
        answer([codes[0], codes[1], stream_synchronize(stream)]);
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
        let began = marked(words, 1);
        line("began", began);
        words.store(1, 0);
        line("second", graph_launch(exec, second));
        line("second_overlaps", marked_early(words, 1));
        words.store(0, 1);
        line("then", ended(outcome(first), second));
        line("second_ran", marked(words, 1));
    }),
    ("launch_two_streams", || {
        let ((_, exec), first, second, words) = (memset_graph(), stream(), stream(), Words::new());
        park(first, words, 0);
        line("behind_gate", graph_launch(exec, first));
        line("other", graph_launch(exec, second));
        line("other_finishes", idle(second));
        words.store(0, 1);
        line("then", ended(outcome(first), second));
    }),
    ("launch_null_streams", || {
        let (_, exec) = memset_graph();
        let codes = [0, 1, 2].map(|stream| graph_launch(exec, stream));
        answer([codes[0], codes[1], codes[2], ctx_synchronize()]);
    }),
    ("destroy_graph_first", || {
        let ((graph, exec), stream) = (memset_graph(), stream());
        answer([
            graph_destroy(graph),
            graph_launch(exec, stream),
            stream_synchronize(stream),
            graph_exec_destroy(exec),
        ]);
    }),
    ("destroy_exec_running", || {
        let (words, stream) = (Words::new(), stream());
        kernel(c"spin");
        let (_, exec) = capture(|stream| {
            spin(stream, words, 0);
            mark(stream, words, 1)
        });
        line("launch", graph_launch(exec, stream));
        let opener = words.open_after(1000);
        line("destroy", graph_exec_destroy(exec));
        line("returns_while_running", words.load(0) == 0);
        let _ = opener.join();
        line("then", outcome(stream));
        line("ran_to_its_end", marked_early(words, 1));
    }),
    ("destroy_exec_twice", || {
        let (_, exec) = memset_graph();
        answer([graph_exec_destroy(exec), graph_exec_destroy(exec)]);
    }),
    ("launch_destroyed", || {
        let ((_, exec), stream) = (memset_graph(), stream());
        answer([graph_exec_destroy(exec), graph_launch(exec, stream)]);
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
        line("wait", stream_wait_event(other, event, 0));
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
    ("wait_node_destroyed_event", || {
        let (words, stream, event) = (Words::new(), stream(), event(NO_TIMING));
        record(event, stream);
        let (_, exec) = capture(|stream| {
            check(stream_wait_event(stream, event, 1));
            mark(stream, words, 1)
        });
        line("destroy", event_destroy(event));
        line("launch", ended(graph_launch(exec, stream), stream));
    }),
    ("write_value_node", || {
        let (words, stream) = (Words::new(), stream());
        let (graph, exec) = capture(|stream| mark(stream, words, 1));
        line("kinds", super::capture::kinds(graph));
        line("launch", ended(graph_launch(exec, stream), stream));
        line("value", words.load(1));
    }),
    ("wait_value_node", || {
        let (words, stream) = (Words::new(), stream());
        let (_, exec) = capture(|stream| {
            park(stream, words, 0);
            mark(stream, words, 1)
        });
        line("launch", graph_launch(exec, stream));
        line("passes", marked_early(words, 1));
        words.store(0, 1);
        line("finishes", marked(words, 1));
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
            check(stream_wait_event(side, fork, 0));
            spin(stream, words, 0);
            mark(side, words, 0);
            record(join, side);
            check(stream_wait_event(stream, join, 0))
        });
        let code = graph_launch(exec, stream);
        let finished = outcome(stream);
        words.store(0, 1);
        answer([code, finished]);
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
        line("again", ended(graph_launch(exec, stream), stream));
        line("value_again", semaphore.value());
    }),
    ("launch_during_capture", || {
        let ((_, exec), stream, other) = (memset_graph(), stream(), stream());
        check(stream_begin_capture(stream, 2));
        line("captured", graph_launch(exec, stream));
        line("other", graph_launch(exec, other));
        let mut graph = 0;
        line("end", stream_end_capture(stream, &mut graph));
    }),
    ("no_current", || {
        let (graph, exec) = memset_graph();
        current(0);
        line("instantiate", graph_instantiate(&mut 0, graph, 0));
        line("exec_destroy", graph_exec_destroy(exec));
        line("graph_destroy", graph_destroy(graph));
    }),
    ("no_current_launch", || {
        let ((_, exec), stream) = (memset_graph(), stream());
        current(0);
        line("launch", graph_launch(exec, stream));
        line("begin", stream_begin_capture(stream, 0));
        line("is_capturing", stream_is_capturing(stream, &mut 0));
        line("end", stream_end_capture(stream, &mut 0));
        line("object", user_object_create(&mut 0, 0, nothing, 1, 1));
    }),
];
