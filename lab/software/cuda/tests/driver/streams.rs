//! Streams, events and hardware connections.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cuda::*;

extern "C" fn count(counter: *mut c_void) {
    // SAFETY: the tests pass a counter that outlives the work.
    unsafe { &*counter.cast::<AtomicU64>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn an_event_stands_for_its_latest_record() {
    let _context = Context::new();
    let (busy, idle) = (stream(), stream());
    let (event, gate) = (event(), Pinned::new(1));
    ok(cuEventQuery(event));
    ok(cuEventSynchronize(event));
    ok(cuStreamWaitValue64_v2(busy, gate.address(), 1, 0));
    ok(cuEventRecord(event, busy));
    assert_eq!(cuEventQuery(event), 600);
    assert_eq!(cuStreamQuery(busy), 600);
    // This wait is for the present record, also after the next one.
    ok(cuStreamWaitEvent(idle, event, 0));
    let other = stream();
    ok(cuEventRecord(event, other));
    ok(cuEventSynchronize(event));
    assert_eq!(cuStreamQuery(idle), 600);
    // The event may be destroyed before the wait ends.
    ok(cuEventDestroy_v2(event));
    assert_eq!(cuEventQuery(event), 400);
    gate.set(1);
    ok(cuStreamSynchronize(idle));
    ok(cuStreamQuery(busy));
}

#[test]
fn times_pass_between_timed_events() {
    let _context = Context::new();
    let (stream, gate) = (stream(), Pinned::new(1));
    let [start, end] = [
        made(|to| cuEventCreate(to, 0)),
        made(|to| cuEventCreate(to, 1)),
    ];
    let mut passed = 0.0;
    assert_eq!(cuEventElapsedTime(&raw mut passed, start, end), 400);
    ok(cuEventRecord(start, stream));
    ok(cuStreamWaitValue64_v2(stream, gate.address(), 1, 0));
    ok(cuEventRecord(end, stream));
    assert_eq!(cuEventElapsedTime(&raw mut passed, start, end), 600);
    ok(cuEventSynchronize(start));
    std::thread::sleep(std::time::Duration::from_millis(3));
    gate.set(1);
    ok(cuEventSynchronize(end));
    ok(cuEventElapsedTime(&raw mut passed, start, end));
    assert!(passed >= 3.0, "{passed} ms");
    assert_eq!(cuEventElapsedTime(&raw mut passed, start, event()), 400);
    for flags in [4, 8, 16] {
        assert_eq!(cuEventCreate(&mut 0, flags), 1);
    }
}

#[test]
fn eight_streams_that_wait_hold_up_all_others() {
    let _context = Context::new();
    let gate = Pinned::new(2);
    let address = gate.address();
    let streams: Vec<_> = (0..32).map(|_| stream()).collect();
    let (waiting, others) = streams.split_at(8);
    for parked in &waiting[..7] {
        ok(cuStreamWaitValue64_v2(*parked, address, 1, 0));
    }
    // One connection is left. Any stream can use it.
    for (value, stream) in (1..).zip(others) {
        ok(cuStreamWriteValue64_v2(*stream, address + 8, value, 0));
        ok(cuStreamSynchronize(*stream));
        assert_eq!(gate.words()[1].load(Ordering::Acquire), value);
    }
    // Streams that wait for an event or run a kernel use no connection.
    let behind = event();
    ok(cuEventRecord(behind, waiting[0]));
    for stream in &others[..9] {
        ok(cuStreamWaitEvent(*stream, behind, 0));
    }
    ok(cuStreamWriteValue64_v2(others[10], address + 8, 100, 0));
    ok(cuStreamSynchronize(others[10]));
    // A wait that is over uses none either. With the eighth wait no stream continues.
    ok(cuStreamWaitValue64_v2(waiting[7], address + 8, 100, 0));
    ok(cuStreamSynchronize(waiting[7]));
    ok(cuStreamWaitValue64_v2(waiting[7], address, 1, 0));
    ok(cuStreamWriteValue64_v2(others[11], address + 8, 200, 0));
    assert_eq!(cuStreamQuery(others[11]), 600);
    gate.set(1);
    ok(cuCtxSynchronize());
    assert_eq!(gate.words()[1].load(Ordering::Acquire), 200);
}

#[test]
fn a_full_stream_blocks_the_calling_thread() {
    let context = Context::new();
    let (full, gate, taken) = (stream(), Pinned::new(2), AtomicU64::new(0));
    let (address, event) = (gate.address(), event());
    ok(cuStreamWaitValue64_v2(full, address, 1, 0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ok(cuCtxSetCurrent(context.0));
            for _ in 0..1100 {
                ok(cuMemsetD32Async(address + 8, 1, 1, full));
                taken.fetch_add(1, Ordering::SeqCst);
            }
        });
        // The wait and these are 1021 commands.
        eventually(|| taken.load(Ordering::SeqCst) == 1020);
        // Another stream has its own budget, and records need none.
        let other = stream();
        for _ in 0..1100 {
            ok(cuMemsetD32Async(address + 12, 1, 1, other));
        }
        ok(cuEventRecord(event, full));
        assert_eq!(cuEventQuery(event), 600);
        assert_eq!(taken.load(Ordering::SeqCst), 1020);
        gate.set(1);
    });
    ok(cuCtxSynchronize());
    assert_eq!(taken.load(Ordering::SeqCst), 1100);
}

