//! Traces of host queues: which submissions and host signals they record.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::clock::HostClock;
use syncline_core::trace::{Outcome, Place, Recording, Submission, Trace, Track};
use syncline_core::{Error, QueueKind, Timeline, host};

fn broken(what: &'static str) -> Error {
    Error::work(std::io::Error::other(what))
}

const LONG: Duration = Duration::from_secs(20);

struct Setup {
    device: host::Device,
    one: host::Queue,
    two: host::Queue,
    gate: Timeline,
    between: Timeline,
}

fn setup() -> Setup {
    let device = host::Device::new();
    let queue = |label| device.queue(QueueKind::Compute, label).unwrap();
    let timeline = |label| device.timeline(label).unwrap();
    Setup {
        one: queue("one"),
        two: queue("two"),
        gate: timeline("gate"),
        between: timeline("between"),
        device,
    }
}

fn track<'r>(recording: &'r Recording, queue: &str) -> &'r Track {
    let mut tracks = recording.tracks.iter();
    tracks.find(|track| track.queue == queue).unwrap()
}

/// Checks that the times of one submission are in order and after the start of the trace.
fn in_order(recording: &Recording, of: &Submission) {
    let (began, ended) = (of.began.unwrap(), of.ended.unwrap());
    // The times of a host device are host times.
    let times = [
        recording.begun,
        of.made,
        of.released.unwrap(),
        began.nanoseconds,
        ended.nanoseconds,
    ];
    assert!(times.is_sorted(), "{times:?} of {of:?}");
    assert_eq!((began.error, ended.error), (0, 0));
}

#[test]
fn a_trace_records_each_step_of_a_submission() {
    let s = setup();
    let trace = Trace::new();
    trace.follow(&s.one).unwrap();
    trace.follow(&s.two).unwrap();

    // It is not held, because no submission of this queue was held before.
    s.two.submit(&[], |_| Ok(()), &[]).unwrap();
    // It is held until the host opens the gate. The second queue waits for its signal.
    let first = s.one.submit(
        &[s.gate.at(1)],
        |r| {
            r.run(|| ());
            Ok(())
        },
        &[s.between.signal_at(1)],
    );
    let first = first.unwrap();
    assert!(first.is_held());
    trace.label(first.end(), "opened by the host");
    let second = s.two.submit(&[s.between.at(1)], |_| Ok(()), &[]).unwrap();
    trace.label(second.end(), "replaced");
    trace.label(second.end(), "behind the first");
    let before = HostClock::Monotonic.now();
    s.gate.signal(1).unwrap();
    let after = HostClock::Monotonic.now();
    s.two.idle(LONG).unwrap();
    let recording = trace.finish(LONG);

    assert!(recording.begun < recording.ended);
    let (one, two) = (track(&recording, "one"), track(&recording, "two"));
    assert_eq!((one.submissions.len(), two.submissions.len()), (1, 2));
    for submission in one.submissions.iter().chain(&two.submissions) {
        in_order(&recording, submission);
        assert_eq!(submission.outcome, Outcome::Finished);
    }
    let (first, second) = (&one.submissions[0], &two.submissions[1]);
    assert_eq!(first.label.as_deref(), Some("opened by the host"));
    assert_eq!(second.label.as_deref(), Some("behind the first"));
    assert_eq!((first.number, first.held), (1, true));
    assert!(
        first.released.unwrap() >= before,
        "released before the gate opened"
    );
    assert!(second.held);
    assert!(!two.submissions[0].held);
    assert_eq!(two.submissions[0].label, None);
    assert!(
        second.began.unwrap().nanoseconds >= first.ended.unwrap().nanoseconds,
        "{first:?} {second:?}"
    );

    let [signal] = &recording.host_signals[..] else {
        panic!("{:?}", recording.host_signals);
    };
    assert!((before..=after).contains(&signal.at));
    let names: Vec<_> = recording
        .arrows()
        .iter()
        .map(|arrow| {
            let name = &recording.timelines[arrow.signal.timeline];
            let to = recording.submission(arrow.to).unwrap().number;
            (arrow.from, name.as_str(), arrow.signal.value, to)
        })
        .collect();
    let [to_first, to_second] = &names[..] else {
        panic!("{names:?}");
    };
    assert_eq!(*to_first, (Place::Host(0), "gate", 1, 1));
    let Place::Submission(t, 0) = to_second.0 else {
        panic!("{to_second:?}");
    };
    assert_eq!(recording.tracks[t].queue, "one");
    assert_eq!((to_second.1, to_second.2), ("between", 1));
    for arrow in recording.arrows() {
        let from = recording.signalled(arrow.from).unwrap().nanoseconds;
        let to = recording.submission(arrow.to).unwrap();
        assert!(from <= to.began.unwrap().nanoseconds, "{arrow:?}");
    }
}

