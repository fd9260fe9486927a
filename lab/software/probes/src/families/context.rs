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

const QUESTIONS: Questions = &[
    ("release_too_often", || {
        answer([primary_release(0), primary_release(0), primary_reset(0)])
    }),
    ("stack", || {
        let primary = primary();
        let mut other = 0;
        let created = ctx_create(&mut other, 0, 0);
        let which = |handle: Handle| match handle {
            0 => "none",
            _ if handle == primary => "primary",
            _ if handle == other => "other",
            _ => "unknown",
        };
        let show = |step: &str, code: Code| {
            let mut handle = 0;
            ctx_get_current(&mut handle);
            line(step, format!("{code}, current: {}", which(handle)));
        };
        show("1_created", created);
        show("2_push_primary", ctx_push_current(primary));
        let mut popped = 0;
        let code = ctx_pop_current(&mut popped);
        show("3_pop", code);
        line("3_popped", which(popped));
        show("4_set_null", ctx_set_current(0));
        let code = ctx_pop_current(&mut popped);
        show("5_pop", code);
        show("6_push_other", ctx_push_current(other));
        show("7_set_primary", ctx_set_current(primary));
        let code = ctx_pop_current(&mut popped);
        show("8_pop", code);
        let code = ctx_pop_current(&mut popped);
        show("9_pop", code);
    }),
    ("none_current", || {
        let words = Words::new();
        current(0);
        let (mut handle, mut pointer) = (0, 0);
        line("event_create", event_create(&mut handle, NO_TIMING));
        line("stream_create", stream_create(&mut handle, 1));
        line("mem_alloc", mem_alloc(&mut pointer, 64));
        line("mem_free_null", mem_free(0));
        line("mem_host_alloc", mem_host_alloc(&mut handle, 64, 3));
        line("memcpy_dtoh", memcpy_dtoh(words.host, words.at(9), 8));
        line("memcpy_htod", memcpy_htod(words.at(9), words.host, 8));
        line(
            "device_pointer",
            device_pointer(&mut pointer, words.host, 0),
        );
        let load = load_module();
        line("module_load", format!("cuModuleLoadData returned {load}"));
        line("priority_range", ctx_priority_range(&mut 0, &mut 0));
        line("stream_query_null", stream_query(0));
        line("stream_synchronize_null", stream_synchronize(0));
        line("memset_null_stream", memset_d32_async(words.at(9), 1, 1, 0));
        line("graph_create", graph_create(&mut handle, 0));
        line("thread_exchange", thread_exchange(&mut 0));
    }),
    // Objects of a context, used by a thread without a current context.
    ("work_without_current", || {
        let (words, stream, nop) = (Words::new(), stream(), kernel_of(module(), c"nop"));
        let (event, timed) = (event(NO_TIMING), event(0));
        current(0);
        line("record", event_record(event, stream));
        line("record_timed", event_record(timed, stream));
        line("wait", stream_wait_event(stream, event, 0));
        line("wait_value", wait_value64(stream, words.at(0), 0, 0));
        line("write_value", write_value64(stream, words.at(1), 1, 0));
        line("memset", memset_d32_async(words.at(2), 1, 1, stream));
        line(
            "copy",
            memcpy_dtod_async(words.at(3), words.at(2), 8, stream),
        );
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
        let primary = primary();
        let own = stream();
        let ask = |when: &str| {
            for (which, stream) in [("null", 0), ("legacy", 1), ("per_thread", 2), ("own", own)] {
                let mut handle = 7;
                let code = stream_get_ctx(stream, &mut handle);
                let same = yes(handle == primary);
                line(
                    format!("{which}_{when}"),
                    format!("{code}, primary: {same}"),
                );
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
        let codes = [event_record(event, other), event_record(timed, other)];
        current(primary);
        answer([codes[0], codes[1], event_record(event, other)]);
    }),
    ("wait_for_other", || {
        let primary = primary();
        let (event, stream_of_primary, words) = (event(NO_TIMING), stream(), Words::new());
        another_context();
        let other = stream();
        park(stream_of_primary, words, 0);
        current(primary);
        record(event, stream_of_primary);
        line("code", stream_wait_event(other, event, 0));
        let early = idle(other);
        words.store(0, 1);
        line("waits", !early);
        line("finishes", finishes(other));
    }),
    ("elapsed_of_other", || {
        let (start, from) = (event(0), stream());
        record(start, from);
        another_context();
        let (end, to) = (event(0), stream());
        record(end, to);
        check(ctx_synchronize());
        event_synchronize(start);
        answer(elapsed(start, end));
    }),
    ("memory_of_other", || {
        let (mut pointer, mut value) = (0, 0_u64);
        check(mem_alloc(&mut pointer, 64));
        another_context();
        let stream = stream();
        line("memset", memset_d32_async(pointer, 1, 1, stream));
        line("synchronize", stream_synchronize(stream));
        line("copy", memcpy_dtoh(&raw mut value as usize, pointer, 8));
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
        let primary = primary();
        let other = another_context();
        let code = ctx_destroy(other);
        let mut handle = 0;
        let get = ctx_get_current(&mut handle);
        let now = match handle {
            0 => "none",
            _ if handle == primary => "primary",
            _ => "other",
        };
        let create = event_create(&mut 0, 0);
        answer(format!(
            "{}, current: {now}, event create: {create}",
            names(&[code, get])
        ));
    }),
    // A context that is current to another thread.
    ("destroy_pushed", || {
        let primary = primary();
        let other = another_context();
        current(primary);
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let set = ctx_set_current(other);
            let _ = ready.send(());
            let _ = gone.recv();
            let mut handle = 0;
            let get = ctx_get_current(&mut handle);
            (set, get, handle == other, event_create(&mut 0, 0))
        });
        let _ = is_ready.recv();
        let destroyed = ctx_destroy(other);
        let _ = go.send(());
        let joined = thread.join().map_err(|_| "a thread has panicked".into());
        let (set, get, same, create) = need(joined);
        answer(format!(
            "{set} {destroyed} {get}, still current: {}, event create: {create}",
            u32::from(same)
        ));
    }),
    ("destroy_primary", || {
        let primary = primary();
        let codes = [
            ctx_destroy(primary),
            event_create(&mut 0, 0),
            primary_release(0),
        ];
        answer(codes);
    }),
    ("destroy_with_work", || {
        let other = another_context();
        with_work(|| ctx_destroy(other))
    }),
    ("release_with_work", || with_work(|| primary_release(0))),
    ("reset_with_work", || with_work(|| primary_reset(0))),
    ("create_after_release", || {
        let first = primary();
        check(primary_release(0));
        let mut handle = 0;
        let get = ctx_get_current(&mut handle);
        line("still_current", format!("{get} {}", yes(handle == first)));
        line("event_create", event_create(&mut 0, 0));
        line("mem_alloc", mem_alloc(&mut 0, 8));
        let again = context();
        line("same_handle", first == again);
        let (words, stream) = (Words::new(), stream());
        mark(stream, words, 0);
        line("works", marked(words, 0));
        line(
            "from_other_thread",
            elsewhere(again, || event_create(&mut 0, 0)),
        );
    }),
];

const BARE: Questions = &[
    ("primary_twice", || {
        check(init(0));
        let (mut first, mut second) = (0, 0);
        let codes = [
            primary_retain(&mut first, 0),
            primary_retain(&mut second, 0),
        ];
        answer((codes, that("same", first == second)));
    }),
    ("primary_state", || {
        check(init(0));
        let state = |when: &str| {
            let (mut flags, mut active) = (99, -9);
            let code = primary_get_state(0, &mut flags, &mut active);
            line(when, format!("{code} {flags} {active}"));
        };
        state("before");
        context();
        state("retained");
        primary_release(0);
        state("released");
    }),
    ("stack_empty", || {
        check(init(0));
        let mut handle = 7;
        let code = ctx_get_current(&mut handle);
        line("get", (code, that("null", handle == 0)));
        line("pop", ctx_pop_current(&mut handle));
        line("set_null", ctx_set_current(0));
        line("push_null", ctx_push_current(0));
        line("device", ctx_get_device(&mut 0));
        line("synchronize", ctx_synchronize());
    }),
];
