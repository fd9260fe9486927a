//! Times of signals that a process publishes to others (M6), on every device that has a clock.
//!
//! A second timeline in this process takes the part of the other process.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::clock::HostClock;
use syncline::{Device, Error, Inventory, ProbeOptions, QueueKind, Timeline, host};
use syncline_core::internal::{Page, SharedTimes};

const LONG: Duration = Duration::from_secs(30);

/// Opens the devices whose timelines have times.
fn devices() -> Vec<Device> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let opened = inventory.devices().iter().filter_map(|one| one.open().ok());
    opened
        .filter(|device| device.clocked_timeline("asked for").is_ok())
        .collect()
}

/// Creates a timeline of `device`, and the timeline as another process imports it.
fn published(device: &Device) -> (Timeline, Timeline) {
    let host = host::Device::new();
    let (_, exporter) = host.exportable_port(0).unwrap();
    let signalled = device.clocked_timeline("signalled").unwrap();
    let times = SharedTimes::new().unwrap();
    signalled.tell_times(times.clone()).unwrap();
    signalled
        .publish(exporter.counter().clone(), Page::Beside)
        .unwrap();
    let port = host.import_timeline(exporter.export().unwrap());
    let port = port.map_err(|rejected| rejected.error).unwrap();
    let heard = Timeline::new("heard", 0, |_| Ok([port].into_iter().collect())).unwrap();
    (signalled, heard.clocked_elsewhere(times).unwrap())
}

/// Each published time lies between two readings of the host's clock around the signal.
///
/// It is known as soon as the value is reached. Its stated error holds when samples are old, too.
#[test]
fn published_times_are_within_their_error() {
    let _alone = crate::alone();
    for device in devices() {
        let (signalled, heard) = published(&device);
        let queue = device.queue(QueueKind::Compute, "signals").unwrap();
        let mut errors = Vec::new();
        let mut last = i64::MIN;
        for value in 1..=300 {
            if value % 50 == 0 {
                std::thread::sleep(Duration::from_millis(150));
            }
            let before = HostClock::Monotonic.now();
            let signals = [signalled.signal_at(value)];
            queue.submit(&[], |_| Ok(()), &signals).unwrap();
            heard.at(value).wait(LONG).unwrap();
            let after = HostClock::Monotonic.now();
            let time = heard.at(value).time().unwrap();
            let (at, error) = (time.nanoseconds(), time.error());
            assert!(
                at.saturating_add_unsigned(error) >= before
                    && at.saturating_sub_unsigned(error) <= after,
                "{device:?}: {value} at {at} ± {error} ns, seen between {before} and {after}"
            );
            assert!(at >= last, "{device:?}: {value} at {at}, behind {last}");
            last = at;
            // The importing side may see a value shortly before the signaller counts it (P4).
            signalled.at(value).wait(LONG).unwrap();
            let own = signalled.at(value).time().unwrap().to_host().unwrap();
            let apart = own.nanoseconds.abs_diff(at);
            let resolution = device.clock().unwrap().resolution();
            assert!(
                apart <= own.error.saturating_add(error).saturating_add(resolution),
                "{device:?}: {value} at {at} ± {error} ns, and here at {own:?}"
            );
            errors.push(error);
        }
        errors.sort_unstable();
        println!(
            "{device:?}: errors from {} ns, median {}, to {}",
            errors[0],
            errors[errors.len() / 2],
            errors[errors.len() - 1]
        );
        let none = heard.at(301).time();
        assert!(matches!(none, Err(Error::NotReached { .. })), "{none:?}");
    }
}

/// Timelines and their devices are dropped while a sample is taken for them.
#[test]
fn timelines_are_dropped_while_they_publish() {
    let _alone = crate::alone();
    for device in devices() {
        for _ in 0..20 {
            let (signalled, heard) = published(&device);
            let queue = device.queue(QueueKind::Compute, "signals").unwrap();
            let signals = [signalled.signal_at(1)];
            queue.submit(&[], |_| Ok(()), &signals).unwrap();
            drop((signalled, queue));
            heard.at(1).wait(LONG).unwrap();
            heard.at(1).time().unwrap();
        }
    }
}
