//! Contexts: the primary one, the stack of a thread, objects of another context, destruction.

use crate::cuda::{Handle, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, NO_TIMING, Words, another_context, check, context, current, elsewhere, event, finishes,
    kernel_of, launch, mark, marked, module, name, names, park, pause, record, stream, within, yes,
};

pub(crate) fn list() -> Vec<Probe> {
    family!["context"; primary_twice, primary_state, release_too_often, stack_empty,
        stack, none_current, work_without_current, stream_get_ctx, record_in_other, wait_for_other,
        elapsed_of_other, memory_of_other, set_garbage, push_destroyed, destroy_current, destroy_pushed,
        destroy_primary, destroy_with_work, release_with_work, reset_with_work, create_after_release]
}

fn primary_twice() -> Answer {
    check("cuInit", cu().init(0))?;
    let (mut first, mut second) = (0, 0);
    let codes = [
        cu().primary_retain(&mut first, 0),
        cu().primary_retain(&mut second, 0),
    ];
    Ok(format!("{}, same: {}", names(&codes), yes(first == second)))
}

fn primary_state() -> Answer {
    check("cuInit", cu().init(0))?;
    let state = |when: &str| {
        let (mut flags, mut active) = (99, -9);
        let code = cu().primary_get_state(0, &mut flags, &mut active);
        line(when, format!("{} {flags} {active}", name(code)));
    };
    state("before");
    context()?;
    state("retained");
    let _ = cu().primary_release(0);
    state("released");
    Ok(String::new())
}

fn release_too_often() -> Answer {
    context()?;
    Ok(names(&[
        cu().primary_release(0),
        cu().primary_release(0),
        cu().primary_reset(0),
    ]))
}

fn stack_empty() -> Answer {
    check("cuInit", cu().init(0))?;
    let mut handle = 7;
    let code = cu().ctx_get_current(&mut handle);
    line("get", format!("{}, null: {}", name(code), yes(handle == 0)));
    line("pop", name(cu().ctx_pop_current(&mut handle)));
    line("set_null", name(cu().ctx_set_current(0)));
    line("push_null", name(cu().ctx_push_current(0)));
    line("device", name(cu().ctx_get_device(&mut 0)));
    line("synchronize", name(cu().ctx_synchronize()));
    Ok(String::new())
}

fn stack() -> Answer {
    let primary = context()?;
    let other = another_context()?;
    let which = |handle: Handle| match handle {
        0 => "none",
        _ if handle == primary => "primary",
        _ if handle == other => "other",
        _ => "unknown",
    };
    let show = |step: &str, code: u32| {
        let mut handle = 0;
        let _ = cu().ctx_get_current(&mut handle);
        line(step, format!("{}, current: {}", name(code), which(handle)));
    };
    show("1_created", 0);
    show("2_push_primary", cu().ctx_push_current(primary));
    let mut popped = 0;
    let code = cu().ctx_pop_current(&mut popped);
    show("3_pop", code);
    line("3_popped", which(popped));
    show("4_set_null", cu().ctx_set_current(0));
    let code = cu().ctx_pop_current(&mut popped);
    show("5_pop", code);
    show("6_push_other", cu().ctx_push_current(other));
    show("7_set_primary", cu().ctx_set_current(primary));
    let code = cu().ctx_pop_current(&mut popped);
    show("8_pop", code);
    let code = cu().ctx_pop_current(&mut popped);
    show("9_pop", code);
    Ok(String::new())
}

fn none_current() -> Answer {
    context()?;
    let words = Words::new()?;
    current(0)?;
    let (mut handle, mut pointer) = (0, 0);
    line(
        "event_create",
        name(cu().event_create(&mut handle, NO_TIMING)),
    );
    line("stream_create", name(cu().stream_create(&mut handle, 1)));
    line("mem_alloc", name(cu().mem_alloc(&mut pointer, 64)));
    line("mem_free_null", name(cu().mem_free(0)));
    line(
        "mem_host_alloc",
        name(cu().mem_host_alloc(&mut handle, 64, 3)),
    );
    line(
        "memcpy_dtoh",
        name(cu().memcpy_dtoh(words.host, words.at(9), 8)),
    );
    line(
        "memcpy_htod",
        name(cu().memcpy_htod(words.at(9), words.host, 8)),
    );
    line(
        "device_pointer",
        name(cu().mem_host_get_device_pointer(&mut pointer, words.host, 0)),
    );
    line("module_load", module().err().unwrap_or_else(|| "0".into()));
    line(
        "priority_range",
        name(cu().ctx_priority_range(&mut 0, &mut 0)),
    );
    line("stream_query_null", name(cu().stream_query(0)));
    line("stream_synchronize_null", name(cu().stream_synchronize(0)));
    line(
        "memset_null_stream",
        name(cu().memset_d32_async(words.at(9), 1, 1, 0)),
    );
    line("graph_create", name(cu().graph_create(&mut handle, 0)));
    line("thread_exchange", name(cu().thread_exchange(&mut 0)));
    Ok(String::new())
}

