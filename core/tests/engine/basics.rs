//! The engine over the host backend: order, holding, claims, failure and lifetimes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rstest::rstest;
use syncline_core::backend::{Device as _, Queue as _, must_defer_free};
use syncline_core::host::{Device, Recorder};
use syncline_core::{Error, Point, QueueKind, Timeline, wait_all, wait_any};

const LONG: Duration = Duration::from_secs(20);

fn nothing(_: &mut Recorder<'_>) -> syncline_core::Result<()> {
    Ok(())
}

#[test]
fn a_chain_of_512_queues_submitted_backwards() {
    const LINKS: usize = 512;
    let device = Device::new();
    // Link n waits for the signal of link n - 1, and is submitted before it.
    let links: Vec<_> = (0..=LINKS)
        .map(|i| device.timeline(&format!("link {i}")).unwrap())
        .collect();
    for i in (1..=LINKS).rev() {
        let queue = device.queue(QueueKind::Compute, "link").unwrap();
        queue
            .submit(&[links[i - 1].at(1)], nothing, &[links[i].signal_at(1)])
            .unwrap();
    }
    assert!(!links[LINKS].at(1).is_reached().unwrap());
    links[0].signal(1).unwrap();
    links[LINKS].at(1).wait(LONG).unwrap();
}

#[test]
fn a_chain_of_32768_values_over_two_queues_behind_one_gate() {
    let device = Device::new();
    let (a, b) = (
        device.queue(QueueKind::Compute, "a").unwrap(),
        device.queue(QueueKind::Compute, "b").unwrap(),
    );
    let gate = device.timeline("gate").unwrap();
    let chain = device.timeline("chain").unwrap();
    a.submit(&[gate.at(1)], nothing, &[]).unwrap();
    for n in 1..=16384u64 {
        b.submit(&[chain.at(2 * n - 1)], nothing, &[chain.signal_at(2 * n)])
            .unwrap();
    }
    for n in 1..=16384u64 {
        a.submit(
            &[chain.at(2 * n - 2)],
            nothing,
            &[chain.signal_at(2 * n - 1)],
        )
        .unwrap();
    }
    assert_eq!(chain.value().unwrap(), 0);
    gate.signal(1).unwrap();
    // Without a limit, because a busy machine takes long for as many changes of threads.
    chain.at(32768).wait(Duration::MAX).unwrap();
}

#[test]
fn closures_run_in_the_order_of_the_timeline() {
    let device = Device::new();
    let order = device.timeline("order").unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let queues: Vec<_> = (0..8)
        .map(|i| device.queue(QueueKind::Compute, &format!("q{i}")).unwrap())
        .collect();
    // The last queue first. The submissions of one queue are in order.
    for (q, queue) in queues.iter().enumerate().rev() {
        for n in (0..64u64).filter(|n| n % 8 == q as u64) {
            let seen = seen.clone();
            queue
                .submit(
                    &[order.at(n)],
                    move |recorder| {
                        recorder.run(move || seen.lock().unwrap().push(n));
                        Ok(())
                    },
                    &[order.signal_at(n + 1)],
                )
                .unwrap();
        }
    }
    order.at(64).wait(LONG).unwrap();
    assert_eq!(*seen.lock().unwrap(), (0..64).collect::<Vec<_>>());
}

/// No value stays claimed, and the refused submission has not run.
#[rstest]
fn a_submission_that_signals_a_timeline_twice_is_refused(
    #[values([1, 2], [2, 1], [2, 2])] values: [u64; 2],
    #[values(0, 1)] gate_value: u64,
    #[values(false, true)] is_of_another_device: bool,
) {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let gate = device.timeline("gate").unwrap();
    let other = Device::new();
    let home = if is_of_another_device {
        &other
    } else {
        &device
    };
    let line = home.timeline("line").unwrap();
    let signals = values.map(|value| line.signal_at(value));
    let work = |_: &mut Recorder<'_>| panic!("refused work runs");
    let refused = queue.submit(&[gate.at(gate_value)], work, &signals);
    assert!(
        matches!(&refused, Err(Error::DuplicateSignal { asked, .. }) if *asked == values[1]),
        "{refused:?}"
    );
    line.signal(1).unwrap();
    queue.submit(&[], nothing, &[line.signal_at(2)]).unwrap();
    line.at(2).wait(LONG).unwrap();
}

