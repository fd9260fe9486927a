//! Objects of a context that is gone.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.each("context.after_destroy", AFTER, |call| {
        // First the primary context: in the other order an H200 returns 709 for five calls.
        let primary = primary();
        let other = another_context();
        let objects = Objects::new();
        current(primary);
        check(ctx_destroy(other));
        answer(call(objects));
    });
    all.each("context.after_release", AFTER, |call| {
        let objects = Objects::new();
        check(primary_release(0));
        answer(call(objects));
    });
}

const AFTER: &[(&str, Call)] = &[
    ("event_query", |it| event_query(it.timed)),
    ("event_synchronize", |it| event_synchronize(it.timed)),
    ("event_record", |it| event_record(it.fresh, it.stream)),
    ("event_elapsed", |it| elapsed(it.timed, it.timed)),
    ("event_destroy", |it| event_destroy(it.timed)),
    ("stream_query", |it| stream_query(it.stream)),
    ("stream_synchronize", |it| stream_synchronize(it.stream)),
    ("stream_get_ctx", |it| stream_get_ctx(it.stream, &mut 0)),
    ("stream_destroy", |it| stream_destroy(it.stream)),
    ("stream_wait_event", |it| {
        stream_wait_event(it.stream, it.timed, 0)
    }),
    ("mem_free", |it| mem_free(it.memory)),
    ("mem_free_host", |it| mem_free_host(it.words.host)),
    ("memcpy_dtoh", |it| memcpy_dtoh(leak(8), it.memory, 8)),
    ("get_function", |it| function_of(it.module, c"nop")),
    ("module_unload", |it| module_unload(it.module)),
    ("launch", |it| launch(it.nop, it.stream, &[])),
];
