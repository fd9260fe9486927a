//! Submissions that wait for each other: circles are refused, others are held, blockers reported.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use rstest::rstest;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::host::{Device, Queue, Recorder};
use syncline_core::{
    Error, Point, QueueKind, Signal, Timeline,
    wait::{Blockers, Signaller},
    wait_all, wait_any,
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

/// The text of the error, which must be that of a circle.
fn circle(result: Result<(), Error>) -> String {
    match result {
        Err(error @ Error::Circular { .. }) => error.to_string(),
        other => panic!("no circle: {other:?}"),
    }
}

#[test]
fn two_queues_that_wait_for_each_other() {
    let device = Device::new();
    let (a, b) = (queue(&device, "a"), queue(&device, "b"));
    let (x, y) = (device.timeline("x").unwrap(), device.timeline("y").unwrap());
    link(&a, &[x.at(1)], &[y.signal_at(1)]).unwrap();
    let told = circle(link(&b, &[y.at(1)], &[x.signal_at(1)]));
    for word in ["\"b\"", "\"y\"", "\"a\"", "\"x\"", "submission 1"] {
        assert!(told.contains(word), "{word} is missing: {told}");
    }
    // The refused submission changed nothing: the host may signal x, which releases the rest.
    assert_eq!(b.held().count, 0);
    x.signal(1).unwrap();
    y.at(1).wait(LONG).unwrap();
    link(&b, &[y.at(1)], &[x.signal_at(2)]).unwrap();
    x.at(2).wait(LONG).unwrap();
}

#[test]
fn a_circle_through_the_order_of_a_queue() {
    let device = Device::new();
    let (a, b) = (queue(&device, "a"), queue(&device, "b"));
    let (gate, x, y) = (
        device.timeline("gate").unwrap(),
        device.timeline("x").unwrap(),
        device.timeline("y").unwrap(),
    );
    link(&a, &[gate.at(1)], &[]).unwrap();
    link(&a, &[x.at(1)], &[]).unwrap();
    link(&a, &[], &[y.signal_at(1)]).unwrap();
    link(&b, &[gate.at(1)], &[]).unwrap();
    link(&b, &[y.at(1)], &[]).unwrap();
    // On queue b it comes after the wait for y. On queue a the signal of y comes after the wait
    // for x.
    let told = circle(link(&b, &[], &[x.signal_at(1)]));
    assert!(told.contains("\"x\"") && told.contains("\"y\""), "{told}");
    x.signal(1).unwrap();
    gate.signal(1).unwrap();
    a.idle(LONG).unwrap();
    b.idle(LONG).unwrap();
}

#[test]
fn a_circle_through_a_fence() {
    let device = Device::new();
    let (a, b) = (queue(&device, "a"), queue(&device, "b"));
    let x = device.timeline("x").unwrap();
    link(&a, &[x.at(1)], &[]).unwrap();
    let fence = device.fence("behind x");
    a.record(&fence).unwrap();
    circle(link(
        &b,
        &[fence.point().unwrap().point()],
        &[x.signal_at(1)],
    ));
    x.signal(1).unwrap();
    fence.wait(LONG).unwrap();
}

#[test]
fn a_circle_through_the_order_of_signals() {
    let device = Device::new();
    let (a, b) = (queue(&device, "a"), queue(&device, "b"));
    let (x, y) = (device.timeline("x").unwrap(), device.timeline("y").unwrap());
    // The signal of x to 2 comes after any signal of x to 1. The signal of y waits for x at 2.
    link(&a, &[x.at(1)], &[x.signal_at(2)]).unwrap();
    link(&a, &[x.at(2)], &[y.signal_at(1)]).unwrap();
    circle(link(&b, &[y.at(1)], &[x.signal_at(1)]));
    x.signal(1).unwrap();
    y.at(1).wait(LONG).unwrap();
}

#[test]
fn a_circle_through_signals_of_the_host() {
    // Two devices without ports in common: the host makes each signal.
    let (one, two) = (Device::new(), Device::new());
    let (a, b) = (queue(&one, "a"), queue(&two, "b"));
    let (x, y) = (one.timeline("x").unwrap(), two.timeline("y").unwrap());
    link(&a, &[x.at(1)], &[y.signal_at(1)]).unwrap();
    circle(link(&b, &[y.at(1)], &[x.signal_at(1)]));
    // A signal that follows a held one of the same timeline waits for it without being held itself.
    let c = queue(&one, "c");
    link(&c, &[], &[y.signal_at(2)]).unwrap();
    circle(link(&b, &[y.at(2)], &[x.signal_at(1)]));
    x.signal(1).unwrap();
    y.at(2).wait(LONG).unwrap();
}

#[test]
fn a_submission_that_a_legal_signal_can_release_is_held() {
    let device = Device::new();
    let (a, b) = (queue(&device, "a"), queue(&device, "b"));
    let (x, y) = (device.timeline("x").unwrap(), device.timeline("y").unwrap());
    link(&a, &[x.at(1)], &[y.signal_at(1)]).unwrap();
    // b claims only the value 2 of x, so the host may signal 1.
    link(&b, &[x.at(1), y.at(1)], &[x.signal_at(2)]).unwrap();
    assert_eq!(b.held().count, 1);
    x.signal(1).unwrap();
    x.at(2).wait(LONG).unwrap();
}

#[test]
fn the_error_of_a_long_circle_names_all_links() {
    const LINKS: usize = 12;
    let device = Device::new();
    let lines: Vec<Timeline> = (0..LINKS)
        .map(|n| device.timeline(&format!("line {n}")).unwrap())
        .collect();
    let queues: Vec<Queue> = (0..LINKS)
        .map(|n| queue(&device, &format!("queue {n}")))
        .collect();
    let wait = |n: usize| lines[n].at(1);
    let signal = |n: usize| lines[(n + 1) % LINKS].signal_at(1);
    // The order neither follows the chain nor reverses it.
    for n in (0..LINKS).map(|n| n * 5 % LINKS).take(LINKS - 1) {
        link(&queues[n], &[wait(n)], &[signal(n)]).unwrap();
    }
    let last = (LINKS - 1) * 5 % LINKS;
    let told = circle(link(&queues[last], &[wait(last)], &[signal(last)]));
    for n in 0..LINKS {
        assert!(
            told.contains(&format!("\"line {n}\"")),
            "line {n} is missing: {told}"
        );
        assert!(
            told.contains(&format!("\"queue {n}\"")),
            "queue {n} is missing: {told}"
        );
    }
    lines[0].fail(Error::work(std::io::Error::other("over")));
    // The failure goes along the chain up to the refused submission, which signals nothing.
    let failed = |line: &Timeline, cause: &str| {
        matches!(
            line.at(1).wait(LONG),
            Err(Error::Failed { cause: found, .. }) if found.to_string().contains(cause)
        )
    };
    for line in &lines[1..=last] {
        assert!(failed(line, "over"), "{line:?}");
    }
    for line in &lines[last + 1..] {
        assert!(matches!(
            line.at(1).wait(Duration::ZERO),
            Err(Error::TimedOut { .. })
        ));
    }
    lines[last + 1].fail(Error::work(std::io::Error::other("as well")));
    for line in &lines[last + 2..] {
        assert!(failed(line, "as well"), "{line:?}");
    }
}

#[test]
fn a_relayed_signal_blocks_only_submissions_that_wait_for_it() {
    let (home, away) = (Device::new(), Device::new());
    let (v, h) = (queue(&home, "v"), queue(&away, "h"));
    let [u, w] = ["u", "w"].map(|label| home.timeline(label).unwrap());
    let t = home.timeline("t").unwrap();
    link(&v, &[u.at(1)], &[]).unwrap();
    link(&v, &[], &[t.signal_at(1)]).unwrap();
    // Its signal of t waits for the signal before, which waits for u. The submission itself does
    // not wait for u.
    link(&h, &[w.at(1)], &[t.signal_at(2)]).unwrap();
    let told = t.at(2).blockers().to_string();
    for word in ["submission 1 of host queue \"h\"", "\"u\"", "\"w\""] {
        assert!(told.contains(word), "{word} is missing: {told}");
    }
    link(&h, &[], &[u.signal_at(1)]).unwrap();
    w.signal(1).unwrap();
    t.at(2).wait(LONG).unwrap();
    // A submission that waits for such a signal, and must come before it, closes a circle.
    let [x, y] = ["x", "y"].map(|label| home.timeline(label).unwrap());
    link(&h, &[x.at(1)], &[y.signal_at(1)]).unwrap();
    let told = circle(link(&v, &[y.at(1)], &[x.signal_at(1)]));
    assert!(told.contains("submission 3 of host queue \"h\""), "{told}");
    x.signal(1).unwrap();
    y.at(1).wait(LONG).unwrap();
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

#[test]
fn a_failure_skips_submissions_behind_a_held_one() {
    let device = Device::new();
    let a = queue(&device, "a");
    let (gate, bad, after, next) = (
        device.timeline("gate").unwrap(),
        device.timeline("bad").unwrap(),
        device.timeline("after").unwrap(),
        device.timeline("next").unwrap(),
    );
    link(&a, &[gate.at(1)], &[]).unwrap();
    let kept = Arc::new(());
    let held = kept.clone();
    a.submit(
        &[bad.at(1)],
        move |_| {
            drop(held);
            Ok(())
        },
        &[after.signal_at(1)],
    )
    .unwrap();
    link(&a, &[], &[next.signal_at(1)]).unwrap();
    bad.fail(Error::work(std::io::Error::other("gone")));
    // The gate is still closed.
    let error = after.at(1).wait(Duration::ZERO).unwrap_err();
    assert!(
        matches!(&error, Error::Failed { cause, .. } if cause.to_string().contains("gone")),
        "{error}"
    );
    assert_eq!(
        Arc::strong_count(&kept),
        1,
        "the work is kept although it never runs"
    );
    assert!(matches!(
        next.at(1).wait(Duration::ZERO),
        Err(Error::TimedOut { .. })
    ));
    // The timeline has failed before the submission.
    let late = device.timeline("late").unwrap();
    link(&a, &[bad.at(2)], &[late.signal_at(1)]).unwrap();
    assert!(matches!(
        late.at(1).wait(Duration::ZERO),
        Err(Error::Failed { .. })
    ));
    // The last handle of the timeline is dropped.
    let (lone, other) = (
        device.timeline("lone").unwrap(),
        device.timeline("other").unwrap(),
    );
    link(&a, &[lone.at(1)], &[other.signal_at(1)]).unwrap();
    drop(lone);
    assert!(matches!(
        other.at(1).wait(Duration::ZERO),
        Err(Error::Failed { .. })
    ));
    gate.signal(1).unwrap();
    next.at(1).wait(LONG).unwrap();
    a.idle(LONG).unwrap();
}

#[test]
fn a_time_out_reports_the_chain_of_blockers() {
    let device = Device::new();
    let (a, b) = (queue(&device, "a"), queue(&device, "b"));
    let (gate, x, y) = (
        device.timeline("gate").unwrap(),
        device.timeline("x").unwrap(),
        device.timeline("y").unwrap(),
    );
    link(&a, &[gate.at(3)], &[x.signal_at(1)]).unwrap();
    link(&b, &[x.at(1)], &[y.signal_at(7)]).unwrap();
    let Err(Error::TimedOut { blockers, .. }) = y.at(5).wait(Duration::ZERO) else {
        panic!("no time-out");
    };
    let told: Vec<_> = blockers
        .steps()
        .iter()
        .map(|step| (step.timeline.label(), step.value, step.by.clone()))
        .collect();
    let by = |queue: &Queue| Signaller::Held {
        queue: queue.object().clone(),
        submission: 1,
    };
    let expected = vec![
        ("y", 5, by(&b)),
        ("x", 1, by(&a)),
        ("gate", 3, Signaller::None),
    ];
    assert_eq!(told, expected, "{blockers}");
    gate.signal(3).unwrap();
    y.at(7).wait(LONG).unwrap();
    assert!(y.at(7).blockers().steps().is_empty());
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
fn a_time_out_of_a_list_reports_the_blockers_of_each_point() {
    let device = Device::new();
    let [a, b, c] = ["a", "b", "c"].map(|label| queue(&device, label));
    let gates = ["one", "two", "three"].map(|label| device.timeline(label).unwrap());
    let ends = ["x", "y", "z"].map(|label| device.timeline(label).unwrap());
    for ((queue, gate), end) in [&a, &b, &c].into_iter().zip(&gates).zip(&ends) {
        link(queue, &[gate.at(1)], &[end.signal_at(1)]).unwrap();
    }
    let points = [ends[0].at(1), ends[1].at(1), Point::EMPTY, ends[2].at(1)];
    let all = blockers(wait_all(&points, Duration::ZERO));
    assert_eq!(missing(&all), ["one", "two", "three"], "{all}");
    gates[1].signal(1).unwrap();
    ends[1].at(1).wait(LONG).unwrap();
    let all = blockers(wait_all(&points, Duration::ZERO));
    assert_eq!(missing(&all), ["one", "three"], "{all}");
    let open = [points[0], points[3]];
    let any = blockers(wait_any(&open, Duration::ZERO).map(drop));
    assert_eq!(missing(&any), ["one", "three"], "{any}");
    for gate in [&gates[0], &gates[2]] {
        gate.signal(1).unwrap();
    }
    wait_all(&points, LONG).unwrap();
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

const LINKS: u64 = 32_768;
const BLOCK: u64 = LINKS / 16;

#[rstest]
#[case::ascending((0..LINKS).collect())]
#[case::odd_links_first((1..LINKS).step_by(2).chain((0..LINKS).step_by(2)).collect())]
#[case::last_block_first((0..16).rev().flat_map(|block| block * BLOCK..(block + 1) * BLOCK).collect())]
fn a_chain_of_32768_may_be_submitted_in_any_order(#[case] order: Vec<u64>) {
    let device = Device::new();
    let gate = device.timeline("gate").unwrap();
    let chain = device.timeline("chain").unwrap();
    // Each queue gets its links in ascending order, so that it can run.
    let queues: Vec<Queue> = (0..32).map(|_| queue(&device, "link")).collect();
    for n in order {
        let first = [gate.at(1)];
        let other = [chain.at(n)];
        let waits = if n == 0 { &first } else { &other };
        let to = &queues[(2 * (n / BLOCK) + n % 2) as usize];
        link(to, waits, &[chain.signal_at(n + 1)]).unwrap();
    }
    assert_eq!(chain.value().unwrap(), 0);
    gate.signal(1).unwrap();
    chain.at(LINKS).wait(Duration::from_secs(60)).unwrap();
}
