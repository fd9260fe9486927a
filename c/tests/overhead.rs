//! What a call costs through C beside the same call in Rust. A measurement, which checks no limit.
//!
//! `cargo test --release -p syncline-c --test overhead -- --ignored --nocapture`

#![allow(clippy::unwrap_used, unsafe_code, reason = "a test")]

use std::ptr::null;
use std::time::Instant;

use syncline::backend::Device as _;
use syncline::{Inventory, ProbeOptions};
use syncline_c::{
    sl_claim, sl_claim_free, sl_device, sl_device_open, sl_device_open_host, sl_point,
    sl_point_is_reached, sl_result, sl_timeline, sl_timeline_claim, sl_timeline_make,
    sl_timeline_signal,
};

const CALLS: u64 = 200_000;

/// The smallest mean of several runs, in nanoseconds for each call.
fn nanoseconds(mut call: impl FnMut(u64)) -> f64 {
    let mut best = f64::INFINITY;
    for run in 0..7 {
        let begin = Instant::now();
        (1..=CALLS).for_each(|n| call(run * CALLS + n));
        best = best.min(begin.elapsed().as_nanos() as f64 / CALLS as f64);
    }
    best
}

fn row(name: &str, rust: f64, c: f64) {
    println!(
        "{name}: {rust:.1} ns in Rust, {c:.1} ns through C, {:.1} more",
        c - rust
    );
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

#[test]
#[ignore = "a measurement"]
fn calls_through_c_beside_those_in_rust() {
    let mut device = sl_device { id: 0 };
    ok(sl_device_open_host(&raw mut device));
    let rust = syncline::host::Device::new().timeline("rust").unwrap();
    let line = timeline(device);
    row(
        "a signal of the host",
        nanoseconds(|n| rust.signal(n).unwrap()),
        nanoseconds(|n| ok(sl_timeline_signal(line, n))),
    );
    let mut reached = false;
    let point = sl_point {
        timeline: line,
        value: 1,
    };
    row(
        "a query of what is reached",
        nanoseconds(|_| assert!(rust.at(1).is_reached().unwrap())),
        nanoseconds(|_| ok(sl_point_is_reached(point, &raw mut reached))),
    );
    // SAFETY: a text that ends with a zero byte.
    if unsafe { sl_device_open(c"vulkan".as_ptr(), &raw mut device) } != sl_result::SL_SUCCESS {
        return println!("no device of Vulkan, whose timelines have claims");
    }
    let inventory = Inventory::probe(&ProbeOptions::default());
    let vulkan = inventory.select("vulkan").unwrap().open().unwrap();
    let (rust, line) = (vulkan.timeline("rust").unwrap(), timeline(device));
    let mut claim = sl_claim { id: 0 };
    row(
        "a claim, withdrawn",
        nanoseconds(|n| drop(rust.claim(n).unwrap())),
        nanoseconds(|n| {
            ok(sl_timeline_claim(line, n, 0, &raw mut claim));
            ok(sl_claim_free(claim));
        }),
    );
}