#[test]
fn the_legacy_stream_is_in_order_with_blocking_streams() {
    let _context = Context::new();
    let blocking = made(|to| cuStreamCreate(to, 0));
    let (free, gate) = (stream(), Pinned::new(2));
    let address = gate.address();
    ok(cuStreamWaitValue64_v2(blocking, address, 1, 0));
    for legacy in [0, 1] {
        ok(cuMemsetD32Async(address + 8, 5, 1, legacy));
        assert_eq!(cuStreamQuery(legacy), 600);
    }
    ok(cuMemsetD32Async(address + 12, 6, 1, free));
    ok(cuStreamSynchronize(free));
    assert_eq!(gate.words()[1].load(Ordering::Acquire), 6 << 32);
    gate.set(1);
    ok(cuStreamSynchronize(0));
    assert_eq!(gate.words()[1].load(Ordering::Acquire), (6 << 32) | 5);
    // The opposite: blocking streams wait for the legacy stream.
    gate.set(0);
    ok(cuStreamWaitValue64_v2(0, address, 1, 0));
    ok(cuMemsetD32Async(address + 8, 7, 1, blocking));
    ok(cuMemsetD32Async(address + 12, 8, 1, free));
    ok(cuStreamSynchronize(free));
    assert_eq!(cuStreamQuery(blocking), 600);
    assert_eq!(gate.words()[1].load(Ordering::Acquire), (8 << 32) | 5);
    gate.set(1);
    ok(cuStreamSynchronize(blocking));
}

#[test]
fn host_functions_run_in_order() {
    let _context = Context::new();
    let (stream, counter, gate) = (stream(), AtomicU64::new(0), Pinned::new(1));
    ok(cuStreamWaitValue64_v2(stream, gate.address(), 1, 0));
    for _ in 0..3 {
        ok(cuLaunchHostFunc(
            stream,
            count,
            (&raw const counter).cast_mut().cast(),
        ));
    }
    assert_eq!(counter.load(Ordering::SeqCst), 0);
    gate.set(1);
    ok(cuStreamSynchronize(stream));
    assert_eq!(counter.load(Ordering::SeqCst), 3);
}

#[test]
fn waits_for_values_compare_in_a_circle() {
    let _context = Context::new();
    let (stream, words) = (stream(), Pinned::new(1));
    let address = words.address();
    words.set(3);
    ok(cuStreamWaitValue64_v2(stream, address, u64::MAX, 0));
    ok(cuStreamSynchronize(stream));
    ok(cuStreamWaitValue64_v2(stream, address, 4, 1));
    assert_eq!(cuStreamQuery(stream), 600);
    words.set(4);
    ok(cuStreamSynchronize(stream));
    // No flush, no other flags, only whole words.
    assert_eq!(cuStreamWaitValue64_v2(stream, address, 1, 1 << 30), 801);
    assert_eq!(cuStreamWaitValue64_v2(stream, address, 1, 4), 1);
    assert_eq!(cuStreamWriteValue64_v2(stream, address, 1, 1), 1);
    assert_eq!(cuStreamWriteValue64_v2(stream, address + 4, 1, 0), 1);
    assert_eq!(cuStreamWriteValue64_v2(stream, address + 8, 1, 0), 1);
}

#[test]
fn a_context_ends_behind_its_work() {
    let context = Context::new();
    let (stream, gate, opened) = (stream(), Pinned::new(1), AtomicU64::new(0));
    ok(cuStreamWaitValue64_v2(stream, gate.address(), 1, 0));
    let word = &gate.words()[0];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            opened.store(1, Ordering::SeqCst);
            word.store(1, Ordering::Release);
        });
        drop(context);
        assert_eq!(opened.load(Ordering::SeqCst), 1);
    });
    assert_eq!(cuStreamQuery(stream), 709);
}

#[test]
fn host_functions_run_on_one_thread_and_call_no_cuda() {
    extern "C" fn inside(answers: *mut c_void) {
        let answers = answers.cast::<[AtomicU64; 3]>();
        // SAFETY: the test passes these, which outlive the work.
        let [thread, code, calls] = unsafe { &*answers };
        // SAFETY: asks for the number of the thread.
        let this = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
        let before = thread.swap(this, Ordering::SeqCst);
        assert!(before == 0 || before == this);
        code.store(cuEventCreate(&mut 0, 0).into(), Ordering::SeqCst);
        calls.fetch_add(1, Ordering::SeqCst);
    }
    let _context = Context::new();
    let answers = [const { AtomicU64::new(0) }; 3];
    let pointer = (&raw const answers).cast_mut().cast();
    for _ in 0..3 {
        let stream = stream();
        ok(cuLaunchHostFunc(stream, inside, pointer));
        ok(cuStreamSynchronize(stream));
    }
    assert_eq!(answers[1].load(Ordering::SeqCst), 800);
    assert_eq!(answers[2].load(Ordering::SeqCst), 3);
}
