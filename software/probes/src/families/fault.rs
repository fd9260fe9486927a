//! Kernels that fault, and what each function returns afterwards.

use crate::cuda::{EventHandle, Handle, cu};
use crate::harness::{Probe, line};
use crate::kit::{
    Answer, NO_TIMING, Words, alloc, check, context, event, kernel, kernel_of, launch, mark,
    module, name, names, park, record, stream, write_op, yes,
};

#[derive(Clone, Copy)]
enum Fault {
    Address16,
    PastEnd(u64),
    Freed,
    Misaligned,
    Trap,
    Pageable,
    Null,
    Read16,
    ReadPastEnd,
    TooFewBytes,
}

const FAULTS: &[(&str, Fault)] = &[
    ("address_16", Fault::Address16),
    ("null", Fault::Null),
    ("read_16", Fault::Read16),
    ("past_end_8", Fault::PastEnd(0)),
    ("past_end_page", Fault::PastEnd(4096)),
    ("past_end_2_mib", Fault::PastEnd(2 << 20)),
    ("past_end_64_mib", Fault::PastEnd(64 << 20)),
    ("past_end_1_tib", Fault::PastEnd(1 << 40)),
    ("read_past_end", Fault::ReadPastEnd),
    ("freed", Fault::Freed),
    ("misaligned", Fault::Misaligned),
    ("trap", Fault::Trap),
    ("pageable", Fault::Pageable),
    ("straddles_end", Fault::TooFewBytes),
];

pub(crate) fn list() -> Vec<Probe> {
    let mut list = Vec::new();
    for (name, fault) in FAULTS {
        list.push(Probe::new(format!("fault.kind.{name}"), move || {
            kind(*fault)
        }));
    }
    list.push(Probe::new("fault.pending", pending));
    list.push(Probe::new("fault.other_context", other_context));
    list.push(Probe::new("fault.recover_release", || recover(false)));
    list.push(Probe::new("fault.recover_reset", || recover(true)));
    list.push(Probe::new("fault.new_context", new_context));
    list.push(Probe::new("fault.destroy_context", destroy_context));
    for (name, call) in CALLS {
        list.push(Probe::new(format!("fault.then.{name}"), move || {
            let left = faulted()?;
            Ok(crate::kit::name(call(left)))
        }));
    }
    list
}

/// The kernel and the parameters that cause a fault.
fn prepare(fault: Fault) -> Result<(Handle, Vec<u64>), String> {
    let (put, copy) = (kernel(c"put")?, kernel(c"copy")?);
    let memory = alloc(4096)?;
    Ok(match fault {
        Fault::Address16 => (put, vec![16, 1]),
        Fault::Null => (put, vec![0, 1]),
        Fault::Read16 => (copy, vec![memory, 16]),
        Fault::PastEnd(more) => (put, vec![memory + 4096 + more, 1]),
        Fault::ReadPastEnd => (copy, vec![memory, memory + (1 << 40)]),
        Fault::Freed => {
            let large = alloc(64 << 20)?;
            check("cuMemFree", cu().mem_free(large))?;
            (put, vec![large, 1])
        }
        Fault::Misaligned => (put, vec![memory + 1, 1]),
        Fault::Trap => (kernel(c"stop")?, Vec::new()),
        Fault::Pageable => {
            let host = Box::leak(Box::new([0_u64; 1024])).as_ptr() as u64;
            (put, vec![host, 1])
        }
        Fault::TooFewBytes => (put, vec![alloc(12)? + 8, 1]),
    })
}

fn cause(fault: Fault, stream: Handle) -> Result<u32, String> {
    let (function, params) = prepare(fault)?;
    Ok(launch(function, stream, &params))
}

fn kind(fault: Fault) -> Answer {
    context()?;
    let (stream, event, before) = (stream()?, event(NO_TIMING)?, event(NO_TIMING)?);
    record(before, stream)?;
    let _ = cu().stream_synchronize(stream);
    let (function, params) = prepare(fault)?;
    // The fault happens once everything is enqueued.
    let words = Words::new()?;
    park(stream, words, 0)?;
    let launched = launch(function, stream, &params);
    let recorded = cu().event_record(event, stream);
    words.store(0, 1);
    let synchronized = cu().stream_synchronize(stream);
    let codes = [
        launched,
        recorded,
        synchronized,
        cu().event_query(event),
        cu().event_query(before),
    ];
    Ok(format!(
        "launch, record, synchronize, query, query of an old event: {}",
        names(&codes)
    ))
}

