//! What a call costs through C beside the same call in Rust. Fails if a claim costs too much.
//!
//! `cargo bench -p syncline-c`

#![allow(clippy::unwrap_used, unsafe_code, reason = "a measurement")]

use std::ptr::{null, null_mut};
use std::time::Instant;

use syncline::backend::Device as _;
use syncline::vulkan::ash::{self, vk};
use syncline::{Device, Inventory, ProbeOptions};
use syncline_c::{
    VkSemaphore, sl_claim, sl_claim_free, sl_claim_submitted, sl_device, sl_device_get_vulkan,
    sl_device_open, sl_device_open_host, sl_point, sl_point_is_reached, sl_queue, sl_queue_idle,
    sl_queue_open, sl_queue_submit, sl_result, sl_submit_info, sl_timeline, sl_timeline_claim,
    sl_timeline_make, sl_timeline_signal, sl_timeline_value, sl_timeline_vk_semaphore,
    sl_vulkan_handles,
};

const CALLS: u64 = 100_000;
const RUNS: u64 = 15;
/// Of so many signals, one is asked for, so that what is outstanding stays short.
const SEEN: u64 = 16;
/// The most nanoseconds that a claim and its signal may cost more than in Rust.
const LIMIT: f64 = 60.0;

/// The smallest mean of several runs, in nanoseconds for each call.
fn nanoseconds(run: u64, call: &mut impl FnMut(u64)) -> f64 {
    let begin = Instant::now();
    (1..=CALLS).for_each(|n| call(run * CALLS + n));
    begin.elapsed().as_nanos() as f64 / CALLS as f64
}

/// Measures both in turns. Returns what C costs more.
fn row(name: &str, mut rust: impl FnMut(u64), mut c: impl FnMut(u64)) -> f64 {
    let (mut in_rust, mut in_c) = (f64::INFINITY, f64::INFINITY);
    for run in 0..RUNS {
        in_rust = in_rust.min(nanoseconds(run, &mut rust));
        in_c = in_c.min(nanoseconds(run, &mut c));
    }
    let more = in_c - in_rust;
    println!("{name}: {in_rust:.1} ns in Rust, {in_c:.1} ns through C, {more:.1} more");
    more
}

fn ok(result: sl_result) {
    assert_eq!(result, sl_result::SL_SUCCESS);
}

fn timeline(device: sl_device) -> sl_timeline {
    let mut made = sl_timeline { id: 0 };
    // SAFETY: the label is null, and the place is live.
    ok(unsafe { sl_timeline_make(device, null(), 0, &raw mut made) });
    made
}

/// Signals a semaphore from the host, as a submission of the program does.
fn signal(device: &ash::Device, semaphore: vk::Semaphore, value: u64) {
    let info = vk::SemaphoreSignalInfo::default()
        .semaphore(semaphore)
        .value(value);
    // SAFETY: the value is claimed, and the semaphore is live.
    unsafe { device.signal_semaphore(&info) }.unwrap();
}

fn host() {
    let mut device = sl_device { id: 0 };
    ok(sl_device_open_host(&raw mut device));
    let rust = syncline::host::Device::new().timeline("rust").unwrap();
    let line = timeline(device);
    row(
        "a signal of the host",
        |n| rust.signal(n).unwrap(),
        |n| ok(sl_timeline_signal(line, n)),
    );
    let mut reached = false;
    let point = sl_point {
        timeline: line,
        value: 1,
    };
    row(
        "a query of what is reached",
        |_| assert!(rust.at(1).is_reached().unwrap()),
        |_| ok(sl_point_is_reached(point, &raw mut reached)),
    );
}