/// The error is about the own wait, also if that is pending and so not free to be claimed.
#[rstest]
#[case::equal(3)]
#[case::below(2)]
fn a_signal_behind_a_pending_own_wait_is_refused(#[case] value: u64) {
    let device = Device::new();
    let queue = |label| device.queue(QueueKind::Compute, label).unwrap();
    let [first, second] = ["first", "second"].map(queue);
    let line = device.timeline("line").unwrap();
    let (open, opened) = std::sync::mpsc::channel::<()>();
    let work = move |recorder: &mut Recorder<'_>| {
        recorder.run(move || opened.recv().unwrap());
        Ok(())
    };
    first.submit(&[], work, &[line.signal_at(3)]).unwrap();
    let refused = second.submit(&[line.at(3)], nothing, &[line.signal_at(value)]);
    let Err(Error::SignalBehindOwnWait { asked, waited, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((asked, waited), (value, 3));
    open.send(()).unwrap();
    let signals = [line.signal_at(4)];
    second.submit(&[line.at(3)], nothing, &signals).unwrap();
    line.at(4).wait(LONG).unwrap();
}

/// A host queue runs all kinds of submissions in order after a long closure, in any mix of kinds.
#[test]
fn a_host_queue_runs_accumulated_submissions_in_order() {
    const KINDS: u64 = 8;
    type Log = Arc<Mutex<Vec<(u64, bool)>>>;
    /// A closure that logs its number, and whether the signal before its own was reached.
    fn note(log: &Log, number: u64, line: &Timeline) -> impl FnOnce() + Send + 'static {
        let (log, before) = (log.clone(), line.at(number).keep());
        move || {
            let come = before.point().is_reached().unwrap();
            log.lock().unwrap().push((number, come));
        }
    }
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let other = device.queue(QueueKind::Compute, "other").unwrap();
    for first in 0..KINDS {
        let (line, from) = (
            device.timeline("line").unwrap(),
            device.timeline("from").unwrap(),
        );
        let log = Log::default();
        let mut gates = Vec::new();
        for (queue, signals) in [(&queue, &[][..]), (&other, &[from.signal_at(1)])] {
            let (open, gate) = std::sync::mpsc::channel::<()>();
            gates.push(open);
            let work = move |recorder: &mut Recorder| {
                recorder.run(move || gate.recv().unwrap());
                Ok(())
            };
            queue.submit(&[], work, signals).unwrap();
        }
        for number in 0..3 * KINDS {
            let one = note(&log, number, &line);
            let run = |recorder: &mut Recorder| {
                recorder.run(one);
                Ok(())
            };
            let (before, signal) = (line.at(number), [line.signal_at(number + 1)]);
            // The rounds together put each kind next to each other kind.
            let kind = (first + number * (1 + number / KINDS)) % KINDS;
            let submitted = match kind {
                0 => queue.submit(&[], run, &signal),
                1 => queue.submit(&[before], run, &signal),
                2 => queue.submit(&[from.at(1)], run, &signal),
                3 => queue.submit(&[from.at(1), before], run, &signal),
                4 => {
                    let large = [number; 32];
                    let work = move |recorder: &mut Recorder| {
                        recorder.run(move || assert_eq!(large[31], number));
                        run(recorder)
                    };
                    queue.submit(&[], work, &signal)
                }
                5 => {
                    let work = move |recorder: &mut Recorder| {
                        run(recorder)?;
                        recorder.run(|| ());
                        Ok(())
                    };
                    queue.submit(&[before], work, &signal)
                }
                6 => {
                    queue.submit(&[], run, &[]).unwrap();
                    queue.submit(&[], nothing, &signal)
                }
                _ => {
                    queue.submit(&[from.at(1)], run, &[]).unwrap();
                    queue.submit(&[line.at(number)], nothing, &signal)
                }
            };
            submitted.unwrap();
        }
        assert_eq!(*log.lock().unwrap(), []);
        for open in gates {
            open.send(()).unwrap();
        }
        line.at(3 * KINDS).wait(LONG).unwrap();
        queue.idle(LONG).unwrap();
        let all: Vec<_> = (0..3 * KINDS).map(|number| (number, true)).collect();
        assert_eq!(*log.lock().unwrap(), all, "from {first}");
    }
}

