//! M6, P4: what another process is told of when values were reached; its part is played by a
//! timeline of its own.

use std::time::Instant;

use syncline_core::Error;
use syncline_core::backend::{Page, RemainingPeers, SharedTimes};
use syncline_core::clock::HostClock;

use super::*;

/// A timeline with timestamps as its signaller has it, and as another process does; the page is its
/// own or lies beside it.
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

/// Who sees that a value is reached finds when, at the first look, whoever signals: it is told
/// before.
#[test]
fn a_time_is_there_before_its_value() {
    let _alone = alone();
    for page in [Page::Own, Page::Beside] {
        let (device, signalled, heard) = told(page, 5);
        let queue = device.queue(QueueKind::Compute, "signals").unwrap();
        let last = 2_000;
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let until = Instant::now() + LONG;
                for value in 6..=last {
                    while !heard.at(value).is_reached().unwrap() {
                        assert!(Instant::now() < until, "{value} does not come");
                        std::hint::spin_loop();
                    }
                    match heard.at(value).time() {
                        Ok(time) => assert!(time.nanoseconds() <= HostClock::Monotonic.now()),
                        Err(Error::TimeForgotten { .. }) => {}
                        Err(other) => panic!("{page:?}: {other}"),
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
                // Who has stored a value on the page notes it here only then.
                signalled.at(value).wait(LONG).unwrap();
                let (told, own) = (heard.at(value).time(), signalled.at(value).time());
                let (told, own) = (told.unwrap(), own.unwrap());
                assert_eq!(told.nanoseconds(), own.nanoseconds(), "{page:?} of {value}");
                assert_eq!(told.error(), 0);
                assert!(told.nanoseconds() >= before);
            }
            asking.join().unwrap();
        });
    }
}

#[test]
fn what_has_no_time_says_why() {
    let _alone = alone();
    for page in [Page::Own, Page::Beside] {
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
        // A second page, a second time, no timestamps.
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
}

/// A value that shows, and whose time does not: who signals is behind with that, or is no more.
#[test]
fn a_time_that_does_not_come_is_an_error() {
    let _alone = alone();
    let device = host::Device::new();
    let (port, exporter) = device.exportable_port(0).unwrap();
    // It never tells anything.
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
        .lose(exporter.counter(), dead, RemainingPeers::One);
    let told = heard.at(3).time();
    assert!(matches!(told, Err(Error::NoTime { .. })), "{told:?}");
}
