//! Objects of a context that is gone.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.each("context.after_destroy", AFTER, |call| {
        let other = another_context();
        let left = left();
        current(primary());
        check(ctx_destroy(other));
        answer(call(left));
    });
    all.each("context.after_release", AFTER, |call| {
        let left = left();
        check(primary_release(0));
        answer(call(left));
    });
}

/// Objects of a context that is gone.
struct Left {
    stream: Handle,
    event: Handle,
    recorded: Handle,
    memory: u64,
    host: usize,
    module: Handle,
    function: Handle,
}

type Call = fn(Left) -> Code;

const AFTER: &[(&str, Call)] = &[
    ("event_query", |it| event_query(it.recorded)),
    ("event_synchronize", |it| event_synchronize(it.recorded)),
    ("event_record", |it| event_record(it.event, it.stream)),
    ("event_elapsed", |it| elapsed(it.recorded, it.recorded)),
    ("event_destroy", |it| event_destroy(it.recorded)),
    ("stream_query", |it| stream_query(it.stream)),
    ("stream_synchronize", |it| stream_synchronize(it.stream)),
    ("stream_get_ctx", |it| stream_get_ctx(it.stream, &mut 0)),
    ("stream_destroy", |it| stream_destroy(it.stream)),
    ("stream_wait_event", |it| {
        stream_wait_event(it.stream, it.recorded, 0)
    }),
    ("mem_free", |it| mem_free(it.memory)),
    ("mem_free_host", |it| mem_free_host(it.host)),
    ("memcpy_dtoh", |it| memcpy_dtoh(leak(8), it.memory, 8)),
    ("get_function", |it| function_of(it.module, c"nop")),
    ("module_unload", |it| module_unload(it.module)),
    ("launch", |it| launch(it.function, it.stream, &[])),
];

fn left() -> Left {
    let (module, stream) = (module(), stream());
    let left = Left {
        stream,
        event: event(0),
        recorded: event(0),
        memory: alloc(64),
        host: Words::new().host,
        module,
        function: kernel_of(module, c"nop"),
    };
    record(left.recorded, stream);
    check(stream_synchronize(stream));
    left
}
