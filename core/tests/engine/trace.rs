//! Traces of host queues: what is written down of each submission, and when it is not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::sync::mpsc::channel;
use std::time::Duration;

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

/// Times of one submission are in their order, and within the trace.
fn in_order(recording: &Recording, of: &Submission) {
    let (began, ended) = (of.began.unwrap(), of.ended.unwrap());
    // On the host, where a device's time is the host's.
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
fn a_submissions_life_is_written_down() {
    let s = setup();
    let trace = Trace::new();
    trace.follow(&s.one).unwrap();
    trace.follow(&s.two).unwrap();

    // Not held: nothing was held on this queue before, so no other thread can still be releasing
    // it.
    s.two.submit(&[], |_| Ok(()), &[]).unwrap();
    // Held until the host opens the gate; the second queue waits for what it signals.
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
fn what_did_not_run_says_why() {
    let s = setup();
    let trace = Trace::new();
    trace.follow(&s.one).unwrap();
    let gate = &s.gate;
    s.one.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
    let late = s.device.timeline("late").unwrap();
    s.one
        .submit(&[late.at(1)], |_| Err(broken("its own error")), &[])
        .unwrap();
    // Refused in the call: not a submission.
    s.one.idle(Duration::ZERO).unwrap_err();
    gate.fail(broken("the gate is broken"));
    late.signal(1).unwrap();
    s.one.idle(LONG).unwrap();
    let refused = s.one.submit(&[], |_| Err(broken("refused")), &[]);
    refused.unwrap_err();
    // Never opened.
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
fn one_trace_follows_a_queue_at_a_time_and_none_after_its_end() {
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
    // The first had the gate before; now nobody has.
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

/// Traces of two queues that wait for one timeline hear of the host's signals both, each until its
/// end.
#[test]
fn a_timeline_has_any_number_of_traces() {
    let s = setup();
    let (first, second) = (Trace::new(), Trace::new());
    first.follow(&s.one).unwrap();
    second.follow(&s.two).unwrap();
    for queue in [&s.one, &s.two] {
        queue.submit(&[s.gate.at(1)], |_| Ok(()), &[]).unwrap();
        queue.submit(&[s.gate.at(3)], |_| Ok(()), &[]).unwrap();
    }
    s.gate.signal(1).unwrap();
    // Nobody hears of one that is refused.
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

/// A submission that does not come to its end has begun all the same.
#[test]
fn what_has_begun_and_not_ended_is_told() {
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

/// Work that panics where nobody is left to be told is not finished; nor is what signals a timeline
/// that has failed.
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

/// An application's error may submit to the same queue where it is dropped.
#[test]
fn what_a_trace_lets_go_may_submit() {
    #[derive(Debug)]
    struct Submits(host::Queue);
    impl std::fmt::Display for Submits {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("it submits where it is dropped")
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
            // Longer than it takes until somebody looks what has finished.
            std::thread::sleep(Duration::from_millis(120));
        }
    }
    let recording = trace.finish(LONG);
    assert!(track(&recording, "one").submissions.len() >= 40);
}

/// What was reached before the trace met the timeline was released by nothing that it saw, and so
/// not by a later signal.
#[test]
fn what_was_reached_before_has_no_arrow() {
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
fn what_finds_no_room_is_counted() {
    let s = setup();
    let trace = Trace::with_room(10);
    trace.follow(&s.one).unwrap();
    for value in 1..=25 {
        s.one.submit(&[s.gate.at(value)], |_| Ok(()), &[]).unwrap();
        s.gate.signal(value).unwrap();
    }
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

/// Submissions of many threads, some of them from within others' work, while a trace begins and
/// ends again and again.
#[test]
fn traces_begin_and_end_beside_everything_else() {
    let s = setup();
    let (stop, stopped) = channel::<()>();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for queue in [&s.one, &s.two] {
            for _ in 0..2 {
                let timeline = s.device.timeline("own").unwrap();
                threads.push(scope.spawn(move || {
                    for value in 1..=3_000 {
                        let own = &timeline;
                        queue.submit(&[own.at(value)], |_| Ok(()), &[]).unwrap();
                        own.signal(value).unwrap();
                    }
                }));
            }
        }
        let (one, two) = (&s.one, &s.two);
        let tracing = scope.spawn(move || {
            let mut seen = 0;
            while stopped.try_recv().is_err() {
                let trace = Trace::new();
                trace.follow(one).unwrap();
                trace.follow(two).unwrap();
                std::thread::yield_now();
                let recording = trace.finish(LONG);
                for submission in recording.tracks.iter().flat_map(|track| &track.submissions) {
                    // One that another thread was just submitting at the end of the trace is as it
                    // was then.
                    if submission.outcome != Outcome::Pending {
                        in_order(&recording, submission);
                        seen += 1;
                    }
                }
            }
            seen
        });
        for thread in threads {
            thread.join().unwrap();
        }
        stop.send(()).unwrap();
        assert!(tracing.join().unwrap() > 0);
    });
    s.one.idle(LONG).unwrap();
    s.two.idle(LONG).unwrap();
}
