//! The default streams: which streams the legacy stream waits for, and which wait for it.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("defaults", QUESTIONS);
}

/// Whether a record in `second` completes while a kernel spins in `first`.
fn passes(first: Handle, second: Handle) -> String {
    let (words, event) = (Words::new(), event(NO_TIMING));
    kernel(c"spin");
    spin(first, words, 0);
    let code = event_record(event, second);
    let early = within(300, || event_query(event) == 0);
    words.store(0, 1);
    let end = outcome(first);
    let late = within(3000, || event_query(event) == 0);
    format!(
        "{}, passes: {}, finishes: {}",
        names(&[code, end]),
        yes(early),
        yes(late)
    )
}

fn kinds() -> Vec<(&'static str, Handle)> {
    vec![
        ("blocking", stream_with(0)),
        ("non_blocking", stream()),
        ("legacy", 1),
        ("null", 0),
        ("per_thread", 2),
    ]
}

/// Whether a call returns while a kernel spins in each kind of stream.
fn waits_for(mut call: impl FnMut() -> Code) {
    for (kind, stream) in kinds() {
        let words = Words::new();
        spin(stream, words, 0);
        let (code, early) = words.call_before(700, &mut call);
        line(kind, (code, that("returns while the kernel runs", early)));
        outcome(stream);
    }
}

const QUESTIONS: Questions = &[
    ("legacy_behind_others", || {
        for (kind, stream) in kinds() {
            line(kind, passes(stream, 0));
        }
    }),
    ("others_behind_legacy", || {
        for (kind, stream) in kinds() {
            line(kind, passes(0, stream));
        }
    }),
    ("per_thread", || {
        for (kind, stream) in kinds() {
            line(format!("behind_{kind}"), passes(stream, 2));
            line(format!("in_front_of_{kind}"), passes(2, stream));
        }
    }),
    // The per-thread streams of two threads.
    ("per_thread_of_two", || {
        let context = primary();
        let (words, event) = (Words::new(), event(NO_TIMING));
        kernel(c"spin");
        spin(2, words, 0);
        let code = elsewhere(context, || event_record(event, 2));
        let early = within(300, || event_query(event) == 0);
        words.store(0, 1);
        answer((code, that("passes", early)));
    }),
    ("query_legacy", || {
        for (kind, stream) in kinds() {
            let words = Words::new();
            spin(stream, words, 0);
            line(kind, [stream_query(0), stream_query(1), stream_query(2)]);
            words.store(0, 1);
            outcome(stream);
        }
    }),
    ("synchronize_legacy", || waits_for(|| stream_synchronize(0))),
    ("event_in_legacy", || {
        let (first, second) = (stream_with(0), stream());
        let (words, event) = (Words::new(), event(NO_TIMING));
        spin(first, words, 0);
        record(event, 0);
        line("wait", stream_wait_event(second, event, 0));
        line("passes", idle(second));
        words.store(0, 1);
        line("then", outcome(second));
    }),
    ("memcpy_waits", || {
        let (memory, mut value) = (alloc(64), 0_u64);
        let address = &raw mut value as usize;
        waits_for(|| memcpy_dtoh(address, memory, 8))
    }),
    ("alloc_waits", || waits_for(|| mem_alloc(&mut 0, 64 << 20))),
    ("free_waits", || {
        let mut memory = [(); 5].map(|()| alloc(64)).into_iter();
        waits_for(|| mem_free(memory.next().unwrap_or_default()));
    }),
    ("host_free_waits", || {
        let mut memory = [(); 5].map(|()| Words::new().host).into_iter();
        waits_for(|| mem_free_host(memory.next().unwrap_or_default()));
    }),
    ("unload_waits", || {
        let mut modules = [(); 5].map(|()| module()).into_iter();
        waits_for(|| module_unload(modules.next().unwrap_or_default()));
    }),
    ("event_destroy_waits", || {
        waits_for(|| {
            let mut event = 0;
            event_create(&mut event, 2);
            event_record(event, 2);
            event_destroy(event)
        })
    }),
    ("stream_create_waits", || {
        waits_for(|| {
            let mut stream = 0;
            stream_create(&mut stream, 1);
            stream_destroy(stream)
        })
    }),
    ("register_waits", || {
        let memory = leak(1 << 19);
        waits_for(|| {
            let code = mem_host_register(memory, 1 << 18, 3);
            if code == 0 {
                mem_host_unregister(memory)
            } else {
                code
            }
        })
    }),
];