#[test]
fn claims_are_decided_at_the_call() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let gate = device.timeline("gate").unwrap();
    let line = device.timeline("line").unwrap();
    queue
        .submit(&[gate.at(1)], nothing, &[line.signal_at(5)])
        .unwrap();
    assert!(matches!(
        queue.submit(&[], nothing, &[line.signal_at(5)]),
        Err(Error::SignalOverlapsClaim {
            asked: 5,
            above: 0,
            upto: 5,
            ..
        })
    ));
    assert!(matches!(
        line.signal(3),
        Err(Error::SignalOverlapsClaim { .. })
    ));
    queue.submit(&[], nothing, &[line.signal_at(6)]).unwrap();
    gate.signal(1).unwrap();
    line.at(6).wait(LONG).unwrap();
    assert!(matches!(
        line.signal(6),
        Err(Error::SignalNotAboveReached {
            asked: 6,
            reached: 6,
            ..
        })
    ));
    line.signal(7).unwrap();
    assert!(matches!(
        line.signal(u64::MAX),
        Err(Error::ValueOutOfRange { .. })
    ));
}

#[test]
fn failure_passes_through_chains_with_the_first_cause() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let (first, second, third) = (
        device.timeline("first").unwrap(),
        device.timeline("second").unwrap(),
        device.timeline("third").unwrap(),
    );
    let ran = Arc::new(AtomicU64::new(0));
    let other = device.queue(QueueKind::Compute, "other").unwrap();
    for (q, from, to) in [(&queue, &first, &second), (&other, &second, &third)] {
        let ran = ran.clone();
        q.submit(
            &[from.at(1)],
            move |_| {
                ran.fetch_add(1, Ordering::SeqCst);
                Ok(())
            },
            &[to.signal_at(1)],
        )
        .unwrap();
    }
    first.fail(Error::work(std::io::Error::other("the first cause")));
    let error = third.at(1).wait(LONG).unwrap_err();
    let Error::Failed { cause, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(cause.to_string(), "work failed: the first cause");
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    queue.idle(LONG).unwrap();
    other
        .submit(&[], nothing, &[])
        .unwrap()
        .end()
        .wait(LONG)
        .unwrap();
}

#[test]
fn dropping_the_last_handle_cancels_waits_without_a_claim() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let line = device.timeline("line").unwrap();
    let result = device.timeline("result").unwrap();
    queue
        .submit(&[line.at(1)], nothing, &[result.signal_at(1)])
        .unwrap();
    let point = line.at(1).keep();
    drop(line);
    assert!(matches!(
        point.point().wait(LONG),
        Err(Error::Cancelled {
            value: 1,
            reached: 0,
            ..
        })
    ));
    let error = result.at(1).wait(LONG).unwrap_err();
    assert!(
        matches!(&error, Error::Failed { cause, .. } if matches!(**cause, Error::Cancelled { .. }))
    );
    assert_eq!(queue.held().count, 0);
}

#[test]
fn a_wait_for_a_claimed_value_survives_the_last_handle() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let gate = device.timeline("gate").unwrap();
    let line = device.timeline("line").unwrap();
    queue
        .submit(&[gate.at(1)], nothing, &[line.signal_at(1)])
        .unwrap();
    let point = line.at(1).keep();
    let waiter = std::thread::spawn(move || point.point().wait(LONG));
    std::thread::yield_now();
    drop(line);
    gate.signal(1).unwrap();
    waiter.join().unwrap().unwrap();
}

#[test]
fn rejected_work_withdraws_its_claims_and_a_panic_is_a_failure() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let line = device.timeline("line").unwrap();
    let refused = queue.submit(
        &[],
        |_| Err(Error::work(std::io::Error::other("no"))),
        &[line.signal_at(1)],
    );
    assert!(matches!(refused, Err(Error::Work(_))));
    let panicked = queue.submit(&[], |_| panic!("oh"), &[line.signal_at(1)]);
    assert!(matches!(panicked, Err(Error::WorkPanicked { ref message, .. }) if message == "oh"));
    queue.submit(&[], nothing, &[line.signal_at(1)]).unwrap();
    line.at(1).wait(LONG).unwrap();
    queue.idle(LONG).unwrap();

    let gate = device.timeline("gate").unwrap();
    queue
        .submit(
            &[gate.at(1)],
            |_| Err(Error::work(std::io::Error::other("late"))),
            &[line.signal_at(2)],
        )
        .unwrap();
    gate.signal(1).unwrap();
    assert!(matches!(line.at(2).wait(LONG), Err(Error::Failed { .. })));
    queue.idle(LONG).unwrap();
}

