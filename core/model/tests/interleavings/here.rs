//! Host signals of host timelines, against waits, claims, queues and failures.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use syncline_model::{Error, Timeline};

use crate::driver::{Completes, host_timeline, queue};
use crate::{A_WHILE, FOREVER, interrupted, is_planted, planted};

#[test]
fn a_signal_against_a_wait() {
    interrupted(5, || {
        let (line, _) = host_timeline("line");
        let signaller = line.clone();
        let data = Arc::new(AtomicU64::new(0));
        let written = data.clone();
        let signalling = thread::spawn(move || {
            written.store(7, Ordering::Relaxed);
            signaller.signal(1).unwrap();
        });
        line.at(1).wait(FOREVER).unwrap();
        assert_eq!(data.load(Ordering::Relaxed), 7);
        assert_eq!(line.value().unwrap(), 1);
        signalling.join().unwrap();
    });
}

/// The signal wakes the wait although a third thread reads the claims at the same time.
#[test]
fn a_signal_that_another_thread_makes_against_a_wait() {
    interrupted(2, || {
        let (line, _) = host_timeline("line");
        let signaller = line.clone();
        let signalling = thread::spawn(move || signaller.signal(1).unwrap());
        let reporter = line.clone();
        let reporting = thread::spawn(move || reporter.at(2).blockers().steps().len());
        line.at(1).wait(FOREVER).unwrap();
        signalling.join().unwrap();
        assert_eq!(reporting.join().unwrap(), 1);
        assert_eq!(line.value().unwrap(), 1);
    });
}

#[test]
fn signals_against_two_waits() {
    interrupted(2, || {
        let (line, _) = host_timeline("line");
        let other = line.at(2).keep();
        let waiting = thread::spawn(move || {
            other.point().wait_pending(FOREVER).unwrap();
            assert!(other.point().is_reached().unwrap());
        });
        let signaller = line.clone();
        let signalling = thread::spawn(move || {
            signaller.signal(1).unwrap();
            signaller.signal(3).unwrap();
        });
        line.at(1).wait(FOREVER).unwrap();
        signalling.join().unwrap();
        waiting.join().unwrap();
    });
}

/// A wait that times out during a signal ends with a time-out or with the value.
#[test]
fn a_time_out_against_a_signal() {
    interrupted(4, || {
        let (line, _) = host_timeline("line");
        let signaller = line.clone();
        let signalling = thread::spawn(move || signaller.signal(1).unwrap());
        ends_in_time(&line);
        signalling.join().unwrap();
    });
}

/// A wait that times out removes only its own registration.
#[test]
fn a_time_out_beside_another_wait() {
    interrupted(2, || {
        let (line, _) = host_timeline("line");
        let other = line.at(1).keep();
        let waiting = thread::spawn(move || other.point().wait(FOREVER).unwrap());
        let signaller = line.clone();
        let signalling = thread::spawn(move || signaller.signal(1).unwrap());
        ends_in_time(&line);
        signalling.join().unwrap();
        waiting.join().unwrap();
    });
}

fn ends_in_time(line: &Timeline) {
    match line.at(1).wait(A_WHILE) {
        Ok(()) => assert_eq!(line.value().unwrap(), 1),
        Err(error) => assert!(error.is_timeout(), "{error}"),
    }
}

/// Of two equal signals one is made, and the other is refused with the reason.
#[test]
fn equal_signals() {
    interrupted(5, || {
        let (line, _) = host_timeline("line");
        let other = line.clone();
        let signalling = thread::spawn(move || other.signal(1));
        let results = [line.signal(1), signalling.join().unwrap()];
        let lost: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
        assert!(
            matches!(lost[..], [Error::SignalNotAboveReached { .. }]),
            "{lost:?}"
        );
        line.signal(2).unwrap();
        assert_eq!(line.value().unwrap(), 2);
    });
}

/// The highest of three signals is always made. Each lower one is made before it or refused.
#[test]
fn signals_in_a_row_from_three_threads() {
    interrupted(2, || {
        let (line, _) = host_timeline("line");
        let signalling = [1, 2].map(|value| {
            let line = line.clone();
            thread::spawn(move || match line.signal(value) {
                Ok(()) => true,
                Err(Error::SignalNotAboveReached { reached, .. }) => {
                    assert!(reached > value);
                    false
                }
                Err(error) => panic!("{error}"),
            })
        });
        line.signal(3).unwrap();
        assert_eq!(line.value().unwrap(), 3);
        for signalling in signalling {
            signalling.join().unwrap();
        }
        assert_eq!(line.value().unwrap(), 3);
        line.signal(4).unwrap();
    });
}

/// Of a host signal and a queue's signal of the same value, exactly one is made.
fn against_a_queue(completes: Completes, interruptions: usize) {
    interrupted(interruptions, move || {
        let (line, device) = host_timeline("line");
        let queue = queue(device, "queue", completes);
        let other = line.clone();
        let signalling = thread::spawn(move || other.signal(1));
        let submitted = queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]);
        let submitted = submitted.map(|_| ());
        let signalled = signalling.join().unwrap();
        assert!(
            submitted.is_ok() != signalled.is_ok(),
            "{submitted:?}, {signalled:?}"
        );
        let reached = line.at(1).is_reached().unwrap();
        assert!(reached || (submitted.is_ok() && completes == Completes::WhenRun));
        assert!(line.at(1).is_pending().unwrap());
        // No claim and no waiter is left behind.
        while queue.driver().run() {}
        assert_eq!(line.value().unwrap(), 1);
        line.signal(2).unwrap();
        let next = queue.submit(&[], |_| Ok(()), &[line.signal_at(3)]);
        next.map(|_| ()).unwrap();
        assert!(line.signal(4).is_err() || completes == Completes::InTheCall);
        while queue.driver().run() {}
    });
}