/// Objects of a context, used by a thread without a current context.
fn work_without_current() -> Answer {
    context()?;
    let (words, stream, nop) = (Words::new()?, stream()?, kernel_of(module()?, c"nop")?);
    let (event, timed) = (event(NO_TIMING)?, event(0)?);
    current(0)?;
    line("record", name(cu().event_record(event, stream)));
    line("record_timed", name(cu().event_record(timed, stream)));
    line("wait", name(cu().stream_wait_event(stream, event, 0)));
    line(
        "wait_value",
        name(cu().stream_wait_value64(stream, words.at(0), 0, 0)),
    );
    line(
        "write_value",
        name(cu().stream_write_value64(stream, words.at(1), 1, 0)),
    );
    line(
        "memset",
        name(cu().memset_d32_async(words.at(2), 1, 1, stream)),
    );
    line(
        "copy",
        name(cu().memcpy_dtod_async(words.at(3), words.at(2), 8, stream)),
    );
    line("launch", name(launch(nop, stream, &[])));
    line("synchronize", name(cu().stream_synchronize(stream)));
    line("stream_query", name(cu().stream_query(stream)));
    line("event_query", name(cu().event_query(event)));
    line("event_synchronize", name(cu().event_synchronize(event)));
    line(
        "elapsed",
        name(cu().event_elapsed_time(&mut 0.0, timed, timed)),
    );
    line("event_destroy", name(cu().event_destroy(event)));
    line("stream_destroy", name(cu().stream_destroy(stream)));
    line("host_free", name(cu().mem_free_host(words.host)));
    Ok(String::new())
}

fn stream_get_ctx() -> Answer {
    let primary = context()?;
    let own = stream()?;
    let ask = |when: &str| {
        for (which, stream) in [("null", 0), ("legacy", 1), ("per_thread", 2), ("own", own)] {
            let mut handle = 7;
            let code = cu().stream_get_ctx(stream, &mut handle);
            let same = yes(handle == primary);
            line(
                format!("{which}_{when}"),
                format!("{}, primary: {same}", name(code)),
            );
        }
    };
    ask("current");
    current(0)?;
    ask("none_current");
    another_context()?;
    ask("other_current");
    Ok(String::new())
}

fn record_in_other() -> Answer {
    let primary = context()?;
    let (event, timed) = (event(NO_TIMING)?, event(0)?);
    another_context()?;
    let other = stream()?;
    let codes = [
        cu().event_record(event, other),
        cu().event_record(timed, other),
    ];
    current(primary)?;
    Ok(names(&[
        codes[0],
        codes[1],
        cu().event_record(event, other),
    ]))
}

fn wait_for_other() -> Answer {
    let primary = context()?;
    let (event, stream_of_primary, words) = (event(NO_TIMING)?, stream()?, Words::new()?);
    another_context()?;
    let other = stream()?;
    park(stream_of_primary, words, 0)?;
    current(primary)?;
    record(event, stream_of_primary)?;
    line("code", name(cu().stream_wait_event(other, event, 0)));
    let early = within(300, || cu().stream_query(other) == 0);
    words.store(0, 1);
    line("waits", yes(!early));
    line("finishes", yes(finishes(other)));
    Ok(String::new())
}

fn elapsed_of_other() -> Answer {
    context()?;
    let (start, from) = (event(0)?, stream()?);
    record(start, from)?;
    another_context()?;
    let (end, to) = (event(0)?, stream()?);
    record(end, to)?;
    check("cuCtxSynchronize", cu().ctx_synchronize())?;
    let _ = cu().event_synchronize(start);
    Ok(name(cu().event_elapsed_time(&mut 0.0, start, end)))
}

fn memory_of_other() -> Answer {
    context()?;
    let (mut pointer, mut value) = (0, 0_u64);
    check("cuMemAlloc", cu().mem_alloc(&mut pointer, 64))?;
    another_context()?;
    let stream = stream()?;
    line("memset", name(cu().memset_d32_async(pointer, 1, 1, stream)));
    line("synchronize", name(cu().stream_synchronize(stream)));
    line(
        "copy",
        name(cu().memcpy_dtoh(&raw mut value as usize, pointer, 8)),
    );
    line("free", name(cu().mem_free(pointer)));
    Ok(String::new())
}