/// A closure panics on the worker thread, alone in its submission or beside another closure.
#[rstest]
#[case::alone(false)]
#[case::beside_another_closure(true)]
fn a_panic_on_the_worker_fails_only_its_signals_and_dependents(#[case] more: bool) {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let (line, next, fine) = (
        device.timeline("line").unwrap(),
        device.timeline("next").unwrap(),
        device.timeline("fine").unwrap(),
    );
    let oh = move |recorder: &mut Recorder| {
        recorder.run(|| panic!("oh"));
        if more {
            recorder.run(|| ());
        }
        Ok(())
    };
    let never = |recorder: &mut Recorder| {
        recorder.run(|| unreachable!("its wait has failed"));
        Ok(())
    };
    queue.submit(&[], oh, &[line.signal_at(1)]).unwrap();
    queue
        .submit(&[line.at(1)], never, &[line.signal_at(2)])
        .unwrap();
    queue
        .submit(&[line.at(1)], never, &[next.signal_at(1)])
        .unwrap();
    queue.submit(&[], nothing, &[fine.signal_at(1)]).unwrap();
    for failed in [line.at(1), line.at(2), next.at(1)] {
        let cause = failed.wait(LONG).unwrap_err().to_string();
        assert!(cause.contains("oh"), "{cause}");
    }
    fine.at(1).wait(LONG).unwrap();
    queue.idle(LONG).unwrap();
}

#[test]
fn submitting_to_the_same_queue_from_its_work_is_refused() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let inner = queue.clone();
    let refused = queue.submit(
        &[],
        move |_| inner.submit(&[], nothing, &[]).map(|_| ()),
        &[],
    );
    assert!(matches!(refused, Err(Error::Reentrant { .. })));
    queue
        .submit(&[], nothing, &[])
        .unwrap()
        .end()
        .wait(LONG)
        .unwrap();
}

#[test]
fn waits_over_many_points() {
    let device = Device::new();
    let lines: Vec<_> = (0..4)
        .map(|i| device.timeline(&format!("l{i}")).unwrap())
        .collect();
    assert!(matches!(wait_any(&[], LONG), Err(Error::NothingToWaitFor)));
    wait_all(&[], Duration::ZERO).unwrap();
    let points: Vec<Point<'_>> = lines.iter().map(|line| line.at(1)).collect();
    assert!(
        wait_any(&points, Duration::from_nanos(1))
            .unwrap_err()
            .is_timeout()
    );
    std::thread::scope(|scope| {
        scope.spawn(|| lines[2].signal(1).unwrap());
        assert_eq!(wait_any(&points, LONG).unwrap(), 2);
    });
    lines[0].fail(Error::work(std::io::Error::other("x")));
    assert_eq!(wait_any(&points, LONG).unwrap(), 2);
    assert!(matches!(wait_all(&points, LONG), Err(Error::Failed { .. })));
    assert!(wait_any(&[lines[3].at(1), Point::EMPTY], LONG).unwrap() == 1);
}

#[test]
fn racing_equal_signals_have_one_winner() {
    let device = Device::new();
    for _ in 0..200 {
        let line = device.timeline("line").unwrap();
        let wins = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    if line.signal(1).is_ok() {
                        wins.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(wins.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn many_threads_on_one_queue_lose_no_submission() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let gate = device.timeline("gate").unwrap();
    let count = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for i in 0..500u64 {
                    let count = count.clone();
                    queue
                        .submit(
                            &[gate.at(i / 8)],
                            move |recorder| {
                                recorder.run(move || {
                                    count.fetch_add(1, Ordering::SeqCst);
                                });
                                Ok(())
                            },
                            &[],
                        )
                        .unwrap();
                }
            });
        }
        for i in 1..=63 {
            gate.signal(i).unwrap();
        }
    });
    queue.idle(LONG).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 4000);
}