#[test]
fn a_submission_that_did_not_run_has_its_reason() {
    let s = setup();
    let trace = Trace::new();
    trace.follow(&s.one).unwrap();
    let gate = &s.gate;
    s.one.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
    let late = s.device.timeline("late").unwrap();
    s.one
        .submit(&[late.at(1)], |_| Err(broken("its own error")), &[])
        .unwrap();
    s.one.idle(Duration::ZERO).unwrap_err();
    gate.fail(broken("the gate is broken"));
    late.signal(1).unwrap();
    s.one.idle(LONG).unwrap();
    // A submission that is refused in the call is not recorded.
    let refused = s.one.submit(&[], |_| Err(broken("refused")), &[]);
    refused.unwrap_err();
    // Its wait does not end before the trace.
    let never = s.device.timeline("never").unwrap();
    s.one.submit(&[never.at(1)], |_| Ok(()), &[]).unwrap();
    let recording = trace.finish(Duration::from_millis(1));

    let submissions = &track(&recording, "one").submissions;
    let outcomes: Vec<_> = submissions.iter().map(|one| &one.outcome).collect();
    let [
        Outcome::Failed(skipped),
        Outcome::Failed(wrong),
        Outcome::Pending,
    ] = outcomes[..]
    else {
        panic!("{outcomes:?}");
    };
    assert!(skipped.contains("the gate is broken"), "{skipped}");
    assert!(wrong.contains("its own error"), "{wrong}");
    for submission in submissions {
        assert_eq!((submission.began, submission.ended), (None, None));
    }
    assert_eq!(submissions[2].released, None);
    never.signal(1).unwrap();
}

#[test]
fn a_queue_has_one_trace_at_a_time_until_the_trace_ends() {
    let s = setup();
    let first = Trace::new();
    first.follow(&s.one).unwrap();
    let second = Trace::new();
    let refused = second.follow(&s.one);
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
    s.one.submit(&[s.gate.at(1)], |_| Ok(()), &[]).unwrap();
    drop(first);
    second.follow(&s.one).unwrap();
    // The dropped trace no longer follows the gate.
    s.one.submit(&[s.gate.at(1)], |_| Ok(()), &[]).unwrap();
    s.gate.signal(1).unwrap();
    let recording = second.finish(LONG);
    assert_eq!(track(&recording, "one").submissions.len(), 1);
    assert_eq!(recording.host_signals.len(), 1);

    s.one.submit(&[], |_| Ok(()), &[]).unwrap();
    s.gate.signal(2).unwrap();
    let third = Trace::new();
    third.follow(&s.one).unwrap();
    let recording = third.finish(LONG);
    assert!(track(&recording, "one").submissions.is_empty());
    assert!(recording.host_signals.is_empty());
}

/// Two traces record the host's signals of one timeline, each until its end.
#[test]
fn a_timeline_may_have_several_traces() {
    let s = setup();
    let (first, second) = (Trace::new(), Trace::new());
    first.follow(&s.one).unwrap();
    second.follow(&s.two).unwrap();
    for queue in [&s.one, &s.two] {
        queue.submit(&[s.gate.at(1)], |_| Ok(()), &[]).unwrap();
        queue.submit(&[s.gate.at(3)], |_| Ok(()), &[]).unwrap();
    }
    s.gate.signal(1).unwrap();
    // No trace records a refused signal.
    s.gate.signal(1).unwrap_err();
    let short = first.finish(Duration::ZERO);
    s.gate.signal(3).unwrap();
    let long = second.finish(LONG);
    for (recording, queue, values) in [(&short, "one", &[1][..]), (&long, "two", &[1, 3])] {
        let heard: Vec<_> = recording
            .host_signals
            .iter()
            .map(|one| one.signal.value)
            .collect();
        assert_eq!(heard, values, "{queue}");
        assert_eq!(recording.arrows().len(), values.len(), "{queue}");
        assert_eq!(track(recording, queue).submissions.len(), 2);
    }
}

