//! Kernels that fault, and what each function returns afterwards.

use super::external_memory::import_fd;
use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use crate::vulkan::*;

/// A kernel and the parameters that cause a fault. It may use 4096 bytes of memory.
type Fault = fn(u64) -> (Handle, Vec<u64>);

const ADDRESS_16: Fault = |_| (kernel(c"put"), vec![16, 1]);

const FAULTS: &[(&str, Fault)] = &[
    ("address_16", ADDRESS_16),
    ("null", |_| (kernel(c"put"), vec![0, 1])),
    ("read_16", |memory| (kernel(c"copy"), vec![memory, 16])),
    ("past_end_8", |memory| past_end(memory, 0)),
    ("past_end_page", |memory| past_end(memory, 4096)),
    ("past_end_2_mib", |memory| past_end(memory, 2 << 20)),
    ("past_end_64_mib", |memory| past_end(memory, 64 << 20)),
    ("past_end_1_tib", |memory| past_end(memory, 1 << 40)),
    ("read_past_end", |memory| {
        (kernel(c"copy"), vec![memory, memory + (1 << 40)])
    }),
    ("freed", |_| {
        let large = alloc(64 << 20);
        check(mem_free(large));
        (kernel(c"put"), vec![large, 1])
    }),
    ("misaligned", |memory| (kernel(c"put"), vec![memory + 1, 1])),
    ("trap", |_| (kernel(c"stop"), Vec::new())),
    ("pageable", |_| (kernel(c"put"), vec![leak(8192) as u64, 1])),
    ("straddles_end", |_| {
        (kernel(c"put"), vec![alloc(12) + 8, 1])
    }),
];

fn past_end(memory: u64, more: u64) -> (Handle, Vec<u64>) {
    (kernel(c"put"), vec![memory + 4096 + more, 1])
}

pub(crate) fn list(all: &mut Probes) {
    all.each("fault.kind", FAULTS, kind);
    all.family("fault", QUESTIONS);
    all.each("fault.then", CALLS, |call| {
        answer(call(faulted()));
    });
}

fn kind(fault: Fault) {
    let (stream, event, before) = (stream(), event(NO_TIMING), event(NO_TIMING));
    record(before, stream);
    stream_synchronize(stream);
    let (function, params) = fault(alloc(4096));
    // The fault happens once everything is enqueued.
    let words = Words::new();
    park(stream, words, 0);
    let launched = launch(function, stream, &params);
    let recorded = event_record(event, stream);
    words.store(0, 1);
    let then = [
        stream_synchronize(stream),
        event_query(event),
        event_query(before),
    ];
    answer(format!(
        "launch, record, synchronize, query, query of an old event: {launched} {recorded} {}",
        names(&then)
    ));
}

/// Launches a kernel that faults, in a new stream.
fn cause() -> Handle {
    let (faulty, put) = (stream(), kernel(c"put"));
    launch(put, faulty, &[16, 1]);
    faulty
}