/// Returns what a claim and its signal cost more. `None` without a device of Vulkan.
fn vulkan() -> Option<f64> {
    let mut device = sl_device { id: 0 };
    // SAFETY: a text that ends with a zero byte.
    if unsafe { sl_device_open(c"vulkan".as_ptr(), &raw mut device) } != sl_result::SL_SUCCESS {
        return None;
    }
    let inventory = Inventory::probe(&ProbeOptions::default());
    let opened = inventory.select("vulkan").unwrap().open().unwrap();
    let (rust, line) = (opened.timeline("rust").unwrap(), timeline(device));
    let mut claim = sl_claim { id: 0 };
    row(
        "a claim, withdrawn",
        |n| drop(rust.claim(n).unwrap()),
        |n| {
            ok(sl_timeline_claim(line, n, 0, &raw mut claim));
            ok(sl_claim_free(claim));
        },
    );
    // The program's own device, as the C program has it.
    let mut handles = std::mem::MaybeUninit::<sl_vulkan_handles>::zeroed();
    let mut semaphore: VkSemaphore = null_mut();
    // SAFETY: zeroes are a valid value, and the size is set.
    let handles = unsafe {
        (*handles.as_mut_ptr()).size = size_of::<sl_vulkan_handles>();
        ok(sl_device_get_vulkan(device, handles.as_mut_ptr()));
        handles.assume_init()
    };
    ok(sl_timeline_vk_semaphore(line, device, &raw mut semaphore));
    let Device::Vulkan(in_rust) = &opened else {
        unreachable!("it was selected")
    };
    let semaphore_in_rust = in_rust.semaphore_of(&rust).unwrap();
    // SAFETY: the handles are live, and both devices have the same loader.
    let in_c = unsafe {
        use vk::Handle as _;
        let raw = vk::Device::from_raw(handles.device as u64);
        ash::Device::load(in_rust.instance().fp_v1_0(), raw)
    };
    let semaphore = {
        use vk::Handle as _;
        vk::Semaphore::from_raw(semaphore as u64)
    };
    let id = opened.id();
    let mut value = 0;
    Some(row(
        "a claim and its signal, with vkSignalSemaphore",
        |n| {
            let mut claim = rust.claim(n).unwrap();
            signal(in_rust.raw(), semaphore_in_rust, n);
            claim.submitted_on(id).unwrap();
            drop(claim);
            if n % SEEN == 0 {
                assert_eq!(rust.value().unwrap(), n);
            }
        },
        |n| {
            ok(sl_timeline_claim(line, n, 0, &raw mut claim));
            signal(&in_c, semaphore, n);
            ok(sl_claim_submitted(claim, device));
            ok(sl_claim_free(claim));
            if n % SEEN == 0 {
                ok(sl_timeline_value(line, &raw mut value));
                assert_eq!(value, n);
            }
        },
    ))
}

/// The mean time of a submission without work, for each of the threads. Each has its own queue.
fn submissions(threads: u64) -> f64 {
    let mut device = sl_device { id: 0 };
    ok(sl_device_open_host(&raw mut device));
    let line = timeline(device);
    let total = std::thread::scope(|scope| {
        let each = (0..threads).map(|_| {
            let mut queue = sl_queue { id: 0 };
            // SAFETY: the label is null, and the place is live.
            ok(unsafe { sl_queue_open(device, 1, null(), &raw mut queue) });
            scope.spawn(move || {
                let wait = sl_point {
                    timeline: line,
                    value: 0,
                };
                // SAFETY: zeroes are a valid value.
                let mut info: sl_submit_info = unsafe { std::mem::zeroed() };
                info.size = size_of::<sl_submit_info>();
                (info.waits, info.wait_count) = (&raw const wait, 1);
                let begin = Instant::now();
                for _ in 0..CALLS {
                    // SAFETY: the list is live, and there is no callback.
                    ok(unsafe { sl_queue_submit(queue, &raw const info, null_mut()) });
                }
                let took = begin.elapsed().as_nanos() as f64;
                ok(sl_queue_idle(queue, u64::MAX));
                took
            })
        });
        let each: Vec<_> = each.collect();
        each.into_iter()
            .map(|thread| thread.join().unwrap())
            .sum::<f64>()
    });
    total / (threads * CALLS) as f64
}

fn main() {
    host();
    let (one, two) = (submissions(1), submissions(2));
    println!("a submission without work: {one:.0} ns, and {two:.0} of two threads on two queues");
    match vulkan() {
        Some(more) if more > LIMIT => {
            eprintln!("missed: the limit is {LIMIT} ns more");
            std::process::exit(1);
        }
        Some(_) => println!("met: the limit is {LIMIT} ns more"),
        None => println!("no device of Vulkan, whose timelines have claims"),
    }
}
