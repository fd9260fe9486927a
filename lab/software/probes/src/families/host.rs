//! Host functions.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) fn list(all: &mut Probes) {
    all.family("host", QUESTIONS);
}

static LOG: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static THREAD: Mutex<Option<std::thread::ThreadId>> = Mutex::new(None);
static CALLED: AtomicU64 = AtomicU64::new(0);
static WAITS: AtomicU64 = AtomicU64::new(0);
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
    WAITS.store(1, Ordering::SeqCst);
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
    line("stream_create", stream_create(&mut handle, 1));
    line("device_get_count", device_get_count(&mut 0));
    line("launch_host_func", launch_host_func(stream, called, 0));
    CALLED.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn query(stream: usize) {
    line("stream_query", stream_query(stream));
    line("event_query_null", event_query(0));
    line("thread_exchange", thread_exchange(&mut 2));
    CALLED.fetch_add(1, Ordering::SeqCst);
}

fn was_called() -> bool {
    within(3000, || CALLED.load(Ordering::SeqCst) != 0)
}

const QUESTIONS: Questions = &[
    ("order", || {
        let stream = stream();
        for number in 0..100 {
            let code = launch_host_func(stream, log, number);
            if code != 0 {
                return answer(code);
            }
        }
        let code = stream_synchronize(stream);
        let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        answer((code, that("in order", log.iter().copied().eq(0..100))));
    }),
    ("same_thread", || {
        let (first, second) = (stream(), stream());
        let mut threads = Vec::new();
        for stream in [first, first, second, 0] {
            launch_host_func(stream, called, 0);
            stream_synchronize(stream);
            threads.push(*THREAD.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let same: Vec<_> = threads
            .iter()
            .map(|thread| yes(*thread == threads[0]))
            .collect();
        answer(same.join(" "));
    }),
    ("not_calling_thread", || {
        let stream = stream();
        launch_host_func(stream, called, 0);
        stream_synchronize(stream);
        let thread = *THREAD.lock().unwrap_or_else(PoisonError::into_inner);
        answer(thread != Some(std::thread::current().id()));
    }),
    ("call_inside", || {
        let stream = stream();
        line("launch", launch_host_func(stream, call_cuda, stream));
        was_called();
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
        within(SOON, || WAITS.load(Ordering::SeqCst) != 0);
        launch_host_func(second, called, 0);
        let function = within(300, || CALLED.load(Ordering::SeqCst) != 0);
        mark(stream(), words, 0);
        let write = marked_early(words, 0);
        GATE.store(1, Ordering::SeqCst);
        answer(format!(
            "host function: {}, write: {}",
            yes(!function),
            yes(!write)
        ));
    }),
    ("after_fault", || {
        let (faulty, other) = (stream(), stream());
        launch(kernel(c"put"), faulty, &[16, 1]);
        line("synchronize", stream_synchronize(faulty));
        line("launch", launch_host_func(other, called, 0));
        line(
            "called",
            within(1000, || CALLED.load(Ordering::SeqCst) != 0),
        );
    }),
    // Host functions that were enqueued before the fault.
    ("behind_fault", || {
        let (faulty, other, words) = (stream(), stream(), Words::new());
        let put = kernel(c"put");
        park(other, words, 0);
        let codes = [
            launch_host_func(other, called, 0),
            launch(put, faulty, &[16, 1]),
        ];
        let behind = launch_host_func(faulty, log, 1);
        line("launch", [codes[0], codes[1], behind]);
        line("synchronize", stream_synchronize(faulty));
        words.store(0, 1);
        pause(500);
        line("other_called", CALLED.load(Ordering::SeqCst) != 0);
        line(
            "behind_called",
            !LOG.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_empty(),
        );
    }),
    ("in_null_stream", || {
        event(NO_TIMING);
        for stream in [0, 1, 2] {
            line(stream, done(launch_host_func(stream, called, 0), stream));
        }
        answer(CALLED.load(Ordering::SeqCst).to_string());
    }),
    ("destroyed_stream", || {
        let (stream, words) = (stream(), Words::new());
        park(stream, words, 0);
        let codes = [launch_host_func(stream, called, 0), stream_destroy(stream)];
        words.store(0, 1);
        answer((codes, that("called", was_called())));
    }),
    ("stream_query_inside", || {
        let stream = stream();
        line("launch", launch_host_func(stream, query, stream));
        was_called();
        line("then", outcome(stream));
    }),
];