/// What other streams and events tell once a kernel has faulted.
fn pending() -> Answer {
    context()?;
    let (faulty, parked, words) = (stream()?, stream()?, Words::new()?);
    let (complete, behind) = (event(NO_TIMING)?, event(NO_TIMING)?);
    record(complete, parked)?;
    let _ = cu().stream_synchronize(parked);
    let (function, params) = prepare(Fault::Address16)?;
    park(parked, words, 0)?;
    record(behind, parked)?;
    mark(parked, words, 1)?;
    launch(function, faulty, &params);
    line("synchronize", name(cu().stream_synchronize(faulty)));
    line("parked_event", name(cu().event_query(behind)));
    line("parked_stream", name(cu().stream_query(parked)));
    line("complete_event", name(cu().event_query(complete)));
    words.store(0, 1);
    line("parked_work_runs", yes(crate::kit::marked_early(words, 1)));
    Ok(String::new())
}

/// A context beside the one in which a kernel faulted.
fn other_context() -> Answer {
    let primary = context()?;
    let faulty = stream()?;
    cause(Fault::Address16, faulty)?;
    line("synchronize", name(cu().stream_synchronize(faulty)));
    let mut other = 0;
    line("create", name(cu().ctx_create(&mut other, 0, 0)));
    line("set_back", name(cu().ctx_set_current(primary)));
    Ok(String::new())
}

/// Another context that existed before.
fn new_context() -> Answer {
    let primary = context()?;
    let faulty = stream()?;
    let other = crate::kit::another_context()?;
    let (healthy, words) = (stream()?, Words::new()?);
    crate::kit::current(primary)?;
    cause(Fault::Address16, faulty)?;
    line("synchronize", name(cu().stream_synchronize(faulty)));
    line("set_other", name(cu().ctx_set_current(other)));
    line("stream_query", name(cu().stream_query(healthy)));
    line(
        "write",
        name(cu().stream_write_value64(healthy, words.at(0), 1, 0)),
    );
    line("runs", yes(crate::kit::marked_early(words, 0)));
    line("alloc", name(cu().mem_alloc(&mut 0, 64)));
    line("synchronize_other", name(cu().ctx_synchronize()));
    Ok(String::new())
}

/// A context of its own that faults is destroyed. The primary one is healthy, or not.
fn destroy_context() -> Answer {
    let primary = context()?;
    let words = Words::new()?;
    let other = crate::kit::another_context()?;
    let faulty = stream()?;
    let module = module()?;
    let put = kernel_of(module, c"put")?;
    line("launch", name(launch(put, faulty, &[16, 1])));
    line("synchronize", name(cu().stream_synchronize(faulty)));
    line("destroy", name(cu().ctx_destroy(other)));
    line("set_primary", name(cu().ctx_set_current(primary)));
    line("alloc", name(cu().mem_alloc(&mut 0, 64)));
    let mut stream = 0;
    line("stream_create", name(cu().stream_create(&mut stream, 1)));
    line(
        "write",
        name(cu().stream_write_value64(stream, words.at(0), 1, 0)),
    );
    line("create_again", name(cu().ctx_create(&mut 0, 0, 0)));
    Ok(String::new())
}

fn recover(reset: bool) -> Answer {
    context()?;
    let faulty = stream()?;
    cause(Fault::Address16, faulty)?;
    line("synchronize", name(cu().stream_synchronize(faulty)));
    let code = if reset {
        cu().primary_reset(0)
    } else {
        cu().primary_release(0)
    };
    line("end", name(code));
    line("current_null", name(cu().ctx_set_current(0)));
    let mut context = 0;
    line("retain", name(cu().primary_retain(&mut context, 0)));
    line("set", name(cu().ctx_set_current(context)));
    line("alloc", name(cu().mem_alloc(&mut 0, 64)));
    let mut stream = 0;
    line("stream_create", name(cu().stream_create(&mut stream, 1)));
    let mut words = 0;
    line("host_alloc", name(cu().mem_host_alloc(&mut words, 4096, 3)));
    line(
        "write",
        name(cu().stream_write_value64(stream, words as u64, 1, 0)),
    );
    line("stream_synchronize", name(cu().stream_synchronize(stream)));
    line("create", name(cu().ctx_create(&mut 0, 0, 0)));
    Ok(String::new())
}

/// What exists when a kernel has faulted.
#[derive(Clone, Copy)]
struct Left {
    context: Handle,
    stream: Handle,
    fresh: Handle,
    complete: Handle,
    timed: Handle,
    interprocess: Handle,
    memory: u64,
    words: Words,
    module: Handle,
    nop: Handle,
    graph: Handle,
    exec: Handle,
    object: Handle,
    registered: usize,
}

unsafe extern "C" fn nothing(_: usize) {}

