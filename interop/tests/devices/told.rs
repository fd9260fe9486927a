//! Times that one process tells others (M6), on every device that has a clock: the other process's part is played by a timeline of its own.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use syncline::backend::{Device as _, Page, Queue as _, SharedTimes};
use syncline::clock::HostClock;
use syncline::{Device, Error, Inventory, ProbeOptions, QueueKind, Timeline, host};

const LONG: Duration = Duration::from_secs(30);

/// Those that can tell when they signal.
fn devices() -> Vec<Device> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let opened = inventory.devices().iter().filter_map(|one| one.open().ok());
    opened
        .filter(|device| device.clocked_timeline("asked for").is_ok())
        .collect()
}

/// A timeline of `device`, and as another process has it.
fn told(device: &Device) -> (Timeline, Timeline) {
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

/// Between two readings of the host's clock around the signal, within the error that is told, also after samples have grown old; and there as soon as the value is.
#[test]
fn a_devices_times_are_told_within_their_error() {
    let _alone = crate::alone();
    for device in devices() {
        let (signalled, heard) = told(&device);
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
            // The other process may see a value a moment before the signaller counts it (P4).
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

/// Timelines come and go while a sample is taken for them, with their devices.
#[test]
fn what_tells_goes_with_its_timeline() {
    let _alone = crate::alone();
    for device in devices() {
        for _ in 0..20 {
            let (signalled, heard) = told(&device);
            let queue = device.queue(QueueKind::Compute, "signals").unwrap();
            let signals = [signalled.signal_at(1)];
            queue.submit(&[], |_| Ok(()), &signals).unwrap();
            drop((signalled, queue));
            heard.at(1).wait(LONG).unwrap();
            heard.at(1).time().unwrap();
        }
    }
}
