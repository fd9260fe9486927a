//! Events.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("event", QUESTIONS);
    all.each("event.garbage", GARBAGE, |call| answer(call(leak(8192))));
}

/// Calls with a handle that points to zeros, where an H200 does not crash.
const GARBAGE: Table<fn(Handle) -> Code> = &[
    ("stream_query", stream_query),
    ("stream_destroy", stream_destroy),
    ("module_unload", module_unload),
    ("graph_destroy", graph_destroy),
];

const QUESTIONS: Questions = &[
    ("create_flags", || {
        for flags in 0..=8 {
            line(flags, event_create(&mut 0, flags));
        }
    }),
    ("unrecorded", || {
        let (fresh, other, stream) = (event(0), event(0), stream());
        line("query", event_query(fresh));
        line("synchronize", event_synchronize(fresh));
        line("wait", wait_for(stream, fresh));
        line("stream_query", stream_synchronize(stream));
        record(other, stream);
        stream_synchronize(stream);
        line("elapsed_start", elapsed(fresh, other));
        line("elapsed_end", elapsed(other, fresh));
    }),
    ("elapsed_untimed", || {
        let (timed, untimed, stream) = (event(0), event(NO_TIMING), stream());
        record(timed, stream);
        record(untimed, stream);
        stream_synchronize(stream);
        line("start", elapsed(untimed, timed));
        line("end", elapsed(timed, untimed));
    }),
    ("elapsed_pending", || {
        let (first, second, stream, words) = (event(0), event(0), stream(), Words::new());
        record(first, stream);
        stream_synchronize(stream);
        park(stream, words, 0);
        record(second, stream);
        let mut time = 7.0;
        line("end", event_elapsed_time(&mut time, first, second));
        line("result_kept", time == 7.0);
        line("start", elapsed(second, first));
        words.store(0, 1);
    }),
    ("elapsed_signs", || {
        let (first, second, stream) = (event(0), event(0), stream());
        for event in [first, second] {
            record(event, stream);
            stream_synchronize(stream);
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
        let (mut forth, mut back, mut none) = (0.0, 0.0, 7.0);
        let codes = [
            event_elapsed_time(&mut forth, first, second),
            event_elapsed_time(&mut back, second, first),
            event_elapsed_time(&mut none, first, first),
        ];
        line("codes", codes);
        let signs = [yes(forth > 1.0), yes(back < -1.0)].join(" ");
        line("signs", format!("{signs} {none}"));
        line("opposite", forth == -back);
    }),
    // A second stream waits for the first record, and the event is recorded again in a third.
    ("record_again", || {
        let (event, words) = (event(NO_TIMING), Words::new());
        let (first, waiter, third) = (stream(), stream(), stream());
        park(first, words, 0);
        record(event, first);
        line("wait", wait_for(waiter, event));
        mark(waiter, words, 1);
        record(event, third);
        within(2000, || event_query(event) == 0);
        line("query", event_query(event));
        line("waiter_took_new", marked_early(words, 1));
        words.store(0, 1);
        line("waiter_finishes", marked(words, 1));
    }),
    ("wait_before_record", || {
        let (event, words) = (event(NO_TIMING), Words::new());
        let (first, waiter) = (stream(), stream());
        line("wait", wait_for(waiter, event));
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
        line("wait", wait_for(waiter, event));
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
        wait(waiter, event);
        mark(waiter, words, 1);
        line("destroy", event_destroy(event));
        line("waiter_goes_on", marked_early(words, 1));
        words.store(0, 1);
        line("waiter_finishes", marked(words, 1));
    }),
    ("record_flags", || {
        let (event, stream) = (event(NO_TIMING), stream());
        for flags in 0..=2 {
            line(flags, record_with_flags(event, stream, flags));
        }
    }),
    ("wait_flags", || {
        let (event, stream) = (event(NO_TIMING), stream());
        record(event, stream);
        for flags in 0..=2 {
            line(flags, stream_wait_event(stream, event, flags));
        }
    }),
    ("null", || {
        let stream = stream();
        line("query", event_query(0));
        line("record", event_record(0, stream));
        line("wait", wait_for(stream, 0));
        line("elapsed_start", elapsed(0, event(0)));
        line("destroy", event_destroy(0));
        line("stream_destroy", stream_destroy(0));
        line("stream_destroy_per_thread", stream_destroy(2));
        line("module_unload", module_unload(0));
        line("get_function", function_of(0, c"nop"));
        line("launch", launch(0, stream, &[]));
        line("graph_launch", graph_launch(0, stream));
        line("graph_destroy", graph_destroy(0));
        line("graph_instantiate", graph_instantiate(&mut 0, 0, 0));
        line("user_object_release", user_object_release(0, 1));
        line("destroy_semaphore", destroy_semaphore(0));
        line("destroy_memory", destroy_memory(0));
        line("ctx_destroy", ctx_destroy(0));
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
    ("query_elsewhere", || {
        let (event, stream) = (event(NO_TIMING), stream());
        record(event, stream);
        stream_synchronize(stream);
        let ask = || [event_query(event), event_synchronize(event)];
        answer(elsewhere(0, ask));
    }),
    ("destroy_twice", || {
        let event = event(NO_TIMING);
        answer([event_destroy(event), event_destroy(event)]);
    }),
    // A stream is destroyed while its work is parked.
    ("stream_destroy_pending", || {
        let (event, stream, words) = (event(NO_TIMING), stream(), Words::new());
        park(stream, words, 0);
        mark(stream, words, 1);
        record(event, stream);
        line("destroy", stream_destroy(stream));
        line("query", event_query(event));
        words.store(0, 1);
        line("work_finishes", marked(words, 1));
        line("event_synchronize", event_synchronize(event));
    }),
];
