//! M6, P4: times that a process publishes for other processes.
//!
//! A second timeline of this process stands for the other process.

use std::time::Instant;

use rstest::rstest;
use syncline_core::Error;
use syncline_core::clock::HostClock;
use syncline_core::internal::{Page, RecoveryMode, SharedTimes};

use super::*;

/// A timeline with timestamps, and its import as another process has it.
///
/// `page` says whether the page's counter is the timeline's own.
fn told(page: Page, initial: u64) -> (host::Device, Timeline, Timeline) {
    let device = host::Device::new();
    let (port, exporter) = device.exportable_port(initial).unwrap();
    let signalled = match page {
        Page::Beside => device.timeline_from("signalled", initial),
        Page::Own => Timeline::new("signalled", initial, |_| Ok([port].into_iter().collect())),
    };
    let signalled = signalled.unwrap();
    let clock = (device.id(), device.clock().unwrap());
    let signalled = signalled.clocked([clock]).unwrap();
    let times = SharedTimes::new().unwrap();
    signalled.tell_times(times.clone()).unwrap();
    signalled.publish(exporter.counter().clone(), page).unwrap();
    let port = host::Device::new().import_timeline(exporter.export().unwrap());
    let port = port.map_err(|rejected| rejected.error).unwrap();
    let heard = Timeline::new("heard", initial, |_| Ok([port].into_iter().collect())).unwrap();
    let theirs = SharedTimes::open(times.export().unwrap());
    let theirs = theirs.map_err(|rejected| rejected.error).unwrap();
    let heard = heard.clocked_elsewhere(theirs).unwrap();
    (device, signalled, heard)
}

/// Another process that sees a value reached finds its time at the first query.
///
/// The host and a queue signal, and each publishes the time before the value.
#[rstest]
#[case::own_counter(Page::Own)]
#[case::counter_beside(Page::Beside)]
fn a_time_is_published_before_its_value(#[case] page: Page) {
    let _alone = alone();
    let (device, signalled, heard) = told(page, 5);
    let queue = device.queue(QueueKind::Compute, "signals").unwrap();
    let last = 2_000;
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let until = Instant::now() + LONG;
            for value in 6..=last {
                while !heard.at(value).is_reached().unwrap() {
                    assert!(Instant::now() < until, "{value} is not reached");
                    std::hint::spin_loop();
                }
                match heard.at(value).time() {
                    Ok(time) => assert!(time.nanoseconds() <= HostClock::Monotonic.now()),
                    Err(Error::TimeForgotten { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        });
        for value in 6..=last {
            let before = HostClock::Monotonic.now();
            if value % 3 == 0 {
                signalled.signal(value).unwrap();
            } else {
                let signals = [signalled.signal_at(value)];
                queue.submit(&[], |_| Ok(()), &signals).unwrap();
            }
            heard.at(value).wait(LONG).unwrap();
            // The signalling thread stores the value on the page first, and then in `signalled`.
            signalled.at(value).wait(LONG).unwrap();
            let (told, own) = (heard.at(value).time(), signalled.at(value).time());
            let (told, own) = (told.unwrap(), own.unwrap());
            assert_eq!(told.nanoseconds(), own.nanoseconds(), "the time of {value}");
            assert_eq!(told.error(), 0);
            assert!(told.nanoseconds() >= before);
        }
        asking.join().unwrap();
    });
}

#[rstest]
#[case::own_counter(Page::Own)]
#[case::counter_beside(Page::Beside)]
fn a_missing_time_has_a_reason(#[case] page: Page) {
    let _alone = alone();
    let (device, signalled, heard) = told(page, 5);
    assert!(heard.is_clocked() && heard.wait_only().is_clocked());
    for value in [0, 5] {
        let told = heard.at(value).time();
        assert!(matches!(told, Err(Error::NoTime { .. })), "{told:?}");
    }
    let told = heard.at(6).time();
    assert!(matches!(told, Err(Error::NotReached { .. })), "{told:?}");
    signalled.signal(8).unwrap();
    heard.at(8).wait(LONG).unwrap();
    let at = heard.at(6).time().unwrap().nanoseconds();
    signalled.fail(Error::work(std::io::Error::other("the lens is dirty")));
    heard.at(9).wait(LONG).unwrap_err();
    let told = heard.at(9).time();
    assert!(matches!(told, Err(Error::Failed { .. })), "{told:?}");
    assert_eq!(heard.at(8).time().unwrap().nanoseconds(), at);
    // The first publishes times already, the second imports them, and the third has none.
    for refused in [
        signalled.tell_times(SharedTimes::new().unwrap()),
        heard.tell_times(SharedTimes::new().unwrap()),
        device
            .timeline("plain")
            .unwrap()
            .tell_times(SharedTimes::new().unwrap()),
    ] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    }
}

/// A value is visible, and its time is not: the signaller has not published it yet, or is dead.
#[test]
fn a_time_that_is_not_published_is_an_error() {
    let _alone = alone();
    let device = host::Device::new();
    let (port, exporter) = device.exportable_port(0).unwrap();
    // This timeline publishes no times.
    let signalled = Timeline::new("signalled", 0, |_| Ok([port].into_iter().collect())).unwrap();
    let heard = imported(&device, exporter.export().unwrap());
    let heard = heard
        .clocked_elsewhere(SharedTimes::new().unwrap())
        .unwrap();
    signalled.signal(3).unwrap();
    heard.at(3).wait(LONG).unwrap();
    let told = heard.at(3).time();
    assert!(
        matches!(told, Err(Error::TimeNotTold { value: 3, .. })),
        "{told:?}"
    );
    let dead = Error::work(std::io::Error::other("the process has died"));
    heard
        .downgrade()
        .lose(exporter.counter(), dead, RecoveryMode::Alone);
    let told = heard.at(3).time();
    assert!(matches!(told, Err(Error::NoTime { .. })), "{told:?}");
}
