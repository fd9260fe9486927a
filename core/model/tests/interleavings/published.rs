//! Timelines that are told of by a page: whichever thread has news, it is on the page in the end,
//! also where another one is writing there. The page itself is memory that loom knows nothing of,
//! and is looked at once all is done.

use std::sync::Arc;

use loom::thread;
use syncline_model::backend::{Counter, Device as _, Page};
use syncline_model::{DeviceId, Error, Timeline, host};

use crate::driver::{Completes, queue, timeline};
use crate::{FOREVER, interrupted, planted};

fn published(line: Timeline) -> (Timeline, Arc<Counter>) {
    let (_, exporter) = host::Device::new().exportable_port(0).unwrap();
    let counter = exporter.counter().clone();
    line.publish(counter.clone(), Page::Beside).unwrap();
    (line, counter)
}

fn on_the_host() -> Timeline {
    host::Device::new().timeline("line").unwrap()
}

/// Where it has ended, and why.
fn end(counter: &Counter) -> (u64, String) {
    let mut reached = 0;
    loop {
        match counter.value() {
            Ok(value) if value > reached => reached = value,
            Ok(_) => return (reached, String::new()),
            Err(Error::FailedElsewhere { cause, .. }) => return (reached, cause),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_signal_against_another() {
    interrupted(3, || {
        let (line, counter) = published(on_the_host());
        let other = line.clone();
        let signals = thread::spawn(move || {
            // Perhaps too late.
            let _ = other.signal(1);
        });
        line.signal(2).unwrap();
        signals.join().unwrap();
        assert_eq!(end(&counter), (2, String::new()));
        assert_eq!(counter.pending().unwrap(), 2);
    });
}

#[test]
fn a_failure_against_a_signal() {
    interrupted(3, || {
        let (line, counter) = published(on_the_host());
        let other = line.clone();
        let fails = thread::spawn(move || other.fail(planted()));
        let _ = line.signal(1);
        let _ = line.signal(2);
        fails.join().unwrap();
        let (reached, cause) = end(&counter);
        assert_eq!(reached, line.frozen_value());
        assert!(cause.contains("planted"), "{cause}");
    });
}

/// What was claimed comes, and then the end, which nobody tells but who lets go of the last handle
/// or notices the last value.
#[test]
fn the_last_drop_against_a_completion() {
    interrupted(3, || {
        let device = DeviceId::new();
        let (line, counter) = published(timeline(device, "line"));
        let queue = queue(device, "queue", Completes::WhenRun);
        let signals = [line.signal_at(1)];
        queue.submit(&[], |_| Ok(()), &signals).unwrap();
        let task = queue.driver().take().unwrap();
        let completing = thread::spawn(move || task.run());
        drop(line);
        completing.join().unwrap();
        let (reached, cause) = end(&counter);
        assert_eq!(reached, 1);
        assert!(cause.contains("last handle"), "{cause}");
    });
}

/// A held claim becomes pending while the end of the last handle is told: nothing ends before its
/// value.
#[test]
fn the_last_drop_against_a_promotion() {
    interrupted(2, || {
        let device = DeviceId::new();
        let (line, counter) = published(timeline(device, "line"));
        let queue = queue(device, "queue", Completes::WhenRun);
        let gate = on_the_host();
        let (waits, signals) = ([gate.at(1)], [line.signal_at(1)]);
        queue.submit(&waits, |_| Ok(()), &signals).unwrap();
        let opener = gate.clone();
        let opening = thread::spawn(move || opener.signal(1).unwrap());
        drop(line);
        opening.join().unwrap();
        while queue.driver().run() {}
        let (reached, cause) = end(&counter);
        assert_eq!(reached, 1);
        assert!(cause.contains("last handle"), "{cause}");
    });
}

/// A value shows once the page has it: the process may end then. Loom knows nothing of the page; so
/// the thread that has looked there also does what tells others, and loom tries both orders.
#[test]
fn a_look_against_a_signal() {
    interrupted(3, || {
        let (line, counter) = published(on_the_host());
        look_against_a_signal(&line, &counter);
    });
}

/// The same for a side of a bridge whose other side has the page.
#[test]
fn a_look_against_a_signal_that_is_carried() {
    interrupted(2, || {
        let (page, side, counter, _) = bridged();
        look_against_a_signal(&side, &counter);
        assert_eq!(page.frozen_value(), 1);
    });
}

/// A bridge of a side that is a page, and one of the host. Both are on the same device.
fn bridged() -> (Timeline, Timeline, Arc<Counter>, DeviceId) {
    let host = host::Device::new();
    let (page, exporter) = host.exportable_port(0).unwrap();
    let counter = exporter.counter().clone();
    let sides = Timeline::bridged("bridge", 0, [Ok(page), host.port(0)]).unwrap();
    sides[0].publish(counter.clone(), Page::Own).unwrap();
    let [page, side] = sides.try_into().unwrap();
    (page, side, counter, host.id())
}

/// A thread sees the value of a queue's submission on the published side and goes on from there,
/// before that value shows on the other side.
fn an_answer(goes_on: fn(Timeline, Timeline) -> Timeline) {
    interrupted(2, move || {
        let (page, side, _, device) = bridged();
        let queue = queue(device, "queue", Completes::WhenRun);
        let signals = [side.signal_at(1)];
        queue.submit(&[], |_| Ok(()), &signals).unwrap();
        let task = queue.driver().take().unwrap();
        let completing = thread::spawn(move || task.run());
        let sees = page.at(1).is_reached().unwrap();
        if sees {
            goes_on(page.clone(), side.clone()).signal(2).unwrap();
        }
        completing.join().unwrap();
        let last = if sees { 2 } else { 1 };
        for side in [page, side] {
            side.at(last).wait(FOREVER).unwrap();
            assert_eq!(side.value().unwrap(), last);
        }
    });
}

#[test]
fn an_answer_on_the_side_that_brings_the_value() {
    an_answer(|_, side| side);
}

#[test]
fn an_answer_on_the_published_side() {
    an_answer(|page, _| page);
}

/// Of a submission that signals a published timeline, the position comes first, twice: it waits
/// until the page has the signal, and then shows.
#[test]
fn a_position_that_comes_before_its_signal() {
    interrupted(2, || {
        let device = DeviceId::new();
        let (line, counter) = published(timeline(device, "line"));
        let queue = queue(device, "queue", Completes::WhenRun);
        let signals = [line.signal_at(1)];
        let submitted = queue.submit(&[], |_| Ok(()), &signals).unwrap();
        let (signal, position) = queue.driver().take().unwrap().parts();
        let signalling = thread::spawn(move || signal.complete());
        for _ in 0..2 {
            position.clone().complete();
            if submitted.end().is_reached().unwrap() {
                assert_eq!(counter.value().unwrap(), 1);
            }
        }
        submitted.end().wait(FOREVER).unwrap();
        assert_eq!(counter.value().unwrap(), 1);
        signalling.join().unwrap();
    });
}

/// The positions of two submissions and their signals come in three threads.
#[test]
fn positions_against_their_signals() {
    interrupted(2, || {
        let device = DeviceId::new();
        let (line, counter) = published(timeline(device, "line"));
        let queue = queue(device, "queue", Completes::WhenRun);
        let submit = |value| {
            let signals = [line.signal_at(value)];
            queue.submit(&[], |_| Ok(()), &signals).unwrap();
            queue.driver().take().unwrap().parts()
        };
        let [(first, before), (second, behind)] = [submit(1), submit(2)];
        let signalling = thread::spawn(move || {
            first.complete();
            second.complete();
        });
        let completing = thread::spawn(move || before.complete());
        behind.complete();
        queue.position().wait(FOREVER).unwrap();
        assert_eq!(counter.value().unwrap(), 2);
        signalling.join().unwrap();
        completing.join().unwrap();
    });
}

fn look_against_a_signal(line: &Timeline, counter: &Counter) {
    let other = line.clone();
    let signals = thread::spawn(move || other.signal(1).unwrap());
    if line.at(1).is_reached().unwrap() {
        let told = counter.value().unwrap();
        line.fail(planted());
        assert_eq!(told, 1);
    }
    signals.join().unwrap();
    assert_eq!(line.frozen_value(), 1);
}