#[test]
fn keeps_are_dropped_once_the_work_is_done() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let gate = device.timeline("gate").unwrap();
    let kept = Arc::new(());
    let inside = kept.clone();
    queue
        .submit(
            &[gate.at(1)],
            move |recorder| {
                recorder.keep(inside);
                Ok(())
            },
            &[],
        )
        .unwrap();
    assert_eq!(Arc::strong_count(&kept), 2);
    gate.signal(1).unwrap();
    queue.idle(LONG).unwrap();
    assert_eq!(Arc::strong_count(&kept), 1);
}

/// Freeing memory may wait for all work of the device, and the next submission may block there.
#[rstest]
#[case::next_one_goes_at_once(false)]
#[case::next_one_is_held(true)]
fn objects_of_finished_work_are_dropped_before_the_next_submission_goes(#[case] held: bool) {
    struct Kept(Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Kept {
        fn drop(&mut self) {
            let what = if must_defer_free() {
                "by the queue"
            } else {
                "by the test"
            };
            self.0.lock().unwrap().push(what);
        }
    }
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let gate = device.timeline("gate").unwrap();
    let happened = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::new(Kept(happened.clone()));
    let first = queue.submit(
        &[],
        move |recorder| {
            recorder.keep(kept);
            Ok(())
        },
        &[],
    );
    first.unwrap().end().wait(LONG).unwrap();
    let told = happened.clone();
    let goes = move |_: &mut Recorder<'_>| {
        told.lock().unwrap().push("next submission");
        Ok(())
    };
    let waits = [gate.at(1)];
    let accepted = queue.submit(&waits[..usize::from(held)], goes, &[]);
    assert_eq!(accepted.unwrap().is_held(), held);
    let then: &[_] = if held { &[] } else { &["next submission"] };
    assert_eq!(
        *happened.lock().unwrap(),
        [&["by the queue"], then].concat()
    );
    gate.signal(1).unwrap();
    queue.idle(LONG).unwrap();
    drop(Kept(happened.clone()));
    assert_eq!(
        *happened.lock().unwrap(),
        ["by the queue", "next submission", "by the test"]
    );
}

#[test]
fn signals_from_a_device_without_a_port_come_from_the_host_in_order() {
    let (home, away) = (Device::new(), Device::new());
    let line = home.timeline("line").unwrap();
    let (near, far) = (
        home.queue(QueueKind::Compute, "near").unwrap(),
        away.queue(QueueKind::Compute, "far").unwrap(),
    );
    for n in 1..=100u64 {
        far.submit(&[line.at(2 * n - 1)], nothing, &[line.signal_at(2 * n)])
            .unwrap();
        near.submit(&[line.at(2 * n - 2)], nothing, &[line.signal_at(2 * n - 1)])
            .unwrap();
    }
    line.at(200).wait(LONG).unwrap();
}

#[test]
fn released_work_may_signal_the_timeline_that_released_it() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let line = device.timeline("line").unwrap();
    let again = line.clone();
    queue
        .submit(&[line.at(1)], move |_| again.signal(2), &[])
        .unwrap();
    line.signal(1).unwrap();
    line.at(2).wait(LONG).unwrap();
}

/// Signals of the host and of a queue work across the values at which their storage changes.
#[rstest]
#[case::across_62_bits((1 << 62) - 4)]
#[case::across_63_bits((1 << 63) - 4)]
#[case::near_the_last_value(u64::MAX - 8)]
fn very_high_values_are_signalled_one_by_one(#[case] first: u64) {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let line = device.timeline_from("line", first).unwrap();
    for value in [first + 1, first + 3, first + 5] {
        line.signal(value).unwrap();
        assert_eq!(line.value().unwrap(), value);
        let again = line.signal(value).unwrap_err();
        assert!(
            matches!(again, Error::SignalNotAboveReached { reached, .. } if reached == value),
            "{again}"
        );
        queue
            .submit(&[], nothing, &[line.signal_at(value + 1)])
            .unwrap();
        line.at(value + 1).wait(LONG).unwrap();
    }
}

#[test]
fn signals_may_jump_to_very_high_values() {
    let line = Device::new().timeline("line").unwrap();
    for value in [1 << 62, 1 << 63, u64::MAX - 1] {
        line.signal(value).unwrap();
        assert_eq!(line.value().unwrap(), value);
    }
}
