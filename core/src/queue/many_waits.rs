//! The work of holding and releasing one submission grows linearly with its outstanding waits.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::time::Duration;

use rstest::rstest;

use crate::backend::{Device as _, Queue as _};
use crate::base::steps;
use crate::{Error, Point, QueueKind, Timeline, host};

const LONG: Duration = Duration::from_secs(20);

/// What ends the waits, one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// A host signal, in the order of the waits, in the reverse order, or in a mixed one.
    InOrder,
    InReverse,
    Mixed,
    /// Each timeline loses its last handle, before a queue signals it.
    ClosedFirst,
    /// Each timeline fails. The first failure skips the submission.
    Failed,
    /// The last handle of each timeline is dropped, and no claim can bring the value.
    Cancelled,
}

/// Where the waits are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    OneTimeline,
    /// Each wait is for a timeline of its own.
    Each,
    /// The same, on another device: the submission needs values that are reached.
    EachElsewhere,
    /// The same, behind a submission that is released first.
    EachBehindAnother,
}

/// The steps of the calling thread to hold a submission with `count` waits, and to end these waits.
fn steps_of(count: u64, of: Of, ends: Ends) -> (usize, usize) {
    let device = host::Device::new();
    let elsewhere = host::Device::new();
    let waits_of = if of == Of::EachElsewhere {
        &elsewhere
    } else {
        &device
    };
    let [queue, others] =
        ["holds", "signals"].map(|label| device.queue(QueueKind::Compute, label).unwrap());
    let [gate, done, open] = ["gate", "done", "open"].map(|label| device.timeline(label).unwrap());
    let timelines = if of == Of::OneTimeline { 1 } else { count };
    let mut timelines: Vec<_> = (0..timelines)
        .map(|_| Some(waits_of.timeline("waited for").unwrap()))
        .collect();
    let place = |wait: u64| match of {
        Of::OneTimeline => (0, wait + 1),
        _ => (wait as usize, 1),
    };
    steps::take();
    if of == Of::EachBehindAnother {
        queue.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
    }
    let point = |wait: u64| -> Point<'_> {
        let (at, value) = place(wait);
        timelines[at].as_ref().unwrap().at(value)
    };
    let points: Vec<_> = (0..count).map(point).collect();
    queue
        .submit(&points, |_| Ok(()), &[done.signal_at(1)])
        .unwrap();
    drop(points);
    if of == Of::EachBehindAnother {
        gate.signal(1).unwrap();
    }
    if ends == Ends::ClosedFirst {
        for (wait, timeline) in timelines.iter_mut().enumerate() {
            let timeline: Timeline = timeline.take().unwrap();
            let value = wait as u64 + 1;
            let signal = [timeline.signal_at(1)];
            others
                .submit(&[open.at(value)], |_| Ok(()), &signal)
                .unwrap();
        }
    }
    let held = steps::take();
    assert_eq!(queue.held().count, 1);
    for n in 0..count {
        let wait = match ends {
            Ends::InReverse => count - 1 - n,
            // Odd, so it visits each once: the counts are powers of two.
            Ends::Mixed => n * 5 % count,
            _ => n,
        };
        let (at, value) = place(wait);
        let last_handle = if ends == Ends::Cancelled {
            timelines[at].take()
        } else {
            None
        };
        match (&timelines[at], ends) {
            (None, Ends::ClosedFirst) => open.signal(n + 1).unwrap(),
            (Some(timeline), Ends::Failed) => {
                timeline.fail(Error::work(std::io::Error::other("no")))
            }
            (Some(timeline), _) => timeline.signal(value).unwrap(),
            (None, _) => drop(last_handle),
        }
    }
    let ended = steps::take();
    // A thread of the host's queues may have the turn, and releases the submission then.
    let result = done.at(1).wait(LONG);
    assert_eq!(queue.held().count, 0);
    let fails = matches!(ends, Ends::Failed | Ends::Cancelled);
    assert_eq!(result.is_err(), fails, "{result:?}");
    (held, ended)
}

#[rstest]
#[case::in_order(Of::Each, Ends::InOrder)]
#[case::in_reverse(Of::Each, Ends::InReverse)]
#[case::mixed(Of::Each, Ends::Mixed)]
#[case::in_order_of_one_timeline(Of::OneTimeline, Ends::InOrder)]
#[case::in_order_elsewhere(Of::EachElsewhere, Ends::InOrder)]
#[case::in_reverse_elsewhere(Of::EachElsewhere, Ends::InReverse)]
#[case::in_order_behind_another(Of::EachBehindAnother, Ends::InOrder)]
#[case::mixed_behind_another(Of::EachBehindAnother, Ends::Mixed)]
#[case::closed_first(Of::Each, Ends::ClosedFirst)]
#[case::failed(Of::Each, Ends::Failed)]
#[case::failed_behind_another(Of::EachBehindAnother, Ends::Failed)]
#[case::cancelled(Of::Each, Ends::Cancelled)]
fn the_steps_are_linear(#[case] of: Of, #[case] ends: Ends) {
    let few = steps_of(64, of, ends);
    let many = steps_of(2048, of, ends);
    // 32 times as many, with an allowance for the logarithm of that.
    let most = |steps: usize| 64 * steps.max(64);
    assert!(few.0 >= 64, "{few:?}");
    assert!(
        many.0 < most(few.0) && many.1 < most(few.1),
        "{few:?} for 64 waits, {many:?} for 2048"
    );
}

#[test]
fn a_held_submission_reports_a_wait_that_it_still_lacks() {
    let device = host::Device::new();
    let queue = device.queue(QueueKind::Compute, "holds").unwrap();
    let lines = ["one", "two", "three"].map(|label| device.timeline(label).unwrap());
    let points = lines.each_ref().map(|line| line.at(1));
    queue.submit(&points, |_| Ok(()), &[]).unwrap();
    for line in &lines {
        let lacks = queue.held().waiting_for.unwrap();
        assert!(Arc::ptr_eq(lacks.of.as_ref().unwrap(), line.shared()));
        line.signal(1).unwrap();
    }
    assert!(queue.held().waiting_for.is_none());
    queue.idle(LONG).unwrap();
}