fn faulted() -> Result<Left, String> {
    let context = context()?;
    let (stream, module, memory) = (stream()?, module()?, alloc(4096)?);
    let (mut graph, mut exec, mut object) = (0, 0, 0);
    check("cuStreamBeginCapture", cu().stream_begin_capture(stream, 2))?;
    check(
        "cuMemsetD32Async",
        cu().memset_d32_async(memory, 1, 1, stream),
    )?;
    check(
        "cuStreamEndCapture",
        cu().stream_end_capture(stream, &mut graph),
    )?;
    check(
        "cuGraphInstantiate",
        cu().graph_instantiate(&mut exec, graph, 0),
    )?;
    check(
        "cuUserObjectCreate",
        cu().user_object_create(&mut object, 0, nothing, 1, 1),
    )?;
    let registered = Box::leak(Box::new([0_u64; 2048])).as_ptr() as usize;
    check(
        "cuMemHostRegister",
        cu().mem_host_register(registered, 4096, 3),
    )?;
    let left = Left {
        context,
        stream,
        fresh: event(NO_TIMING)?,
        complete: event(NO_TIMING)?,
        timed: event(0)?,
        interprocess: event(6)?,
        memory,
        words: Words::new()?,
        module,
        nop: kernel_of(module, c"nop")?,
        graph,
        exec,
        object,
        registered,
    };
    record(left.complete, stream)?;
    record(left.timed, stream)?;
    check("cuStreamSynchronize", cu().stream_synchronize(stream))?;
    cause(Fault::Address16, crate::kit::stream()?)?;
    match cu().ctx_synchronize() {
        0 => Err("no fault".into()),
        _ => Ok(left),
    }
}

type Call = fn(Left) -> u32;

