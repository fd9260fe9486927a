//! Host functions.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;

pub(crate) fn list(all: &mut Probes) {
    all.family("host", QUESTIONS);
}

static LOG: Mutex<Vec<(usize, ThreadId)>> = Mutex::new(Vec::new());
static WAITS: AtomicBool = AtomicBool::new(false);
static GATE: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn log(number: usize) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.push((number, std::thread::current().id()));
}

/// The numbers and threads of the calls of [`log`] until now.
fn called() -> Vec<(usize, ThreadId)> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn call_log(stream: Handle, number: usize) -> Code {
    launch_host_func(stream, log, number)
}

fn is_called_within(milliseconds: u64) -> bool {
    within(milliseconds, || !called().is_empty())
}

unsafe extern "C" fn wait_for_gate(_: usize) {
    WAITS.store(true, Ordering::SeqCst);
    while GATE.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

unsafe extern "C" fn call_cuda(stream: usize) {
    let mut handle = 0;
    line("ctx_get_current", ctx_get_current(&mut handle));
    line("current_is_null", handle == 0);
    line("event_create", event_create(&mut handle, NO_TIMING));
    line("mem_alloc", mem_alloc(&mut 0, 64));
    line("stream_query", stream_query(stream));
    line("event_record", event_record(handle, stream));
    line("device_get_count", device_get_count(&mut 0));
    line("launch_host_func", call_log(stream, 0));
}

const QUESTIONS: Questions = &[
    ("order", || {
        let stream = stream();
        for number in 0..100 {
            check(call_log(stream, number));
        }
        let code = stream_synchronize(stream);
        let numbers = called().into_iter().map(|(number, _)| number);
        answer((code, that("in order", numbers.eq(0..100))));
    }),
    ("same_thread", || {
        let (first, second) = (stream(), stream());
        for stream in [first, first, second, 0] {
            check(call_log(stream, 0));
            stream_synchronize(stream);
        }
        let log = called();
        let same: Vec<_> = log.iter().map(|(_, id)| yes(*id == log[0].1)).collect();
        answer(same.join(" "));
    }),
    ("not_calling_thread", || {
        let stream = stream();
        check(call_log(stream, 0));
        stream_synchronize(stream);
        answer(called()[0].1 != std::thread::current().id());
    }),
    ("call_inside", || {
        let stream = stream();
        let code = launch_host_func(stream, call_cuda, stream);
        line("launch", code);
        is_called_within(SOON);
        line("then", outcome(stream));
    }),
    ("holds_up_stream", || {
        let (stream, words) = (stream(), Words::new());
        launch_host_func(stream, wait_for_gate, 0);
        mark(stream, words, 0);
        let early = marked_early(words, 0);
        GATE.store(1, Ordering::SeqCst);
        answer((yes(!early), that("then finishes", marked(words, 0))));
    }),
    // A host function that waits, and one in another stream.
    ("holds_up_other_stream", || {
        let (first, second, words) = (stream(), stream(), Words::new());
        launch_host_func(first, wait_for_gate, 0);
        // The driver may call the functions of two streams in either order.
        within(SOON, || WAITS.load(Ordering::SeqCst));
        check(call_log(second, 0));
        let function = yes(!is_called_within(300));
        mark(stream(), words, 0);
        let write = yes(!marked_early(words, 0));
        GATE.store(1, Ordering::SeqCst);
        answer(format!("host function: {function}, write: {write}"));
    }),
    // Host functions that are enqueued before a fault, behind a kernel and beside it.
    ("behind_fault", || {
        let (faulty, other, words) = (stream(), stream(), Words::new());
        let put = kernel(c"put");
        park(other, words, 0);
        let beside = call_log(other, 0);
        let kernel = launch(put, faulty, &[16, 1]);
        line("launch", [beside, kernel, call_log(faulty, 1)]);
        line("synchronize", stream_synchronize(faulty));
        words.store(0, 1);
        pause(500);
        let was_called = |number| called().iter().any(|(called, _)| *called == number);
        line("other_called", was_called(0));
        line("behind_called", was_called(1));
    }),
    ("in_null_stream", || {
        for stream in [0, 1, 2] {
            line(stream, done(call_log(stream, 0), stream));
        }
        answer(called().len());
    }),
    ("destroyed_stream", || {
        let (stream, words) = (stream(), Words::new());
        park(stream, words, 0);
        let codes = [call_log(stream, 0), stream_destroy(stream)];
        words.store(0, 1);
        answer((codes, that("called", is_called_within(SOON))));
    }),
];