#[test]
fn a_signal_against_a_queue() {
    against_a_queue(Completes::InTheCall, 4);
}

#[test]
fn a_signal_against_a_queue_that_ends_later() {
    against_a_queue(Completes::WhenRun, 4);
}

/// A host signal is refused if a lower value is pending, also if it became pending meanwhile.
#[test]
fn a_signal_against_submissions_before_it() {
    interrupted(4, || {
        let (line, device) = host_timeline("line");
        let queue = queue(device, "queue", Completes::WhenRun);
        let other = line.clone();
        let signalling = thread::spawn(move || other.signal(2));
        let submitted = queue
            .submit(&[], |_| Ok(()), &[line.signal_at(1)])
            .map(|_| ());
        match (submitted, signalling.join().unwrap()) {
            // The host signal came first.
            (Err(Error::SignalNotAboveReached { .. }), Ok(())) => {}
            (Ok(()), Err(Error::SignalOverlapsClaim { .. })) => {
                assert!(!line.at(1).is_reached().unwrap());
            }
            other => panic!("{other:?}"),
        }
        while queue.driver().run() {}
    });
}

/// The driver completes a submission before the submitting thread removes its claim.
///
/// The claim does not refuse the next signal.
#[test]
fn a_completion_against_a_signal_after_it() {
    interrupted(3, || {
        let (line, device) = host_timeline("line");
        let queue = queue(device, "queue", Completes::WhenRun);
        let (submitter, other) = (queue.clone(), line.clone());
        let submitting = thread::spawn(move || {
            submitter
                .submit(&[], |_| Ok(()), &[other.signal_at(1)])
                .unwrap();
        });
        if queue.driver().run() {
            line.signal(2).unwrap();
            assert_eq!(line.value().unwrap(), 2);
        }
        submitting.join().unwrap();
        while queue.driver().run() {}
        line.signal(3).unwrap();
        assert_eq!(line.value().unwrap(), 3);
    });
}

/// A failure freezes the value.
///
/// A signal that returned success was made before it, and a refused signal never becomes visible.
#[test]
fn a_failure_against_signals_against_a_wait() {
    interrupted(2, || {
        let (line, _) = host_timeline("line");
        let (failing, signaller) = (line.clone(), line.clone());
        let failing = thread::spawn(move || {
            failing.fail(planted());
            failing.frozen_value()
        });
        let signalling = thread::spawn(move || match signaller.signal(1) {
            Ok(()) => 1 + u64::from(signaller.signal(2).is_ok()),
            Err(error) => {
                assert!(is_planted(&error), "{error}");
                0
            }
        });
        let ended = line.at(1).wait(FOREVER);
        let frozen = failing.join().unwrap();
        let signalled = signalling.join().unwrap();
        assert_eq!(frozen, signalled);
        assert_eq!(line.frozen_value(), frozen);
        assert_eq!(ended.is_ok(), signalled >= 1);
        assert!(is_planted(&line.value().unwrap_err()));
        assert!(is_planted(&line.signal(5).unwrap_err()));
    });
}

/// A refused submission withdraws its claim. Signals after that are neither lost nor refused.
#[test]
fn a_refusal_against_signals() {
    interrupted(4, || {
        let (line, device) = host_timeline("line");
        let queue = queue(device, "queue", Completes::WhenRun);
        let other = line.clone();
        let signalling = thread::spawn(move || {
            let first = other.signal(1);
            (first, other.signal(2))
        });
        let refused = queue.submit(&[], |_| Err(planted()), &[line.signal_at(4)]);
        assert!(refused.is_err());
        // The claim may have refused either of the signals, or none.
        let (first, second) = signalling.join().unwrap();
        for signalled in [first, second] {
            if let Err(error) = signalled {
                assert!(
                    matches!(error, Error::SignalOverlapsClaim { upto: 4, .. }),
                    "{error}"
                );
            }
        }
        let reached = line.value().unwrap();
        line.signal(reached + 1).unwrap();
        assert_eq!(line.value().unwrap(), reached + 1);
    });
}

/// A host signal releases a held submission. Only the signalling thread can release it.
#[test]
fn a_signal_against_a_submission_that_waits() {
    interrupted(4, || {
        let (gate, device) = host_timeline("gate");
        let queue = queue(device, "queue", Completes::WhenRun);
        let opener = gate.clone();
        let opening = thread::spawn(move || opener.signal(1).unwrap());
        let end = queue.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap().end();
        end.wait_pending(FOREVER).unwrap();
        opening.join().unwrap();
        assert_eq!(queue.held().count, 0);
        assert!(queue.driver().run());
        assert!(end.is_reached().unwrap());
    });
}
