//! T10, E2: skipped submissions that a queue remembers.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io;
use std::time::Duration;

use rstest::rstest;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::host::{Device, Queue};
use syncline_core::{Error, QueueKind, Timeline};

const LONG: Duration = Duration::from_secs(20);

/// More submissions than a queue remembers if each one has its own cause.
const MANY: u64 = 600;

fn queue() -> (Device, Queue) {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    (device, queue)
}

fn failure() -> Error {
    Error::work(io::Error::other("planted"))
}

/// Checks that each of [`MANY`] submissions reports that it was skipped.
///
/// They wait for a timeline that `end` ends. The last one waits for the lowest value.
fn check_all_are_reported(device: &Device, queue: &Queue, end: impl FnOnce(Timeline)) {
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
fn all_submissions_that_one_failure_skips_are_reported() {
    let (device, queue) = queue();
    check_all_are_reported(&device, &queue, |gate| gate.fail(failure()));
}

#[test]
fn all_submissions_that_wait_for_a_dropped_timeline_are_reported() {
    let (device, queue) = queue();
    check_all_are_reported(&device, &queue, drop);
}

/// Submissions are skipped behind one that stays held.
#[rstest]
#[case::by_the_last_drop(drop)]
#[case::by_a_failure(|gate: Timeline| gate.fail(failure()))]
fn skipped_submissions_behind_a_held_one_are_reported(#[case] end: fn(Timeline)) {
    let (device, queue) = queue();
    let closed = device.timeline("closed").unwrap();
    let held = queue.submit(&[closed.at(1)], |_| Ok(()), &[]).unwrap();
    check_all_are_reported(&device, &queue, end);
    let open = held.wait_submitted(Duration::ZERO);
    assert!(matches!(open, Err(Error::TimedOut { .. })), "{open:?}");
    closed.signal(1).unwrap();
    held.wait_submitted(LONG).unwrap();
}

/// A queue that has forgotten later skipped submissions still knows an earlier held one.
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
    // After its release the queue cannot tell it from a forgotten submission.
    closed.signal(1).unwrap();
    let told = held.wait_submitted(LONG);
    assert!(matches!(told, Err(Error::Unsupported { .. })), "{told:?}");
}