/// A trace ends while work runs. It records when that work began.
#[test]
fn running_work_at_the_end_of_a_trace_has_begun() {
    let s = setup();
    let trace = Trace::new();
    trace.follow(&s.one).unwrap();
    let (begins, begun) = channel();
    let (opens, opened) = channel::<()>();
    let hangs = move |r: &mut host::Recorder| {
        r.run(move || {
            begins.send(()).unwrap();
            let _ = opened.recv();
        });
        Ok(())
    };
    s.one.submit(&[], hangs, &[]).unwrap();
    s.one.submit(&[], |_| Ok(()), &[]).unwrap();
    s.one.submit(&[s.gate.at(1)], |_| Ok(()), &[]).unwrap();
    begun.recv_timeout(LONG).unwrap();
    let recording = trace.finish(Duration::ZERO);
    opens.send(()).unwrap();
    let [hung, behind, held] = &track(&recording, "one").submissions[..] else {
        panic!("{recording:?}");
    };
    let began = hung.began.unwrap().nanoseconds;
    assert!((hung.made..=recording.ended).contains(&began), "{hung:?}");
    for one in [hung, behind, held] {
        assert_eq!((&one.outcome, one.ended), (&Outcome::Pending, None));
    }
    assert_eq!(
        (behind.began, held.began, held.released),
        (None, None, None)
    );
    s.gate.signal(1).unwrap();
}

/// Held work that panics after its submission call returned is recorded as failed.
#[test]
fn held_work_that_panics_has_failed() {
    let s = setup();
    let trace = Trace::new();
    trace.follow(&s.one).unwrap();
    let signals = [s.between.signal_at(1)];
    s.one
        .submit(&[s.gate.at(1)], |_| panic!("on purpose"), &signals)
        .unwrap();
    s.gate.signal(1).unwrap();
    s.one.idle(LONG).unwrap();
    s.one.submit(&[], |_| Ok(()), &[]).unwrap();
    let recording = trace.finish(LONG);
    let outcomes: Vec<_> = track(&recording, "one")
        .submissions
        .iter()
        .map(|one| (&one.outcome, one.ended.is_some()))
        .collect();
    let [(Outcome::Failed(why), false), (Outcome::Finished, true)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert!(why.contains("panic"), "{why}");
}

/// A trace drops errors of the application, and their drop may submit to the traced queue.
#[test]
fn the_drop_of_an_error_in_a_trace_may_submit() {
    #[derive(Debug)]
    struct Submits(host::Queue);
    impl std::fmt::Display for Submits {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("its drop submits")
        }
    }
    impl std::error::Error for Submits {}
    impl Drop for Submits {
        fn drop(&mut self) {
            let _ = self.0.submit(&[], |_| Ok(()), &[]);
        }
    }
    let s = setup();
    let trace = Trace::new();
    trace.follow(&s.one).unwrap();
    for round in 0..40 {
        let failing = s.device.timeline("failing").unwrap();
        failing.signal(1).unwrap();
        s.one.submit(&[failing.at(1)], |_| Ok(()), &[]).unwrap();
        failing.fail(Error::work(Submits(s.one.clone())));
        drop(failing);
        if round % 10 == 9 {
            s.one.idle(LONG).unwrap();
            // The trace checks for finished submissions within this time.
            std::thread::sleep(Duration::from_millis(120));
        }
    }
    let recording = trace.finish(LONG);
    assert!(track(&recording, "one").submissions.len() >= 40);
}

