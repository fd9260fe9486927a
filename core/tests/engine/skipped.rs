//! Submissions that did not run (T10, E2): what a queue remembers of them.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io;
use std::time::Duration;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::host::{Device, Queue};
use syncline_core::{Error, QueueKind, Timeline};

const LONG: Duration = Duration::from_secs(20);

/// More than a queue remembers if each one had a cause of its own.
const MANY: u64 = 600;

fn queue() -> (Device, Queue) {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    (device, queue)
}

fn failure() -> Error {
    Error::work(io::Error::other("planted"))
}

/// Submits [`MANY`] that wait for `gate`, the last of them for the lowest value. Then `end` ends
/// these waits, and each submission tells that it was skipped.
fn all_are_told(device: &Device, queue: &Queue, end: impl FnOnce(Timeline)) {
    let gate = device.timeline("gate").unwrap();
    let mut all = Vec::new();
    for number in 0..MANY {
        let wait = gate.at(MANY - number);
        all.push(queue.submit(&[wait], |_| Ok(()), &[]).unwrap());
    }
    end(gate);
    for submitted in &all {
        let told = submitted.wait_submitted(LONG);
        assert!(matches!(told, Err(Error::Skipped { .. })), "{told:?}");
    }
}

#[test]
fn all_submissions_that_one_failure_ends_are_told() {
    let (device, queue) = queue();
    all_are_told(&device, &queue, |gate| gate.fail(failure()));
}

#[test]
fn all_submissions_that_wait_for_a_dropped_timeline_are_told() {
    let (device, queue) = queue();
    all_are_told(&device, &queue, drop);
}

/// The same behind a submission that is held on.
#[test]
fn skipped_submissions_behind_a_held_one_are_told() {
    for end in [drop, |gate: Timeline| gate.fail(failure())] {
        let (device, queue) = queue();
        let closed = device.timeline("closed").unwrap();
        let held = queue.submit(&[closed.at(1)], |_| Ok(()), &[]).unwrap();
        all_are_told(&device, &queue, end);
        let open = held.wait_submitted(Duration::ZERO);
        assert!(matches!(open, Err(Error::TimedOut { .. })), "{open:?}");
        closed.signal(1).unwrap();
        held.wait_submitted(LONG).unwrap();
    }
}

/// A queue that has forgotten later submissions does not take a held one for forgotten.
#[test]
fn a_held_submission_is_not_forgotten() {
    let (device, queue) = queue();
    let closed = device.timeline("closed").unwrap();
    let held = queue.submit(&[closed.at(1)], |_| Ok(()), &[]).unwrap();
    let lines: Vec<_> = (0..MANY)
        .map(|_| device.timeline("line").unwrap())
        .collect();
    for line in &lines {
        queue.submit(&[line.at(1)], |_| Ok(()), &[]).unwrap();
    }
    for line in &lines {
        line.fail(failure());
    }
    let told = held.wait_submitted(Duration::ZERO);
    assert!(matches!(told, Err(Error::TimedOut { .. })), "{told:?}");
    // Whether it runs or not, it passes for one of those that are forgotten.
    closed.signal(1).unwrap();
    let told = held.wait_submitted(LONG);
    assert!(matches!(told, Err(Error::Unsupported { .. })), "{told:?}");
}