const QUESTIONS: Questions = &[
    // What other streams and events tell once a kernel has faulted.
    ("pending", || {
        let (faulty, parked, words) = (stream(), stream(), Words::new());
        let (complete, behind) = (event(NO_TIMING), event(NO_TIMING));
        record(complete, parked);
        stream_synchronize(parked);
        let put = kernel(c"put");
        park(parked, words, 0);
        record(behind, parked);
        mark(parked, words, 1);
        launch(put, faulty, &[16, 1]);
        line("synchronize", stream_synchronize(faulty));
        line("parked_event", event_query(behind));
        line("parked_stream", stream_query(parked));
        line("complete_event", event_query(complete));
        words.store(0, 1);
        line("parked_work_runs", marked_early(words, 1));
    }),
    // A context beside the one in which a kernel faulted.
    ("other_context", || {
        line("synchronize", stream_synchronize(cause()));
        line("create", ctx_create(&mut 0, 0, 0));
        line("set_back", ctx_set_current(primary()));
    }),
    ("recover_release", || recover(|| primary_release(0))),
    ("recover_reset", || recover(|| primary_reset(0))),
    // Another context that existed before.
    ("new_context", || {
        let other = another_context();
        let (healthy, words) = (stream(), Words::new());
        current(primary());
        line("synchronize", stream_synchronize(cause()));
        line("set_other", ctx_set_current(other));
        line("stream_query", stream_query(healthy));
        line("write", write_value64(healthy, words.at(0), 1, 0));
        line("runs", marked_early(words, 0));
        line("alloc", mem_alloc(&mut 0, 64));
        line("synchronize_other", ctx_synchronize());
    }),
    // A context of its own that faults is destroyed. The primary one is healthy, or not.
    ("destroy_context", || {
        let words = Words::new();
        let (other, faulty) = (another_context(), stream());
        let put = kernel_of(module(), c"put");
        line("launch", launch(put, faulty, &[16, 1]));
        line("synchronize", stream_synchronize(faulty));
        line("destroy", ctx_destroy(other));
        line("set_primary", ctx_set_current(primary()));
        line("alloc", mem_alloc(&mut 0, 64));
        let mut stream = 0;
        line("stream_create", stream_create(&mut stream, 1));
        line("write", write_value64(stream, words.at(0), 1, 0));
        line("create_again", ctx_create(&mut 0, 0, 0));
    }),
];

fn recover(end: fn() -> Code) {
    line("synchronize", stream_synchronize(cause()));
    line("end", end());
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
}

/// Objects of a context in which a kernel has faulted.
fn faulted() -> Objects {
    let objects = Objects::new();
    cause();
    if ctx_synchronize() == 0 {
        stop("not asked: no fault");
    }
    objects
}