/// Every function of the backend's table that needs a context, and some more.
const CALLS: &[(&str, Call)] = &[
    ("init", |_| cu().init(0)),
    ("device_get_count", |_| cu().device_get_count(&mut 0)),
    ("device_get", |_| cu().device_get(&mut 0, 0)),
    ("device_get_attribute", |_| {
        cu().device_get_attribute(&mut 0, 75, 0)
    }),
    ("device_get_name", |_| {
        cu().device_get_name(&mut [0; 256], 256, 0)
    }),
    ("device_get_uuid", |_| cu().device_get_uuid(&mut [0; 16], 0)),
    ("primary_retain", |_| cu().primary_retain(&mut 0, 0)),
    ("primary_release", |_| cu().primary_release(0)),
    ("primary_reset", |_| cu().primary_reset(0)),
    ("ctx_create", |_| cu().ctx_create(&mut 0, 0, 0)),
    ("ctx_get_device", |_| cu().ctx_get_device(&mut 0)),
    ("ctx_get_current", |_| cu().ctx_get_current(&mut 0)),
    ("ctx_set_current", |left| cu().ctx_set_current(left.context)),
    ("ctx_set_current_null", |_| cu().ctx_set_current(0)),
    ("ctx_push_current", |left| {
        cu().ctx_push_current(left.context)
    }),
    ("ctx_pop_current", |_| cu().ctx_pop_current(&mut 0)),
    ("ctx_synchronize", |_| cu().ctx_synchronize()),
    ("ctx_priority_range", |_| {
        cu().ctx_priority_range(&mut 0, &mut 0)
    }),
    ("thread_exchange", |_| cu().thread_exchange(&mut 2)),
    ("event_create", |_| cu().event_create(&mut 0, 2)),
    ("event_destroy", |left| cu().event_destroy(left.complete)),
    ("event_record", |left| {
        cu().event_record(left.fresh, left.stream)
    }),
    ("event_record_with_flags", |left| {
        cu().event_record_with_flags(left.fresh, left.stream, 0)
    }),
    ("event_query_complete", |left| {
        cu().event_query(left.complete)
    }),
    ("event_query_unrecorded", |left| {
        cu().event_query(left.fresh)
    }),
    ("event_synchronize_complete", |left| {
        cu().event_synchronize(left.complete)
    }),
    ("event_elapsed_time", |left| {
        cu().event_elapsed_time(&mut 0.0, left.timed, left.timed)
    }),
    ("stream_create", |_| cu().stream_create(&mut 0, 1)),
    ("stream_create_with_priority", |_| {
        cu().stream_create_with_priority(&mut 0, 1, 0)
    }),
    ("stream_destroy", |left| cu().stream_destroy(left.stream)),
    ("stream_query", |left| cu().stream_query(left.stream)),
    ("stream_query_null", |_| cu().stream_query(0)),
    ("stream_synchronize", |left| {
        cu().stream_synchronize(left.stream)
    }),
    ("stream_wait_event", |left| {
        cu().stream_wait_event(left.stream, left.complete, 0)
    }),
    ("stream_get_ctx", |left| {
        cu().stream_get_ctx(left.stream, &mut 0)
    }),
    ("stream_get_capture_info", |left| {
        cu().stream_get_capture_info(left.stream, &mut 0, &mut 0, &mut 0, 0, 0)
    }),
    ("stream_begin_capture", |left| {
        cu().stream_begin_capture(left.stream, 2)
    }),
    ("launch_host_func", |left| {
        cu().launch_host_func(left.stream, nothing, 0)
    }),
    ("user_object_create", |_| {
        cu().user_object_create(&mut 0, 0, nothing, 1, 1)
    }),
    ("user_object_release", |left| {
        cu().user_object_release(left.object, 1)
    }),
    ("graph_retain_user_object", |left| {
        cu().graph_retain_user_object(left.graph, left.object, 1, 0)
    }),
    ("graph_create", |_| cu().graph_create(&mut 0, 0)),
    ("graph_instantiate", |left| {
        cu().graph_instantiate(&mut 0, left.graph, 0)
    }),
    ("graph_launch", |left| {
        cu().graph_launch(left.exec, left.stream)
    }),
    ("graph_destroy", |left| cu().graph_destroy(left.graph)),
    ("graph_exec_destroy", |left| {
        cu().graph_exec_destroy(left.exec)
    }),
    ("mem_alloc", |_| cu().mem_alloc(&mut 0, 64)),
    ("mem_free", |left| cu().mem_free(left.memory)),
    ("mem_free_null", |_| cu().mem_free(0)),
    ("mem_host_alloc", |_| cu().mem_host_alloc(&mut 0, 64, 3)),
    ("mem_free_host", |left| cu().mem_free_host(left.words.host)),
    ("mem_host_register", |left| {
        cu().mem_host_register(left.registered + 8192, 4096, 3)
    }),
    ("mem_host_unregister", |left| {
        cu().mem_host_unregister(left.registered)
    }),
    ("mem_host_get_device_pointer", |left| {
        cu().mem_host_get_device_pointer(&mut 0, left.words.host, 0)
    }),
    ("memcpy_dtoh", |left| {
        cu().memcpy_dtoh(left.words.host, left.memory, 8)
    }),
    ("memcpy_htod", |left| {
        cu().memcpy_htod(left.memory, left.words.host, 8)
    }),
    ("memcpy_dtod_async", |left| {
        cu().memcpy_dtod_async(left.memory, left.memory + 8, 8, left.stream)
    }),
    ("memset_d32_async", |left| {
        cu().memset_d32_async(left.memory, 1, 1, left.stream)
    }),
    ("module_load_data", |_| load()),
    ("module_unload", |left| cu().module_unload(left.module)),
    ("module_get_function", |left| {
        cu().module_get_function(&mut 0, left.module, c"put".as_ptr() as usize)
    }),
    ("func_load", |left| cu().func_load(left.nop)),
    ("launch_kernel", |left| launch(left.nop, left.stream, &[])),
    ("stream_wait_value64", |left| {
        cu().stream_wait_value64(left.stream, left.words.at(0), 0, 0)
    }),
    ("stream_write_value64", |left| {
        cu().stream_write_value64(left.stream, left.words.at(0), 0, 0)
    }),
    ("stream_batch_mem_op", |left| {
        let ops = [write_op(left.words.at(0), 1, 0)];
        cu().stream_batch_mem_op(left.stream, 1, ops.as_ptr() as usize, 0)
    }),
    ("ipc_get_event_handle", |left| {
        cu().ipc_get_event_handle(&mut EventHandle([0; 64]), left.interprocess)
    }),
    ("ipc_open_event_handle", |_| {
        cu().ipc_open_event_handle(&mut 0, EventHandle([0; 64]))
    }),
    ("import_semaphore_closed", |_| {
        let desc = crate::cuda::SemaphoreDesc {
            kind: 9,
            fd: -1,
            ..Default::default()
        };
        cu().import_semaphore(&mut 0, &desc)
    }),
    ("import_memory_closed", |_| {
        let desc = crate::cuda::MemoryDesc {
            kind: 1,
            fd: -1,
            size: 4096,
            ..Default::default()
        };
        cu().import_memory(&mut 0, &desc)
    }),
    ("get_error_name", |_| cu().get_error_name(700, &mut 0)),
    ("driver_get_version", |_| cu().driver_get_version(&mut 0)),
];

fn load() -> u32 {
    let text = c".version 6.4\n.target sm_60\n.address_size 64\n.visible .entry a() { ret; }";
    cu().module_load_data(&mut 0, text.as_ptr() as usize)
}
