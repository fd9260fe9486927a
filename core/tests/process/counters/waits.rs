//! T4, T6, X4: threads that sleep on pages. All threads of one device share one watch.

use std::thread;
use std::time::Duration;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, QueueKind, host, wait_all, wait_any};

use super::{LONG, alone, exported, imported};

/// A signal through another device wakes a sleeping thread. A lost wakeup is a wait that times out.
#[test]
fn a_sleeping_waiter_is_woken() {
    let _alone = alone();
    let (left, right) = (host::Device::new(), host::Device::new());
    let (ours, exporter) = exported(&left, 0);
    let theirs = imported(&right, exporter.export().unwrap());
    const ROUNDS: u64 = 5_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                theirs.at(2 * round + 1).wait(LONG).unwrap();
                theirs.signal(2 * round + 2).unwrap();
            }
        });
        for round in 0..ROUNDS {
            ours.signal(2 * round + 1).unwrap();
            ours.at(2 * round + 2).wait(LONG).unwrap();
        }
    });
}

/// Several threads wait for several pages of one device, and one thread watches for all of them.
#[test]
fn many_waiters_of_one_device_are_woken() {
    let _alone = alone();
    let (left, right) = (host::Device::new(), host::Device::new());
    let pairs: Vec<_> = (0..6)
        .map(|_| {
            let (ours, exporter) = exported(&left, 0);
            let theirs = imported(&right, exporter.export().unwrap());
            (ours, theirs)
        })
        .collect();
    thread::scope(|scope| {
        for (ours, theirs) in &pairs {
            scope.spawn(|| {
                for round in 0..300 {
                    theirs.at(2 * round + 1).wait(LONG).unwrap();
                    theirs.signal(2 * round + 2).unwrap();
                }
            });
            scope.spawn(|| {
                for round in 0..300 {
                    ours.signal(2 * round + 1).unwrap();
                    ours.at(2 * round + 2).wait(LONG).unwrap();
                }
            });
        }
    });
}

#[test]
fn lists_of_points_may_mix_pages_and_other_timelines() {
    let _alone = alone();
    let (left, right) = (host::Device::new(), host::Device::new());
    let (ours, exporter) = exported(&left, 0);
    let theirs = imported(&right, exporter.export().unwrap());
    let plain = left.timeline("plain").unwrap();
    let queue = right.queue(QueueKind::Compute, "queue").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let first = wait_any(&[plain.at(1), ours.at(1)], LONG).unwrap();
            assert_eq!(first, 1);
            plain.signal(1).unwrap();
        });
        queue
            .submit(&[], |_| Ok(()), &[theirs.signal_at(1)])
            .unwrap();
        wait_all(&[plain.at(1), theirs.at(1), ours.at(1)], LONG).unwrap();
    });
    // A submission on a device without a port is held until the value is reached.
    let other = host::Device::new()
        .queue(QueueKind::Compute, "other")
        .unwrap();
    let held = other
        .submit(&[ours.at(2)], |_| Ok(()), &[ours.signal_at(3)])
        .unwrap();
    assert!(held.is_held());
    theirs.signal(2).unwrap();
    theirs.at(3).wait(LONG).unwrap();
    other.idle(LONG).unwrap();
}

#[test]
fn a_wait_without_a_signal_times_out() {
    let _alone = alone();
    let device = host::Device::new();
    let (ours, _exporter) = exported(&device, 0);
    for timeout in [Duration::ZERO, Duration::from_millis(5)] {
        let error = ours.at(1).wait(timeout).unwrap_err();
        assert!(
            matches!(error, Error::TimedOut { reached: 0, .. }),
            "{error}"
        );
    }
    ours.signal(1).unwrap();
    ours.at(1).wait(Duration::ZERO).unwrap();
}

/// A claim for another process's signal can be declared submitted once the page shows it pending.
#[test]
fn a_claim_becomes_pending_once_the_page_shows_it() {
    let _alone = alone();
    let (left, right) = (host::Device::new(), host::Device::new());
    let (ours, exporter) = exported(&left, 0);
    let theirs = imported(&right, exporter.export().unwrap());
    let mut claim = theirs.claim(1).unwrap();
    let error = claim.submitted().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let queue = right.queue(QueueKind::Compute, "queue").unwrap();
    let waits = queue.submit(&[theirs.at(1)], |_| Ok(()), &[]).unwrap();
    assert!(waits.is_held());
    let home = ours.devices().next().unwrap();
    let port = ours.port::<host::CounterPort>(home).unwrap();
    port.counter().announce(1).unwrap();
    port.counter().note_pending(1);
    claim.submitted().unwrap();
    theirs.at(1).require_pending().unwrap();
    assert!(!theirs.at(1).is_reached().unwrap());
    // Another process has announced the signal, so the host may not make it.
    let error = ours.signal(1).unwrap_err();
    assert!(
        matches!(error, Error::SignalOverlapsClaim { .. }),
        "{error}"
    );
    super::Hostile::of(&exporter).write_word(super::REACHED, 1);
    port.counter().wake_all();
    queue.idle(LONG).unwrap();
}
