//! Compares the clocks of CUDA, of Vulkan and of the host on one GPU. Prints what it measured.
//!
//! Needs a GPU that CUDA and Vulkan share. `SYNCLINE_REQUIRE_CUDA` makes its absence a failure.
//! `SYNCLINE_CLOCK_SECONDS` sets for how long the order is checked. The default is 5 s.
#![cfg(all(feature = "cuda", feature = "vulkan"))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::clock::{Axis, Clock, Finding, HostClock};
use syncline::{Device, Fence, Inventory, Link, ProbeOptions, Queue, QueueKind};

const LIMIT: Duration = Duration::from_secs(30);
/// Largest stated errors that the test accepts, in nanoseconds.
const BETWEEN: u64 = 1_000;
const TO_THE_HOST: u64 = 3_000;

fn shared() -> Option<Link> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let opened = inventory.devices().iter().filter_map(|one| one.open().ok());
    let devices: Vec<Device> = opened.collect();
    let vulkan = |one: &&Device| matches!(one, Device::Vulkan(_));
    let found = devices.iter().find_map(|left| {
        let cuda = matches!(left, Device::Cuda(_)).then_some(left)?;
        let mut others = devices.iter().filter(vulkan);
        others.find_map(|right| syncline::share(cuda, right).ok())
    });
    assert!(
        found.is_some() || std::env::var_os("SYNCLINE_REQUIRE_CUDA").is_none(),
        "no GPU of both APIs"
    );
    found
}

fn tell(what: &str, values: &mut [u64]) {
    values.sort_unstable();
    let at = |share: usize| values[(values.len() - 1) * share / 100];
    println!(
        "{what}: {} ns, median {}, 99 %: {}, most {} ({})",
        at(0),
        at(50),
        at(99),
        at(100),
        values.len()
    );
}

fn record(queue: &Queue, device: &Device) -> Fence {
    let fence = device.clocked_fence("ordered").unwrap();
    queue.record(&fence).unwrap();
    fence
}

/// Records a time on CUDA, then on Vulkan, then on CUDA, in the order of a shared timeline.
///
/// No time contradicts this order by more than its stated error. Each time lies between the
/// host's clock before and after.
#[test]
fn times_of_both_apis_are_on_one_axis() {
    let _alone = crate::alone();
    let Some(link) = shared() else { return };
    let seconds = std::env::var("SYNCLINE_CLOCK_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(5);
    let (cuda, vulkan) = (link.left().clone(), link.right().clone());
    let found = cuda.clock().unwrap().compare(&vulkan.clock().unwrap());
    let found = found.unwrap();
    println!(
        "{found:?}, looked at again after {:?}",
        Clock::COMPARE_AGAIN
    );
    assert_eq!(found.finding, Finding::One, "{found:?}");
    let (one, two) = (
        cuda.queue(QueueKind::Compute, "one").unwrap(),
        vulkan.queue(QueueKind::Transfer, "two").unwrap(),
    );
    let order = link.timeline("order").unwrap();
    let (mut between, mut to_host, mut hops) = (Vec::new(), Vec::new(), Vec::new());
    let start = Instant::now();
    let mut value = 0;
    while start.elapsed() < Duration::from_secs(seconds) {
        let before = HostClock::Monotonic.now();
        let first = record(&one, &cuda);
        one.submit(&[], |_| Ok(()), &[order.signal_at(value + 1)])
            .unwrap();
        two.submit(&[order.at(value + 1)], |_| Ok(()), &[]).unwrap();
        let second = record(&two, &vulkan);
        two.submit(&[], |_| Ok(()), &[order.signal_at(value + 2)])
            .unwrap();
        one.submit(&[order.at(value + 2)], |_| Ok(()), &[]).unwrap();
        let third = record(&one, &cuda);
        value += 2;
        third.wait(LIMIT).unwrap();
        let after = HostClock::Monotonic.now();
        let times = [first, second, third].map(|fence| fence.time().unwrap());
        for pair in times.windows(2) {
            let passed = pair[1].since(&pair[0]).unwrap();
            assert_eq!(passed.axis, Axis::One, "{passed:?}");
            assert!(
                passed.nanoseconds >= -passed.error.cast_signed(),
                "{passed:?} between two times in this order"
            );
            assert_eq!(
                pair[0].since(&pair[1]).unwrap().nanoseconds,
                -passed.nanoseconds
            );
            between.push(passed.error);
            hops.push(passed.nanoseconds.unsigned_abs());
        }
        for time in &times {
            let host = time.to_host().unwrap();
            let error = host.error.cast_signed();
            assert!(
                before - error <= host.nanoseconds && host.nanoseconds <= after + error,
                "{host:?} of {time:?} is not between {before} and {after}"
            );
        }
        // The time of CUDA: its samples are more accurate than those of Vulkan.
        to_host.push(times[0].to_host().unwrap().error);
        std::thread::sleep(Duration::from_millis(2));
    }
    tell("stated error between CUDA and Vulkan", &mut between);
    tell("stated error of CUDA to the host", &mut to_host);
    tell("from one API's time to the other's", &mut hops);
    assert!(between.iter().all(|&error| error <= BETWEEN));
    // A tenth may be larger, because other programs can delay a sample.
    assert!(to_host[to_host.len() * 9 / 10] <= TO_THE_HOST);
}
