//! Contexts: the primary one, the stack of a thread, objects of another context, destruction.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("context", QUESTIONS);
    all.bare("context", BARE);
}

/// Whether a call returns while work is parked. The work is released after a second.
///
/// The word that releases it is memory that outlives the context.
fn with_work(call: impl FnOnce() -> Code) {
    let (words, stream) = (Words::registered(), stream());
    park(stream, words, 0);
    mark(stream, words, 1);
    let (code, early) = words.call_before(1000, call);
    answer((code, that("returns while work is parked", early)));
}

/// The current context, by the names of those that a question knows.
fn now(known: &[(&'static str, Handle)]) -> (Code, &'static str) {
    let mut handle = 0;
    let code = ctx_get_current(&mut handle);
    let known = known.iter().find(|(_, known)| *known == handle);
    let name = known.map_or("unknown", |(name, _)| name);
    (code, if handle == 0 { "none" } else { name })
}

const QUESTIONS: Questions = &[
    ("stack", || {
        let (primary, mut other, mut popped) = (primary(), 0, 0);
        let created = ctx_create(&mut other, 0, 0);
        let known = [("primary", primary), ("other", other)];
        let show = |step: &str, code: Code| {
            line(step, format!("{code}, current: {}", now(&known).1));
        };
        show("1_created", created);
        show("2_push_primary", ctx_push_current(primary));
        show("3_pop", ctx_pop_current(&mut popped));
        let right = popped == primary;
        line("3_popped", if right { "primary" } else { "another" });
        show("4_set_null", ctx_set_current(0));
        show("5_pop", ctx_pop_current(&mut popped));
        show("6_push_other", ctx_push_current(other));
        show("7_set_primary", ctx_set_current(primary));
        show("8_pop", ctx_pop_current(&mut popped));
        show("9_pop", ctx_pop_current(&mut popped));
    }),
    ("none_current", || {
        let words = Words::new();
        current(0);
        let mut pointer = 0;
        line("event_create", event_create(&mut 0, NO_TIMING));
        line("mem_alloc", mem_alloc(&mut pointer, 64));
        line("mem_free_null", mem_free(0));
        line("memcpy_dtoh", memcpy_dtoh(words.host, words.at(9), 8));
        let pointed = device_pointer(&mut pointer, words.host, 0);
        line("device_pointer", pointed);
        line("memset_null_stream", fill(words.at(9), 0));
        line("graph_create", graph_create(&mut 0, 0));
        line("thread_exchange", thread_exchange(&mut 0));
    }),
    // Objects of a context, used by a thread without a current context.
    ("work_without_current", || {
        let (words, stream, nop) = (Words::new(), stream(), kernel_of(module(), c"nop"));
        let (event, timed) = (event(NO_TIMING), event(0));
        let [waited, written, from, to] = [0, 1, 2, 3].map(|index| words.at(index));
        current(0);
        line("record", event_record(event, stream));
        line("record_timed", event_record(timed, stream));
        line("wait", wait_for(stream, event));
        line("wait_value", wait_value64(stream, waited, 0, 0));
        line("write_value", write_value64(stream, written, 1, 0));
        line("memset", fill(from, stream));
        line("copy", memcpy_dtod_async(to, from, 8, stream));
        line("launch", launch(nop, stream, &[]));
        line("synchronize", stream_synchronize(stream));
        line("stream_query", stream_query(stream));
        line("event_query", event_query(event));
        line("event_synchronize", event_synchronize(event));
        line("elapsed", elapsed(timed, timed));
        line("event_destroy", event_destroy(event));
        line("stream_destroy", stream_destroy(stream));
        line("host_free", mem_free_host(words.host));
    }),
    ("stream_get_ctx", || {
        let (primary, own) = (primary(), stream());
        let ask = |when: &str| {
            for (which, stream) in [("null", 0), ("per_thread", 2), ("own", own)] {
                let mut handle = 7;
                let code = stream_get_ctx(stream, &mut handle);
                let shown = (code, that("primary", handle == primary));
                line(format!("{which}_{when}"), shown);
            }
        };
        ask("current");
        current(0);
        ask("none_current");
        another_context();
        ask("other_current");
    }),
    ("record_in_other", || {
        let primary = primary();
        let (event, timed) = (event(NO_TIMING), event(0));
        another_context();
        let other = stream();
        let [plain, with_time] = [event, timed].map(|event| event_record(event, other));
        current(primary);
        answer([plain, with_time, event_record(event, other)]);
    }),
    ("wait_for_other", || {
        let (event, stream_of_primary, words) = (event(NO_TIMING), stream(), Words::new());
        another_context();
        let other = stream();
        park(stream_of_primary, words, 0);
        current(primary());
        record(event, stream_of_primary);
        line("code", wait_for(other, event));
        let early = idle(other);
        words.store(0, 1);
        line("waits", !early);
        line("finishes", finishes(other));
    }),
    ("memory_of_other", || {
        let pointer = alloc(64);
        another_context();
        let stream = stream();
        line("memset", fill(pointer, stream));
        line("synchronize", stream_synchronize(stream));
        line("copy", read(pointer).0);
        line("free", mem_free(pointer));
    }),
    ("set_garbage", || {
        let garbage = leak(8192);
        answer([ctx_set_current(garbage), ctx_push_current(garbage)]);
    }),
    ("push_destroyed", || {
        let other = another_context();
        check(ctx_destroy(other));
        line("destroy_again", ctx_destroy(other));
        line("set", ctx_set_current(other));
        line("push", ctx_push_current(other));
    }),
    ("destroy_current", || {
        let other = another_context();
        let code = ctx_destroy(other);
        let (get, name) = now(&[("primary", primary())]);
        let create = event_create(&mut 0, 0);
        answer(format!(
            "{code} {get}, current: {name}, event create: {create}"
        ));
    }),
    // A context that is current to another thread.
    ("destroy_pushed", || {
        let other = another_context();
        let set = ctx_set_current(other);
        let destroyed = elsewhere(primary(), || ctx_destroy(other));
        let (get, name) = now(&[("1", other)]);
        let create = event_create(&mut 0, 0);
        answer(format!(
            "{set} {destroyed} {get}, still current: {name}, event create: {create}"
        ));
    }),
    ("destroy_with_work", || {
        let other = another_context();
        with_work(|| ctx_destroy(other))
    }),
    ("release_with_work", || with_work(|| primary_release(0))),
];

const BARE: Questions = &[("stack_empty", || {
    check(init(0));
    let mut handle = 7;
    let code = ctx_get_current(&mut handle);
    line("get", (code, that("null", handle == 0)));
    line("pop", ctx_pop_current(&mut handle));
    line("set_null", ctx_set_current(0));
    line("push_null", ctx_push_current(0));
    line("device", ctx_get_device(&mut 0));
    line("synchronize", ctx_synchronize());
})];