fn set_garbage() -> Answer {
    context()?;
    let garbage = Box::leak(Box::new([0_u64; 1024])).as_ptr() as usize;
    Ok(names(&[
        cu().ctx_set_current(garbage),
        cu().ctx_push_current(garbage),
    ]))
}

fn push_destroyed() -> Answer {
    context()?;
    let other = another_context()?;
    check("cuCtxDestroy", cu().ctx_destroy(other))?;
    line("destroy_again", name(cu().ctx_destroy(other)));
    line("set", name(cu().ctx_set_current(other)));
    line("push", name(cu().ctx_push_current(other)));
    Ok(String::new())
}

fn destroy_current() -> Answer {
    let primary = context()?;
    let other = another_context()?;
    let code = cu().ctx_destroy(other);
    let mut handle = 0;
    let get = cu().ctx_get_current(&mut handle);
    let now = match handle {
        0 => "none",
        _ if handle == primary => "primary",
        _ => "other",
    };
    let create = cu().event_create(&mut 0, 0);
    Ok(format!(
        "{}, current: {now}, event create: {}",
        names(&[code, get]),
        name(create)
    ))
}

/// A context that is current to another thread.
fn destroy_pushed() -> Answer {
    let primary = context()?;
    let other = another_context()?;
    current(primary)?;
    let codes = std::thread::scope(|scope| {
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = scope.spawn(move || {
            let set = cu().ctx_set_current(other);
            let _ = ready.send(());
            let _ = gone.recv();
            let mut handle = 0;
            let get = cu().ctx_get_current(&mut handle);
            [
                set,
                get,
                u32::from(handle == other),
                cu().event_create(&mut 0, 0),
            ]
        });
        let _ = is_ready.recv();
        let destroyed = cu().ctx_destroy(other);
        let _ = go.send(());
        thread.join().map(|codes| (destroyed, codes))
    });
    let (destroyed, [set, get, same, create]) = codes.map_err(|_| "a thread has panicked")?;
    let codes = names(&[set, destroyed, get]);
    Ok(format!(
        "{codes}, still current: {same}, event create: {}",
        name(create)
    ))
}

fn destroy_primary() -> Answer {
    let primary = context()?;
    let codes = [
        cu().ctx_destroy(primary),
        cu().event_create(&mut 0, 0),
        cu().primary_release(0),
    ];
    Ok(names(&codes))
}

/// Whether a call returns while work is parked. The work is released after a second.
///
/// The word that releases it is memory that outlives the context.
fn with_work(call: impl FnOnce() -> u32) -> Answer {
    let (words, stream) = (Words::registered()?, stream()?);
    park(stream, words, 0)?;
    mark(stream, words, 1)?;
    let opened = std::sync::atomic::AtomicBool::new(false);
    let (code, early) = std::thread::scope(|scope| {
        scope.spawn(|| {
            pause(1000);
            opened.store(true, std::sync::atomic::Ordering::SeqCst);
            words.store(0, 1);
        });
        let code = call();
        (code, !opened.load(std::sync::atomic::Ordering::SeqCst))
    });
    Ok(format!(
        "{}, returns while work is parked: {}",
        name(code),
        yes(early)
    ))
}

fn destroy_with_work() -> Answer {
    context()?;
    let other = another_context()?;
    with_work(|| cu().ctx_destroy(other))
}

fn release_with_work() -> Answer {
    context()?;
    with_work(|| cu().primary_release(0))
}

fn reset_with_work() -> Answer {
    context()?;
    with_work(|| cu().primary_reset(0))
}

fn create_after_release() -> Answer {
    let first = context()?;
    check("cuDevicePrimaryCtxRelease", cu().primary_release(0))?;
    let mut handle = 0;
    let get = cu().ctx_get_current(&mut handle);
    line(
        "still_current",
        format!("{} {}", name(get), yes(handle == first)),
    );
    line("event_create", name(cu().event_create(&mut 0, 0)));
    line("mem_alloc", name(cu().mem_alloc(&mut 0, 8)));
    let again = context()?;
    line("same_handle", yes(first == again));
    let (words, stream) = (Words::new()?, stream()?);
    mark(stream, words, 0)?;
    line("works", yes(marked(words, 0)));
    line(
        "from_other_thread",
        elsewhere(again, || name(cu().event_create(&mut 0, 0)))?,
    );
    Ok(String::new())
}
