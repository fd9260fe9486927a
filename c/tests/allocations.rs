//! What a submission through C allocates on the thread that submits.

#![allow(unsafe_code, clippy::unwrap_used, reason = "a test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{null, null_mut};

use syncline::backend::{Device as _, Queue as _};
use syncline_c::*;

thread_local! { static MADE: Cell<usize> = const { Cell::new(0) } }

/// Counts the allocations of each thread.
struct Counts;

// SAFETY: it calls the allocator of the system.
unsafe impl GlobalAlloc for Counts {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = MADE.try_with(|made| made.set(made.get() + 1));
        // SAFETY: by the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: by the contract of this function.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTS: Counts = Counts;

fn ok(result: sl_result) {
    assert_eq!(result, sl_result::SL_SUCCESS);
}

const ROUNDS: u64 = 200;

/// The allocations of one submission in steady state. `submit` returns those of the call.
fn steady(mut submit: impl FnMut(u64) -> usize) -> usize {
    (1..=ROUNDS).for_each(|n| _ = submit(n));
    (ROUNDS + 1..=2 * ROUNDS).map(submit).min().unwrap()
}

unsafe extern "C" fn free(_: *mut c_void) {}

unsafe extern "C" fn work(_: *mut c_void) -> i32 {
    0
}

#[test]
fn a_submission_allocates_only_what_it_keeps() {
    let (mut device, mut queue) = (sl_device { id: 0 }, sl_queue { id: 0 });
    let mut line = sl_timeline { id: 0 };
    // SAFETY: the labels are null, and the places are live.
    unsafe {
        ok(sl_device_open_host(&raw mut device));
        ok(sl_queue_open(device, 1, null(), &raw mut queue));
        ok(sl_timeline_make(device, null(), 0, &raw mut line));
    }
    let mut base = 0;
    let mut rounds = |free: sl_drop, host_work: sl_work, wants: bool| {
        let found = steady(|n| {
            let point = |value| sl_point {
                timeline: line,
                value,
            };
            let (wait, signal) = (point(base + n - 1), point(base + n));
            let info = sl_submit_info {
                size: size_of::<sl_submit_info>(),
                waits: &raw const wait,
                wait_count: 1,
                signals: &raw const signal,
                signal_count: 1,
                host_work,
                vulkan_work: None,
                cuda_work: None,
                cuda_commands: 0,
                reserved: 0,
                data: null_mut(),
                free,
            };
            let mut submission = sl_submission { id: 0 };
            let place = if wants {
                &raw mut submission
            } else {
                null_mut()
            };
            let before = MADE.get();
            // SAFETY: all places are live, and the callbacks may run on any thread.
            ok(unsafe { sl_queue_submit(queue, &raw const info, place) });
            let made = MADE.get() - before;
            ok(sl_point_wait(signal, SL_FOREVER));
            ok(sl_submission_free(submission));
            made
        });
        base += 2 * ROUNDS;
        found
    };
    let own = syncline::host::Device::new();
    let own_queue = own.queue(syncline::QueueKind::Compute, "").unwrap();
    let own_line = own.timeline("").unwrap();
    let in_rust = steady(|n| {
        let before = MADE.get();
        let (wait, signal) = (own_line.at(n - 1), own_line.signal_at(n));
        own_queue.submit(&[wait], |_| Ok(()), &[signal]).unwrap();
        let made = MADE.get() - before;
        own_line.at(n).wait(std::time::Duration::MAX).unwrap();
        made
    });
    println!("a submission in Rust allocates {in_rust} times");
    let found = [
        ("a submission without work", rounds(None, None, false), 0),
        ("one with work", rounds(None, Some(work), false), 0),
        (
            "one with work and data",
            rounds(Some(free), Some(work), false),
            0,
        ),
        ("one with data alone", rounds(Some(free), None, false), 1),
        ("one with a handle", rounds(None, None, true), 1),
    ];
    for (name, found, more) in found {
        println!("{name} allocates {found} times");
        assert!(
            found <= in_rust + more,
            "{name}: at most {more} more than in Rust"
        );
    }
}
