//! Host functions.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cuda::cu;
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, NO_TIMING, Words, context, event, kernel, launch, mark, marked, marked_early, name,
    names, outcome, park, pause, stream, within, yes,
};

pub(crate) fn list() -> Vec<Probe> {
    family!["host"; order, same_thread, not_calling_thread, call_inside, holds_up_stream,
        holds_up_other_stream, after_fault, behind_fault, in_null_stream, destroyed_stream,
        stream_query_inside]
}

static LOG: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static THREAD: Mutex<Option<std::thread::ThreadId>> = Mutex::new(None);
static CALLED: AtomicU64 = AtomicU64::new(0);
static GATE: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn log(number: usize) {
    LOG.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(number as u64);
}

unsafe extern "C" fn called(_: usize) {
    *THREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current().id());
    CALLED.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn wait_for_gate(_: usize) {
    while GATE.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

unsafe extern "C" fn call_cuda(stream: usize) {
    let mut handle = 0;
    line("ctx_get_current", name(cu().ctx_get_current(&mut handle)));
    line("current_is_null", yes(handle == 0));
    line(
        "event_create",
        name(cu().event_create(&mut handle, NO_TIMING)),
    );
    line("mem_alloc", name(cu().mem_alloc(&mut 0, 64)));
    line("stream_query", name(cu().stream_query(stream)));
    line("event_record", name(cu().event_record(handle, stream)));
    line("stream_create", name(cu().stream_create(&mut handle, 1)));
    line("device_get_count", name(cu().device_get_count(&mut 0)));
    line(
        "launch_host_func",
        name(cu().launch_host_func(stream, called, 0)),
    );
    CALLED.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn query(stream: usize) {
    line("stream_query", name(cu().stream_query(stream)));
    line("event_query_null", name(cu().event_query(0)));
    line("thread_exchange", name(cu().thread_exchange(&mut 2)));
    CALLED.fetch_add(1, Ordering::SeqCst);
}

fn was_called() -> bool {
    within(3000, || CALLED.load(Ordering::SeqCst) != 0)
}

fn order() -> Answer {
    context()?;
    let stream = stream()?;
    for number in 0..100 {
        let code = cu().launch_host_func(stream, log, number);
        if code != 0 {
            return Ok(name(code));
        }
    }
    let code = cu().stream_synchronize(stream);
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(format!(
        "{}, in order: {}",
        name(code),
        yes(log.iter().copied().eq(0..100))
    ))
}

fn same_thread() -> Answer {
    context()?;
    let (first, second) = (stream()?, stream()?);
    let mut threads = Vec::new();
    for stream in [first, first, second, 0] {
        let _ = cu().launch_host_func(stream, called, 0);
        let _ = cu().stream_synchronize(stream);
        threads.push(*THREAD.lock().unwrap_or_else(PoisonError::into_inner));
    }
    let same: Vec<_> = threads
        .iter()
        .map(|thread| yes(*thread == threads[0]))
        .collect();
    Ok(same.join(" "))
}

fn not_calling_thread() -> Answer {
    context()?;
    let stream = stream()?;
    let _ = cu().launch_host_func(stream, called, 0);
    let _ = cu().stream_synchronize(stream);
    let thread = *THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(yes(thread != Some(std::thread::current().id())).into())
}

fn call_inside() -> Answer {
    context()?;
    let stream = stream()?;
    line(
        "launch",
        name(cu().launch_host_func(stream, call_cuda, stream)),
    );
    was_called();
    line("then", name(outcome(stream)));
    Ok(String::new())
}

fn stream_query_inside() -> Answer {
    context()?;
    let stream = stream()?;
    line("launch", name(cu().launch_host_func(stream, query, stream)));
    was_called();
    line("then", name(outcome(stream)));
    Ok(String::new())
}

fn holds_up_stream() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    let _ = cu().launch_host_func(stream, wait_for_gate, 0);
    mark(stream, words, 0)?;
    let early = marked_early(words, 0);
    GATE.store(1, Ordering::SeqCst);
    Ok(format!(
        "{}, then finishes: {}",
        yes(!early),
        yes(marked(words, 0))
    ))
}

/// A host function that waits, and one in another stream.
fn holds_up_other_stream() -> Answer {
    context()?;
    let (first, second, words) = (stream()?, stream()?, Words::new()?);
    let _ = cu().launch_host_func(first, wait_for_gate, 0);
    let _ = cu().launch_host_func(second, called, 0);
    let function = within(300, || CALLED.load(Ordering::SeqCst) != 0);
    mark(stream()?, words, 0)?;
    let write = marked_early(words, 0);
    GATE.store(1, Ordering::SeqCst);
    Ok(format!(
        "host function: {}, write: {}",
        yes(!function),
        yes(!write)
    ))
}

fn after_fault() -> Answer {
    context()?;
    let (faulty, other) = (stream()?, stream()?);
    launch(kernel(c"put")?, faulty, &[16, 1]);
    line("synchronize", name(cu().stream_synchronize(faulty)));
    line("launch", name(cu().launch_host_func(other, called, 0)));
    line(
        "called",
        yes(within(1000, || CALLED.load(Ordering::SeqCst) != 0)),
    );
    Ok(String::new())
}

/// Host functions that were enqueued before the fault.
fn behind_fault() -> Answer {
    context()?;
    let (faulty, other, words) = (stream()?, stream()?, Words::new()?);
    let put = kernel(c"put")?;
    park(other, words, 0)?;
    let codes = [
        cu().launch_host_func(other, called, 0),
        launch(put, faulty, &[16, 1]),
    ];
    let behind = cu().launch_host_func(faulty, log, 1);
    line("launch", names(&[codes[0], codes[1], behind]));
    line("synchronize", name(cu().stream_synchronize(faulty)));
    words.store(0, 1);
    pause(500);
    line("other_called", yes(CALLED.load(Ordering::SeqCst) != 0));
    line(
        "behind_called",
        yes(!LOG
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()),
    );
    Ok(String::new())
}

fn in_null_stream() -> Answer {
    context()?;
    let _ = event(NO_TIMING)?;
    for stream in [0, 1, 2] {
        let code = cu().launch_host_func(stream, called, 0);
        line(stream, names(&[code, cu().stream_synchronize(stream)]));
    }
    Ok(CALLED.load(Ordering::SeqCst).to_string())
}

fn destroyed_stream() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    park(stream, words, 0)?;
    let codes = [
        cu().launch_host_func(stream, called, 0),
        cu().stream_destroy(stream),
    ];
    words.store(0, 1);
    Ok(format!("{}, called: {}", names(&codes), yes(was_called())))
}
