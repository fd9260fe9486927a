//! Events.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("event", QUESTIONS);
    all.each("event.garbage", GARBAGE, |call| answer(call(leak(8192))));
}

type Call = fn(Handle) -> Code;

/// Calls with a handle that points to zeros.
const GARBAGE: &[(&str, Call)] = &[
    ("event_query", event_query),
    ("event_record", |garbage| event_record(garbage, 0)),
    ("event_destroy", event_destroy),
    ("stream_query", stream_query),
    ("stream_destroy", stream_destroy),
    ("module_unload", module_unload),
    ("graph_destroy", graph_destroy),
    ("destroy_semaphore", destroy_semaphore),
    ("destroy_memory", destroy_memory),
];

const QUESTIONS: Questions = &[
    ("create_flags", || {
        for flags in 0..=16 {
            line(flags, event_create(&mut 0, flags));
        }
    }),
    ("unrecorded", || {
        let (fresh, other, stream) = (event(0), event(0), stream());
        line("query", event_query(fresh));
        line("synchronize", event_synchronize(fresh));
        line("wait", stream_wait_event(stream, fresh, 0));
        line("stream_query", stream_synchronize(stream));
        line("elapsed_both", elapsed(fresh, other));
        record(other, stream);
        stream_synchronize(stream);
        line("elapsed_start", elapsed(fresh, other));
        line("elapsed_end", elapsed(other, fresh));
    }),
    ("elapsed_untimed", || {
        let (timed, untimed, stream) = (event(0), event(NO_TIMING), stream());
        line("unrecorded", elapsed(untimed, untimed));
        record(timed, stream);
        record(untimed, stream);
        stream_synchronize(stream);
        line("start", elapsed(untimed, timed));
        line("end", elapsed(timed, untimed));
    }),
    ("elapsed_pending", || {
        let (first, second, stream, words) = (event(0), event(0), stream(), Words::new());
        let untimed = event(NO_TIMING);
        record(first, stream);
        stream_synchronize(stream);
        park(stream, words, 0);
        record(second, stream);
        record(untimed, stream);
        let mut milliseconds = 7.0;
        line("end", event_elapsed_time(&mut milliseconds, first, second));
        line("result_kept", milliseconds == 7.0);
        line(
            "start",
            event_elapsed_time(&mut milliseconds, second, first),
        );
        line(
            "both",
            event_elapsed_time(&mut milliseconds, second, second),
        );
        line(
            "untimed",
            event_elapsed_time(&mut milliseconds, first, untimed),
        );
        words.store(0, 1);
    }),
    ("elapsed_signs", || {
        let (first, second, stream) = (event(0), event(0), stream());
        record(first, stream);
        stream_synchronize(stream);
        std::thread::sleep(std::time::Duration::from_millis(3));
        record(second, stream);
        stream_synchronize(stream);
        let (mut forth, mut back, mut none) = (0.0, 0.0, 7.0);
        let codes = [
            event_elapsed_time(&mut forth, first, second),
            event_elapsed_time(&mut back, second, first),
            event_elapsed_time(&mut none, first, first),
        ];
        line("codes", codes);
        line(
            "signs",
            format!("{} {} {none}", yes(forth > 1.0), yes(back < -1.0)),
        );
        line("opposite", forth == -back);
        line("microseconds_forth", format!("~{:.3}", forth * 1000.0));
    }),
    // A second stream waits for the first record, and the event is recorded again in a third.
    ("record_again", || {
        let (event, words) = (event(NO_TIMING), Words::new());
        let (first, waiter, third) = (stream(), stream(), stream());
        park(first, words, 0);
        record(event, first);
        line("wait", stream_wait_event(waiter, event, 0));
        mark(waiter, words, 1);
        record(event, third);
        line(
            "query",
            if within(2000, || event_query(event) == 0) {
                "0"
            } else {
                "600"
            },
        );
        line("waiter_took_new", marked_early(words, 1));
        words.store(0, 1);
        line("waiter_finishes", marked(words, 1));
    }),
    ("wait_before_record", || {
        let (event, words) = (event(NO_TIMING), Words::new());
        let (first, waiter) = (stream(), stream());
        line("wait", stream_wait_event(waiter, event, 0));
        mark(waiter, words, 1);
        park(first, words, 0);
        record(event, first);
        line("waiter_finishes", marked(words, 1));
        words.store(0, 1);
    }),
    // A wait for a complete event is enqueued behind a blocked stream. Then the event is recorded
    // again.
    //
    // The stream of the second record stays blocked.
    ("wait_keeps_record", || {
        let (event, words) = (event(NO_TIMING), Words::new());
        let (first, waiter) = (stream(), stream());
        record(event, first);
        stream_synchronize(first);
        park(waiter, words, 1);
        line("wait", stream_wait_event(waiter, event, 0));
        mark(waiter, words, 2);
        park(first, words, 0);
        record(event, first);
        words.store(1, 1);
        line("waiter_finishes", marked(words, 2));
        line("query", event_query(event));
        words.store(0, 1);
    }),
    ("destroy_pending", || {
        let (event, words) = (event(NO_TIMING), Words::new());
        let (first, waiter) = (stream(), stream());
        park(first, words, 0);
        record(event, first);
        stream_wait_event(waiter, event, 0);
        mark(waiter, words, 1);
        line("destroy", event_destroy(event));
        line("waiter_goes_on", marked_early(words, 1));
        words.store(0, 1);
        line("waiter_finishes", marked(words, 1));
    }),
    ("record_flags", || {
        let (event, stream) = (event(NO_TIMING), stream());
        for flags in [0, 1, 2, 3, 4, u32::MAX] {
            line(flags, record_with_flags(event, stream, flags));
        }
    }),
    ("wait_flags", || {
        let (event, stream) = (event(NO_TIMING), stream());
        for flags in [0, 1, 2, 3, 4, u32::MAX] {
            line(
                format!("unrecorded_{flags}"),
                stream_wait_event(stream, event, flags),
            );
        }
        record(event, stream);
        for flags in [0, 1, 2, 3, 4, u32::MAX] {
            line(flags, stream_wait_event(stream, event, flags));
        }
    }),
    ("null", || {
        let (event, stream) = (event(0), stream());
        line("query", event_query(0));
        line("synchronize", event_synchronize(0));
        line("record", event_record(0, stream));
        line("wait", stream_wait_event(stream, 0, 0));
        line("elapsed_start", elapsed(0, event));
        line("elapsed_end", elapsed(event, 0));
        line("destroy", event_destroy(0));
        line("stream_destroy", stream_destroy(0));
        line("stream_destroy_legacy", stream_destroy(1));
        line("stream_destroy_per_thread", stream_destroy(2));
        line("module_unload", module_unload(0));
        line("get_function", function_of(0, c"nop"));
        line("launch", launch(0, stream, &[]));
        line("graph_launch", graph_launch(0, stream));
        line("graph_destroy", graph_destroy(0));
        line("graph_exec_destroy", graph_exec_destroy(0));
        line("graph_instantiate", graph_instantiate(&mut 0, 0, 0));
        line("user_object_release", user_object_release(0, 1));
        line("destroy_semaphore", destroy_semaphore(0));
        line("destroy_memory", destroy_memory(0));
        line("ctx_destroy", ctx_destroy(0));
    }),
    ("record_null_stream", || {
        let event = event(0);
        let codes = [0, 1, 2].map(|stream| event_record(event, stream));
        answer([codes[0], codes[1], codes[2], event_synchronize(event)]);
    }),
    ("query_pending", || {
        let (event, stream, words) = (event(NO_TIMING), stream(), Words::new());
        park(stream, words, 0);
        record(event, stream);
        line("pending", [event_query(event), stream_query(stream)]);
        words.store(0, 1);
        line("then", [event_synchronize(event), event_query(event)]);
        line("stream", outcome(stream));
    }),
    ("synchronize_waits", || {
        let (stream, words) = (stream(), Words::new());
        for flags in [2, 3] {
            let event = event(flags);
            let gate = flags as usize;
            park(stream, words, gate);
            record(event, stream);
            let (code, open) = std::thread::scope(|scope| {
                scope.spawn(|| {
                    pause(200);
                    words.store(gate, 1);
                });
                let code = event_synchronize(event);
                (code, words.load(gate) == 1)
            });
            line(format!("flags_{flags}"), (code, that("waits", open)));
        }
    }),
    ("query_elsewhere", || {
        let (event, stream) = (event(NO_TIMING), stream());
        record(event, stream);
        stream_synchronize(stream);
        answer(elsewhere(0, || {
            [event_query(event), event_synchronize(event)]
        }));
    }),
    ("destroy_twice", || {
        let event = event(NO_TIMING);
        answer([
            event_destroy(event),
            event_destroy(event),
            event_query(event),
        ]);
    }),
    // A stream is destroyed while its work is parked.
    ("stream_destroy_pending", || {
        let (stream, words) = (stream(), Words::new());
        let event = event(NO_TIMING);
        park(stream, words, 0);
        mark(stream, words, 1);
        record(event, stream);
        line("destroy", stream_destroy(stream));
        line("query", event_query(event));
        words.store(0, 1);
        line("work_finishes", marked(words, 1));
        line("event_synchronize", event_synchronize(event));
    }),
    ("stream_destroy_then_query", || {
        let stream = stream();
        let codes = [
            stream_destroy(stream),
            stream_query(stream),
            stream_destroy(stream),
        ];
        answer(codes);
    }),
    ("wait_own_stream", || {
        let (event, stream) = (event(NO_TIMING), stream());
        record(event, stream);
        let code = stream_wait_event(stream, event, 0);
        answer((code, that("finishes", finishes(stream))));
    }),
];