/// A wait for a value that was reached before the trace followed the timeline has no arrow.
///
/// A later signal of a higher value does not count as its signal.
#[test]
fn a_wait_for_an_earlier_value_has_no_arrow() {
    let s = setup();
    s.gate.signal(5).unwrap();
    let trace = Trace::new();
    trace.follow(&s.one).unwrap();
    for value in [3, 5, 6] {
        s.one.submit(&[s.gate.at(value)], |_| Ok(()), &[]).unwrap();
    }
    s.gate.signal(7).unwrap();
    let recording = trace.finish(LONG);
    let waits: Vec<_> = recording
        .arrows()
        .iter()
        .map(|one| one.wait.value)
        .collect();
    assert_eq!(waits, [6]);
}

#[test]
fn records_beyond_the_capacity_are_counted() {
    let s = setup();
    let trace = Trace::with_capacity(10);
    trace.follow(&s.one).unwrap();
    for value in 1..=25 {
        s.one.submit(&[s.gate.at(value)], |_| Ok(()), &[]).unwrap();
        s.gate.signal(value).unwrap();
    }
    // A refused submission is not recorded, so it does not count.
    let refused = s.one.submit(&[], |_| Ok(()), &[s.gate.signal_at(1)]);
    refused.unwrap_err();
    s.one.idle(LONG).unwrap();
    let recording = trace.finish(LONG);
    let one = track(&recording, "one");
    assert_eq!((one.submissions.len(), one.lost), (10, 15));
    let numbers: Vec<_> = one.submissions.iter().map(|one| one.number).collect();
    assert_eq!(numbers, Vec::from_iter(1..=10));
    assert_eq!(
        (recording.host_signals.len(), recording.host_lost),
        (10, 15)
    );
}

/// The host makes them, so a wait on another side has an arrow, too.
#[test]
fn signals_that_a_bridge_carries_are_recorded() {
    let s = setup();
    let ports = (0..2).map(|_| host::Device::new().port(0));
    let sides = Timeline::bridged("bridge", 0, ports).unwrap();
    let trace = Trace::new();
    trace.follow(&s.one).unwrap();
    s.one.submit(&[sides[1].at(1)], |_| Ok(()), &[]).unwrap();
    sides[0].signal(1).unwrap();
    s.one.idle(LONG).unwrap();
    let recording = trace.finish(LONG);
    let [signal] = &recording.host_signals[..] else {
        panic!("{:?}", recording.host_signals);
    };
    assert_eq!(recording.timelines[signal.signal.timeline], "bridge");
    assert_eq!(recording.arrows().len(), 1);
}

/// Traces begin and end again and again while several threads submit and signal.
#[test]
fn traces_begin_and_end_during_submissions() {
    let s = setup();
    let (stop, stopped) = channel::<()>();
    let seen = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let seen = &seen;
        // The tracing thread may begin late.
        let goes_on = move || seen.load(Ordering::Relaxed) == 0 && start.elapsed() < LONG;
        let mut threads = Vec::new();
        for queue in [&s.one, &s.two] {
            for _ in 0..2 {
                let timeline = s.device.timeline("own").unwrap();
                threads.push(scope.spawn(move || {
                    let mut value = 0;
                    while value < 3_000 || goes_on() {
                        value += 1;
                        let own = &timeline;
                        queue.submit(&[own.at(value)], |_| Ok(()), &[]).unwrap();
                        own.signal(value).unwrap();
                    }
                }));
            }
        }
        let (one, two) = (&s.one, &s.two);
        scope.spawn(move || {
            while stopped.try_recv().is_err() {
                let trace = Trace::new();
                trace.follow(one).unwrap();
                trace.follow(two).unwrap();
                std::thread::yield_now();
                let recording = trace.finish(LONG);
                for submission in recording.tracks.iter().flat_map(|track| &track.submissions) {
                    // A submission may be incomplete if another thread made it as the trace ended.
                    if submission.outcome != Outcome::Pending {
                        in_order(&recording, submission);
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        for thread in threads {
            thread.join().unwrap();
        }
        stop.send(()).unwrap();
    });
    assert!(seen.load(Ordering::Relaxed) > 0);
    s.one.idle(LONG).unwrap();
    s.two.idle(LONG).unwrap();
}
