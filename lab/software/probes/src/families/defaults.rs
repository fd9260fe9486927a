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
    spin(first, words, 0);
    let code = event_record(event, second);
    let early = yes(within(300, || event_query(event) == 0));
    words.store(0, 1);
    let end = outcome(first);
    let late = yes(within(SOON, || event_query(event) == 0));
    format!("{code} {end}, passes: {early}, finishes: {late}")
}

fn kinds() -> [(&'static str, Handle); 4] {
    [
        ("blocking", stream_with(0)),
        ("non_blocking", stream()),
        ("legacy", 1),
        ("per_thread", 2),
    ]
}

/// Whether a call returns while a kernel spins in each kind of stream.
fn waits_for<T>(make: impl Fn() -> T, call: impl Fn(T) -> Code) {
    let mut made = [(); 4].map(|()| make()).into_iter();
    for (kind, stream) in kinds() {
        let words = Words::new();
        let one = need(made.next().ok_or_else(|| "no fifth one".into()));
        spin(stream, words, 0);
        let (code, early) = words.call_before(700, || call(one));
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
        let (words, event) = (Words::new(), event(NO_TIMING));
        spin(2, words, 0);
        let code = elsewhere(primary(), || event_record(event, 2));
        let early = within(300, || event_query(event) == 0);
        words.store(0, 1);
        answer((code, that("passes", early)));
    }),
    ("query_legacy", || {
        for (kind, stream) in kinds() {
            let words = Words::new();
            spin(stream, words, 0);
            line(kind, [0, 1, 2].map(stream_query));
            words.store(0, 1);
            outcome(stream);
        }
    }),
    ("synchronize_legacy", || {
        waits_for(|| 0, stream_synchronize);
    }),
    ("memcpy_waits", || {
        waits_for(|| alloc(64), |memory| read(memory).0);
    }),
    ("alloc_waits", || {
        waits_for(|| 64 << 20, |bytes| mem_alloc(&mut 0, bytes));
    }),
    ("free_waits", || waits_for(|| alloc(64), mem_free)),
    ("host_free_waits", || {
        waits_for(|| Words::new().host, mem_free_host);
    }),
    ("unload_waits", || waits_for(module, module_unload)),
    ("register_waits", || {
        let register = |memory| {
            check(mem_host_register(memory, 1 << 18, 3));
            mem_host_unregister(memory)
        };
        waits_for(|| leak(1 << 19), register);
    }),
];