/// Every function of the backend's table that needs a context, and some more.
const CALLS: &[(&str, Call)] = &[
    ("init", |_| init(0)),
    ("device_get_count", |_| device_get_count(&mut 0)),
    ("device_get", |_| device_get(&mut 0, 0)),
    ("device_get_attribute", |_| {
        device_get_attribute(&mut 0, 75, 0)
    }),
    ("device_get_name", |_| {
        device_get_name(&mut [0; 256], 256, 0)
    }),
    ("device_get_uuid", |_| device_get_uuid(&mut [0; 16], 0)),
    ("primary_retain", |_| primary_retain(&mut 0, 0)),
    ("primary_release", |_| primary_release(0)),
    ("primary_reset", |_| primary_reset(0)),
    ("ctx_create", |_| ctx_create(&mut 0, 0, 0)),
    ("ctx_get_device", |_| ctx_get_device(&mut 0)),
    ("ctx_get_current", |_| ctx_get_current(&mut 0)),
    ("ctx_set_current", |_| ctx_set_current(primary())),
    ("ctx_set_current_null", |_| ctx_set_current(0)),
    ("ctx_push_current", |_| ctx_push_current(primary())),
    ("ctx_pop_current", |_| ctx_pop_current(&mut 0)),
    ("ctx_synchronize", |_| ctx_synchronize()),
    ("ctx_priority_range", |_| ctx_priority_range(&mut 0, &mut 0)),
    ("thread_exchange", |_| thread_exchange(&mut 2)),
    ("event_create", |_| event_create(&mut 0, 2)),
    ("event_destroy", |it| event_destroy(it.complete)),
    ("event_record", |it| event_record(it.fresh, it.stream)),
    ("event_record_with_flags", |it| {
        record_with_flags(it.fresh, it.stream, 0)
    }),
    ("event_query_complete", |it| event_query(it.complete)),
    ("event_query_unrecorded", |it| event_query(it.fresh)),
    ("event_synchronize_complete", |it| {
        event_synchronize(it.complete)
    }),
    ("event_elapsed_time", |it| elapsed(it.timed, it.timed)),
    ("stream_create", |_| stream_create(&mut 0, 1)),
    ("stream_create_with_priority", |_| {
        create_with_priority(&mut 0, 1, 0)
    }),
    ("stream_destroy", |it| stream_destroy(it.stream)),
    ("stream_query", |it| stream_query(it.stream)),
    ("stream_query_null", |_| stream_query(0)),
    ("stream_synchronize", |it| stream_synchronize(it.stream)),
    ("stream_wait_event", |it| {
        stream_wait_event(it.stream, it.complete, 0)
    }),
    ("stream_get_ctx", |it| stream_get_ctx(it.stream, &mut 0)),
    ("stream_get_capture_info", |it| {
        capture_info(it.stream, &mut 0, &mut 0, &mut 0, 0, 0)
    }),
    ("stream_begin_capture", |it| {
        stream_begin_capture(it.stream, 2)
    }),
    ("launch_host_func", |it| {
        launch_host_func(it.stream, nothing, 0)
    }),
    ("user_object_create", |_| {
        user_object_create(&mut 0, 0, nothing, 1, 1)
    }),
    ("user_object_release", |it| {
        user_object_release(it.user_object, 1)
    }),
    ("graph_retain_user_object", |it| {
        retain_user_object(it.graph, it.user_object, 1, 0)
    }),
    ("graph_create", |_| graph_create(&mut 0, 0)),
    ("graph_instantiate", |it| {
        graph_instantiate(&mut 0, it.graph, 0)
    }),
    ("graph_launch", |it| graph_launch(it.exec, it.stream)),
    ("graph_destroy", |it| graph_destroy(it.graph)),
    ("graph_exec_destroy", |it| graph_exec_destroy(it.exec)),
    ("mem_alloc", |_| mem_alloc(&mut 0, 64)),
    ("mem_free", |it| mem_free(it.memory)),
    ("mem_free_null", |_| mem_free(0)),
    ("mem_host_alloc", |_| mem_host_alloc(&mut 0, 64, 3)),
    ("mem_free_host", |it| mem_free_host(it.words.host)),
    ("mem_host_register", |it| {
        mem_host_register(it.registered + 8192, 4096, 3)
    }),
    ("mem_host_unregister", |it| {
        mem_host_unregister(it.registered)
    }),
    ("mem_host_get_device_pointer", |it| {
        device_pointer(&mut 0, it.words.host, 0)
    }),
    ("memcpy_dtoh", |it| memcpy_dtoh(it.words.host, it.memory, 8)),
    ("memcpy_htod", |it| memcpy_htod(it.memory, it.words.host, 8)),
    ("memcpy_dtod_async", |it| {
        memcpy_dtod_async(it.memory, it.memory + 8, 8, it.stream)
    }),
    ("memset_d32_async", |it| {
        memset_d32_async(it.memory, 1, 1, it.stream)
    }),
    ("module_load_data", |_| load_module()),
    ("module_unload", |it| module_unload(it.module)),
    ("module_get_function", |it| function_of(it.module, c"put")),
    ("func_load", |it| func_load(it.nop)),
    ("launch_kernel", |it| launch(it.nop, it.stream, &[])),
    ("stream_wait_value64", |it| {
        wait_value64(it.stream, it.words.at(0), 0, 0)
    }),
    ("stream_write_value64", |it| {
        write_value64(it.stream, it.words.at(0), 0, 0)
    }),
    ("stream_batch_mem_op", |it| {
        batch(it.stream, &[write_op(it.words.at(0), 1, 0)], 0)
    }),
    ("ipc_get_event_handle", |it| {
        get_event_handle(&mut EventHandle([0; 64]), it.interprocess)
    }),
    ("ipc_open_event_handle", |_| {
        open_event_handle(&mut 0, EventHandle([0; 64]))
    }),
    ("import_semaphore_closed", |_| import(TIMELINE_FD, -1).0),
    ("import_memory_closed", |_| import_fd(-1, 4096, 0).0),
    ("get_error_name", |_| get_error_name(700, &mut 0)),
    ("driver_get_version", |_| driver_get_version(&mut 0)),
];
