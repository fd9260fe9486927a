//! Published timelines, whose value and end are written to a page.
//!
//! Every change is on the page in the end, also if another thread was writing the page at that
//! time. Loom does not model the memory of the page, so most cases read it only at the end.

use std::sync::Arc;

use loom::thread;
use syncline_model::backend::Device as _;
use syncline_model::backend::kit::Counter;
use syncline_model::internal::Page;
use syncline_model::{Error, Timeline, host, info::DeviceId};

use crate::driver::{Completes, device, queue, timeline};
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

/// The value at which the timeline has ended, and the cause.
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
            // It is refused if the other signal came first.
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

/// The page shows the claimed value and then the end of the timeline.
///
/// The end is written by the thread that drops the last handle or by the one that completes the
/// last value.
#[test]
fn the_last_drop_against_a_completion() {
    interrupted(3, || {
        let device = device();
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

/// A held claim becomes pending while the last handle is dropped.
///
/// The page does not show the end before the claimed value.
#[test]
fn the_last_drop_against_a_promotion() {
    interrupted(2, || {
        let device = device();
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

/// A value is visible only after the page has it, because the process may end at once.
///
/// Loom does not model the page. So the thread that has read the page also fails the timeline, and
/// loom tries both orders.
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

/// A bridge of two sides on one device.
///
/// Returns the side with a page, the other side, the page and the device.
fn bridged() -> (Timeline, Timeline, Arc<Counter>, DeviceId) {
    let host = host::Device::new();
    let (page, exporter) = host.exportable_port(0).unwrap();
    let counter = exporter.counter().clone();
    let device = device();
    let port = host::value_port(device);
    let sides = Timeline::bridged("bridge", 0, [Ok(page), Ok(port)]).unwrap();
    sides[0].publish(counter.clone(), Page::Own).unwrap();
    let [page, side] = sides.try_into().unwrap();
    (page, side, counter, device)
}

/// A thread signals the next value once it sees a queue's value on the published side.
///
/// That value may not be visible on the other side yet.
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

/// The position of a submission is completed, twice, before its signal of a published timeline.
///
/// The position becomes visible only after the page has the signal.
#[test]
fn a_position_that_comes_before_its_signal() {
    interrupted(2, || {
        let device = device();
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

/// Three threads complete the positions and the signals of two submissions.
#[test]
fn positions_against_their_signals() {
    interrupted(2, || {
        let device = device();
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
