//! Kernels that fault, and what is left afterwards.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

/// A kernel and the parameters that cause a fault. It may use 4096 bytes of memory.
type Fault = fn(u64) -> (Handle, Vec<u64>);

const FAULTS: Table<Fault> = &[
    ("address_16", |_| (kernel(c"put"), vec![16, 1])),
    ("null", |_| (kernel(c"put"), vec![0, 1])),
    ("read_16", |memory| (kernel(c"copy"), vec![memory, 16])),
    ("past_end_8", |memory| past_end(memory, 0)),
    ("past_end_64_mib", |memory| past_end(memory, 64 << 20)),
    ("freed", |_| {
        let large = alloc(64 << 20);
        check(mem_free(large));
        (kernel(c"put"), vec![large, 1])
    }),
    ("misaligned", |memory| (kernel(c"put"), vec![memory + 1, 1])),
    ("trap", |_| (kernel(c"stop"), Vec::new())),
    ("pageable", |_| (kernel(c"put"), vec![leak(8192) as u64, 1])),
];

fn past_end(memory: u64, more: u64) -> (Handle, Vec<u64>) {
    (kernel(c"put"), vec![memory + 4096 + more, 1])
}

pub(crate) fn list(all: &mut Probes) {
    all.each("fault.kind", FAULTS, kind);
    all.family("fault", QUESTIONS);
}

fn kind(cause: Fault) {
    let (stream, event, before) = (stream(), event(NO_TIMING), event(NO_TIMING));
    record(before, stream);
    stream_synchronize(stream);
    let (function, params) = cause(alloc(4096));
    // The fault happens once everything is enqueued.
    let words = Words::new();
    park(stream, words, 0);
    let (launched, recorded) = (
        launch(function, stream, &params),
        event_record(event, stream),
    );
    words.store(0, 1);
    let codes = [
        launched,
        recorded,
        stream_synchronize(stream),
        event_query(event),
        event_query(before),
    ];
    let what = "launch, record, synchronize, query, query of an old event";
    answer(format!("{what}: {}", names(&codes)));
}

const QUESTIONS: Questions = &[
    // What other streams and events tell once a kernel has faulted.
    ("pending", || {
        let (parked, words) = (stream(), Words::new());
        let (complete, behind) = (event(NO_TIMING), event(NO_TIMING));
        record(complete, parked);
        stream_synchronize(parked);
        kernel(c"put");
        park(parked, words, 0);
        record(behind, parked);
        mark(parked, words, 1);
        line("synchronize", stream_synchronize(fault()));
        line("parked_event", event_query(behind));
        line("parked_stream", stream_query(parked));
        line("complete_event", event_query(complete));
        words.store(0, 1);
        line("parked_work_runs", marked_early(words, 1));
    }),
    // A context beside the one in which a kernel faulted.
    ("other_context", || {
        line("synchronize", stream_synchronize(fault()));
        line("create", ctx_create(&mut 0, 0, 0));
        line("set_back", ctx_set_current(primary()));
    }),
    ("recover_reset", || {
        line("synchronize", stream_synchronize(fault()));
        line("end", primary_reset(0));
        line("current_null", ctx_set_current(0));
        let (mut context, mut stream, mut words) = (0, 0, 0);
        line("retain", primary_retain(&mut context, 0));
        line("set", ctx_set_current(context));
        line("alloc", mem_alloc(&mut 0, 64));
        line("stream_create", stream_create(&mut stream, 1));
        line("host_alloc", mem_host_alloc(&mut words, 4096, 3));
        line("write", write_value64(stream, words as u64, 1, 0));
        line("stream_synchronize", stream_synchronize(stream));
        line("create", ctx_create(&mut 0, 0, 0));
    }),
    // Another context that existed before.
    ("new_context", || {
        let other = another_context();
        let (healthy, words) = (stream(), Words::new());
        current(primary());
        line("synchronize", stream_synchronize(fault()));
        line("set_other", ctx_set_current(other));
        line("stream_query", stream_query(healthy));
        line("write", write_value64(healthy, words.at(0), 1, 0));
        line("runs", marked_early(words, 0));
        line("alloc", mem_alloc(&mut 0, 64));
        line("synchronize_other", ctx_synchronize());
    }),
    // A context of its own that faults is destroyed. The primary one is healthy, or not.
    ("destroy_context", || {
        let (other, faulty) = (another_context(), stream());
        let put = kernel_of(module(), c"put");
        line("launch", launch(put, faulty, &[16, 1]));
        line("synchronize", stream_synchronize(faulty));
        line("destroy", ctx_destroy(other));
        line("set_primary", ctx_set_current(primary()));
        line("alloc", mem_alloc(&mut 0, 64));
        line("stream_create", stream_create(&mut 0, 1));
        line("create_again", ctx_create(&mut 0, 0, 0));
    }),
];
