//! Q4, E5: long reports of what blocks a point.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::time::Duration;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::host::{Device, Queue, Recorder};
use syncline_core::{
    Error, Point, QueueKind, Signal, Timeline,
    wait::{Blockers, Signaller},
    wait_all,
};

const LONG: Duration = Duration::from_secs(20);

fn nothing(_: &mut Recorder<'_>) -> syncline_core::Result<()> {
    Ok(())
}

fn queue(device: &Device, label: &str) -> Queue {
    device.queue(QueueKind::Compute, label).unwrap()
}

fn link(queue: &Queue, waits: &[Point<'_>], signals: &[Signal<'_>]) -> Result<(), Error> {
    queue.submit(waits, nothing, signals).map(|_| ())
}

#[test]
fn a_value_of_a_failed_timeline_is_reported_as_never_signalled() {
    let device = Device::new();
    let a = queue(&device, "a");
    let [bad, gate] = ["bad", "gate"].map(|label| device.timeline(label).unwrap());
    link(&a, &[gate.at(1)], &[bad.signal_at(1)]).unwrap();
    bad.fail(Error::work(std::io::Error::other("the cause")));
    let told = bad.at(1).blockers();
    let never =
        |by: &Signaller| matches!(by, Signaller::Never { cause } if cause.contains("the cause"));
    assert!(never(&told.steps()[0].by), "{told}");
    gate.signal(1).unwrap();
    a.idle(LONG).unwrap();
}

/// The blockers in the error of a time-out.
fn blockers(ended: Result<(), Error>) -> Blockers {
    match ended {
        Err(Error::TimedOut { blockers, .. }) => blockers,
        other => panic!("no time-out: {other:?}"),
    }
}

/// The labels of the timelines for which no signal was submitted.
fn missing(blockers: &Blockers) -> Vec<&str> {
    let steps = blockers.steps().iter();
    let missing = steps.filter(|step| step.by == Signaller::None);
    missing.map(|step| step.timeline.label()).collect()
}

/// Submits a chain behind `gate` to `queues` in turn. Returns the timeline of its last signal.
fn chain(device: &Device, queues: &[&Queue], gate: &Timeline, links: usize) -> Timeline {
    let mut before = None;
    for n in 0..links {
        let after = device.timeline(&format!("link {n}")).unwrap();
        let wait = before.as_ref().unwrap_or(gate).at(1);
        link(queues[n % queues.len()], &[wait], &[after.signal_at(1)]).unwrap();
        before = Some(after);
    }
    before.unwrap()
}

#[test]
fn a_long_report_ends_with_the_missing_signal() {
    const LINKS: usize = 400;
    let device = Device::new();
    let names: Vec<_> = (0..LINKS).map(|n| format!("queue {n}")).collect();
    let queues: Vec<_> = names.iter().map(|name| queue(&device, name)).collect();
    let queues: Vec<_> = queues.iter().collect();
    let (short, far) = (
        device.timeline("short").unwrap(),
        device.timeline("far").unwrap(),
    );
    // Each link has its own queue, so only the chain leads from one submission to the next.
    let long = chain(&device, &queues, &far, LINKS);
    let told = blockers(long.at(1).wait(Duration::ZERO));
    assert_eq!(missing(&told), ["far"], "{told}");
    assert_eq!(told.steps().len(), 32, "{told}");
    assert_eq!(told.left_out() + told.steps().len(), LINKS + 1, "{told}");
    for (n, step) in told.steps().iter().enumerate() {
        let place = if n < 16 { n } else { n + told.left_out() };
        let label = (place < LINKS).then(|| format!("link {}", LINKS - 1 - place));
        let label = label.unwrap_or_else(|| "far".into());
        assert_eq!(step.timeline.label(), label, "{told}");
    }
    let gap = format!("({} steps are left out here)", LINKS + 1 - 32);
    assert!(told.to_string().contains(&gap), "{told}");
    // The report keeps the end of a shorter chain, too, although it is not among the last steps.
    let near = chain(&device, &queues[..20], &short, 20);
    let told = blockers(wait_all(&[near.at(1), long.at(1)], Duration::ZERO));
    let mut ends = missing(&told);
    ends.sort_unstable();
    assert_eq!(ends, ["far", "short"], "{told}");
    assert_eq!(told.steps().len(), 32, "{told}");
    short.signal(1).unwrap();
    far.signal(1).unwrap();
    wait_all(&[near.at(1), long.at(1)], LONG).unwrap();
    assert_eq!(long.at(1).blockers().left_out(), 0);
}

/// The report finds the missing signal although it does not search each of very many submissions.
///
/// The first held submission of a queue blocks all others of the queue.
#[test]
fn the_missing_signal_is_reported_behind_any_number_of_submissions() {
    const LINKS: usize = 20_000;
    let device = Device::new();
    let (a, b) = (queue(&device, "a"), queue(&device, "b"));
    let gate = device.timeline("gate").unwrap();
    let last = chain(&device, &[&a, &b], &gate, LINKS);
    let told = blockers(last.at(1).wait(Duration::ZERO));
    assert_eq!(missing(&told), ["gate"], "{told}");
    assert_eq!(told.steps().len(), 32, "{told}");
    assert!((4096 - 32..LINKS).contains(&told.left_out()), "{told}");
    gate.signal(1).unwrap();
    last.at(1).wait(LONG).unwrap();
}
