//! Signals of one timeline by several threads and queues: which are made, and in which order.

use loom::thread;
use syncline_model::Error;

use crate::driver::{Completes, device, queue, timeline};
use crate::{FOREVER, interrupted, planted};

/// Of two equal signals one is made, and the other is refused with the reason.
#[test]
fn equal_signals() {
    interrupted(5, || {
        let line = timeline(device(), "line");
        let other = line.clone();
        let signalling = thread::spawn(move || other.signal(1));
        let results = [line.signal(1), signalling.join().unwrap()];
        let lost: Vec<_> = results
            .iter()
            .filter_map(|result| result.as_ref().err())
            .collect();
        assert!(
            matches!(
                lost[..],
                [Error::SignalNotAboveReached { .. } | Error::SignalOverlapsClaim { .. }]
            ),
            "{lost:?}"
        );
        assert_eq!(line.value().unwrap(), 1);
    });
}

/// Signals of one timeline neither overlap nor come out of order. The port checks that.
#[test]
fn signals_in_a_row_from_two_threads() {
    interrupted(5, || {
        let line = timeline(device(), "line");
        let other = line.clone();
        let signalling = thread::spawn(move || other.signal(1).is_ok());
        line.signal(2).unwrap();
        line.at(2).wait(FOREVER).unwrap();
        signalling.join().unwrap();
        assert_eq!(line.value().unwrap(), 2);
    });
}

/// Of a host signal and a queue's signal of the same value, exactly one is made.
#[test]
fn a_host_signal_against_a_queue() {
    interrupted(5, || {
        let device = device();
        let line = timeline(device, "line");
        let queue = queue(device, "queue", Completes::InTheCall);
        let other = line.clone();
        let signalling = thread::spawn(move || other.signal(1));
        let mut ran = false;
        let submitted = queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]);
        if let Ok(submitted) = &submitted {
            submitted.end().wait(FOREVER).unwrap();
            ran = true;
        }
        let submitted = submitted.map(|_| ());
        let signalled = signalling.join().unwrap();
        assert!(
            submitted.is_ok() != signalled.is_ok(),
            "{submitted:?}, {signalled:?}"
        );
        assert_eq!(ran, submitted.is_ok());
        assert_eq!(line.value().unwrap(), 1);
    });
}

/// Two queues signal one timeline, and the higher value may be first.
///
/// The higher signal is always made. The lower one is made before it or refused.
#[test]
fn two_queues_signal_one_timeline() {
    interrupted(4, || {
        let device = device();
        let line = timeline(device, "line");
        let (low, high) = (
            queue(device, "low", Completes::InTheCall),
            queue(device, "high", Completes::InTheCall),
        );
        let other = line.clone();
        let submitting = thread::spawn(move || {
            let submitted = low.submit(&[], |_| Ok(()), &[other.signal_at(1)]);
            submitted.map(|_| ())
        });
        high.submit(&[], |_| Ok(()), &[line.signal_at(2)]).unwrap();
        line.at(2).wait(FOREVER).unwrap();
        if let Err(error) = submitting.join().unwrap() {
            assert!(
                matches!(
                    error,
                    Error::SignalOverlapsClaim { .. } | Error::SignalNotAboveReached { .. }
                ),
                "{error}"
            );
        }
        assert_eq!(line.value().unwrap(), 2);
    });
}

/// Two queues signal one value. One is accepted, and the other is refused.
fn one_value(completes: Completes, interruptions: usize) {
    interrupted(interruptions, move || {
        let device = device();
        let line = timeline(device, "line");
        let (left, right) = (
            queue(device, "left", completes),
            queue(device, "right", completes),
        );
        let (submitter, other) = (left.clone(), line.clone());
        let submitting = thread::spawn(move || {
            let submitted = submitter.submit(&[], |_| Ok(()), &[other.signal_at(1)]);
            submitted.map(|_| ())
        });
        let here = right.submit(&[], |_| Ok(()), &[line.signal_at(1)]);
        let here = here.map(|_| ());
        let there = submitting.join().unwrap();
        assert!(here.is_ok() != there.is_ok(), "{here:?}, {there:?}");
        while left.driver().run() || right.driver().run() {}
        line.at(1).wait(FOREVER).unwrap();
        line.signal(2).unwrap();
    });
}

#[test]
fn two_queues_signal_one_value() {
    one_value(Completes::InTheCall, 5);
}

#[test]
fn two_queues_signal_one_value_and_end_later() {
    one_value(Completes::WhenRun, 3);
}

/// Another thread claims the second of the two signals of a submission.
///
/// One of the two submissions is accepted. If the one with two signals is refused, its first claim
/// is withdrawn.
#[test]
fn a_submission_that_steps_back_against_a_signal() {
    interrupted(3, || {
        let device = device();
        let (first, second) = (timeline(device, "first"), timeline(device, "second"));
        let (left, right) = (
            queue(device, "left", Completes::WhenRun),
            queue(device, "right", Completes::WhenRun),
        );
        let (submitter, other) = (right.clone(), second.clone());
        let submitting = thread::spawn(move || {
            let submitted = submitter.submit(&[], |_| Ok(()), &[other.signal_at(1)]);
            submitted.is_ok()
        });
        let both = [first.signal_at(1), second.signal_at(1)];
        let submitted = left.submit(&[], |_| Ok(()), &both).map(|_| ());
        let there = submitting.join().unwrap();
        assert!(submitted.is_ok() != there, "{submitted:?}");
        while left.driver().run() || right.driver().run() {}
        if there {
            first.signal(1).unwrap();
        }
        first.at(1).wait(FOREVER).unwrap();
        second.at(1).wait(FOREVER).unwrap();
    });
}

/// A consumer that claims only the value after its producer's never refuses the producer.
///
/// The producer is a host signal or a queue.
#[test]
fn a_consumer_against_its_producer() {
    for by_host in [true, false] {
        interrupted(3, move || {
            let device = device();
            let line = timeline(device, "line");
            let (left, right) = (
                queue(device, "left", Completes::InTheCall),
                queue(device, "right", Completes::InTheCall),
            );
            let other = line.clone();
            let submitting = thread::spawn(move || {
                left.submit(&[other.at(1)], |_| Ok(()), &[other.signal_at(2)])
                    .map(|_| ())
            });
            let here = if by_host {
                line.signal(1)
            } else {
                right
                    .submit(&[], |_| Ok(()), &[line.signal_at(1)])
                    .map(|_| ())
            };
            let there = submitting.join().unwrap();
            assert!(here.is_ok() && there.is_ok(), "{here:?}, {there:?}");
            line.at(2).wait(FOREVER).unwrap();
        });
    }
}

/// A submission waits for a value that another thread's submission makes pending. It goes to its
/// driver then; no later event, such as the end of the other submission, has to release it.
#[test]
fn a_held_submission_against_its_producer() {
    interrupted(4, || {
        let device = device();
        let line = timeline(device, "line");
        let (left, right) = (
            queue(device, "left", Completes::WhenRun),
            queue(device, "right", Completes::WhenRun),
        );
        let (submitter, other) = (left.clone(), line.clone());
        let submitting = thread::spawn(move || {
            submitter
                .submit(&[], |_| Ok(()), &[other.signal_at(1)])
                .unwrap();
        });
        right.submit(&[line.at(1)], |_| Ok(()), &[]).unwrap();
        submitting.join().unwrap();
        assert_eq!(right.held().count, 0);
        assert!(left.driver().run());
        assert!(right.driver().run());
    });
}

/// A host signal above a pending value is refused. It does not refuse another signal meanwhile.
#[test]
fn a_signal_too_far_against_a_submission() {
    interrupted(3, || {
        let device = device();
        let line = timeline(device, "line");
        let queue = queue(device, "queue", Completes::WhenRun);
        queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
        let other = line.clone();
        let signalling = thread::spawn(move || assert!(other.signal(5).is_err()));
        queue.submit(&[], |_| Ok(()), &[line.signal_at(2)]).unwrap();
        signalling.join().unwrap();
        while queue.driver().run() {}
    });
}

/// The driver completes a submission before the submitting thread promotes its signal.
///
/// The next submission promotes its own signal at the same time. The engine must note the right
/// queue for each value.
#[test]
fn a_submission_that_ends_early_against_the_next() {
    interrupted(3, || {
        let device = device();
        let line = timeline(device, "line");
        let (left, right) = (
            queue(device, "left", Completes::WhenRun),
            queue(device, "right", Completes::WhenRun),
        );
        let (submitter, other) = (left.clone(), line.clone());
        let submitting = thread::spawn(move || {
            submitter
                .submit(&[], |_| Ok(()), &[other.signal_at(1)])
                .unwrap();
        });
        let early = left.driver().run();
        if early {
            right.submit(&[], |_| Ok(()), &[line.signal_at(2)]).unwrap();
        }
        submitting.join().unwrap();
        if early {
            left.submit(&[], |_| Ok(()), &[line.signal_at(3)]).unwrap();
            let task = left.driver().take().unwrap();
            assert_eq!(task.waits(), 1, "3 overtakes 2");
            while right.driver().run() {}
            task.run();
        }
        while left.driver().run() {}
    });
}

/// Same as the case above, with two more signals before the first submission promotes its own.
///
/// A value that was pending stays pending.
#[test]
fn a_submission_that_ends_early_against_two_more() {
    interrupted(4, || {
        let device = device();
        let line = timeline(device, "line");
        let (left, right) = (
            queue(device, "left", Completes::WhenRun),
            queue(device, "right", Completes::WhenRun),
        );
        let (submitter, other) = (left.clone(), line.clone());
        let submitting = thread::spawn(move || {
            submitter
                .submit(&[], |_| Ok(()), &[other.signal_at(1)])
                .unwrap();
        });
        if left.driver().run() {
            for value in [2, 3] {
                let submitted = right.submit(&[], |_| Ok(()), &[line.signal_at(value)]);
                assert!(!submitted.unwrap().is_held());
                assert!(line.at(value).is_pending().unwrap());
            }
            submitting.join().unwrap();
            assert!(line.at(3).is_pending().unwrap());
            while right.driver().run() {}
            assert_eq!(line.value().unwrap(), 3);
        } else {
            submitting.join().unwrap();
            left.driver().run();
        }
        // No claim is left behind.
        let reached = line.value().unwrap();
        line.signal(reached + 1).unwrap();
    });
}

/// Two submissions claim the next values while the first claim is promoted. The first claim is
/// pending then, and it refuses no signal once it is reached.
#[test]
fn a_promotion_against_the_next_two_claims() {
    interrupted(2, || {
        let device = device();
        let line = timeline(device, "line");
        let (left, right) = (
            queue(device, "left", Completes::WhenRun),
            queue(device, "right", Completes::WhenRun),
        );
        let (submitter, other) = (left.clone(), line.clone());
        let submitting = thread::spawn(move || {
            submitter
                .submit(&[], |_| Ok(()), &[other.signal_at(1)])
                .unwrap();
        });
        // Held if the first value is not pending yet, and released by the promotion.
        let ends = [2, 3].map(|value| {
            let submitted = right.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(value)]);
            submitted.unwrap().end()
        });
        for end in ends {
            end.wait_pending(FOREVER).unwrap();
        }
        assert!(line.at(3).is_pending().unwrap());
        submitting.join().unwrap();
        assert!(line.at(3).is_pending().unwrap());
        assert!(left.driver().run());
        while right.driver().run() {}
        assert_eq!(line.value().unwrap(), 3);
        line.signal(4).unwrap();
    });
}

/// A submission makes two signals pending, and its position. Each waiter is woken.
#[test]
fn waits_for_pending_against_a_submission_with_two_signals() {
    interrupted(3, || {
        let device = device();
        let lines = ["one", "two"].map(|label| timeline(device, label));
        let queue = queue(device, "queue", Completes::WhenRun);
        let (submitter, signalled) = (queue.clone(), lines.clone());
        let submitting = thread::spawn(move || {
            let signals = signalled.each_ref().map(|line| line.signal_at(1));
            submitter.submit(&[], |_| Ok(()), &signals).unwrap();
        });
        let [one, two] = lines;
        let waiting = thread::spawn(move || one.at(1).wait_pending(FOREVER).unwrap());
        two.at(1).wait_pending(FOREVER).unwrap();
        waiting.join().unwrap();
        submitting.join().unwrap();
        assert!(queue.driver().run());
    });
}

/// The queue's own position, which is promoted without a claim.
#[test]
fn a_wait_for_the_position_against_submissions() {
    interrupted(4, || {
        let device = device();
        let queue = queue(device, "queue", Completes::WhenRun);
        let submitter = queue.clone();
        let submitting = thread::spawn(move || {
            for _ in 0..2 {
                submitter.submit(&[], |_| Ok(()), &[]).unwrap();
            }
        });
        queue.position().wait_pending(FOREVER).unwrap();
        queue.position().wait_pending(FOREVER).unwrap();
        submitting.join().unwrap();
        assert!(queue.position().is_pending().unwrap());
        while queue.driver().run() {}
        assert!(queue.position().is_reached().unwrap());
    });
}

/// A submission whose work returns an error withdraws its claim.
///
/// The host's signal of the same value is refused only while the claim exists.
#[test]
fn a_refusal_against_a_host_signal() {
    interrupted(5, || {
        let device = device();
        let line = timeline(device, "line");
        let queue = queue(device, "queue", Completes::InTheCall);
        let other = line.clone();
        let signalling = thread::spawn(move || other.signal(1));
        let refused = queue.submit(&[], |_| Err(planted()), &[line.signal_at(1)]);
        assert!(refused.is_err());
        match signalling.join().unwrap() {
            Ok(()) => line.signal(2).unwrap(),
            Err(Error::SignalOverlapsClaim {
                above: 0, upto: 1, ..
            }) => line.signal(1).unwrap(),
            Err(error) => panic!("{error}"),
        }
    });
}

/// Two threads submit to one queue. The engine decides their claims in the queue's order.
#[test]
fn two_threads_signal_through_one_queue() {
    interrupted(3, || {
        let device = device();
        let line = timeline(device, "line");
        let first = queue(device, "queue", Completes::InTheCall);
        let (second, other) = (first.clone(), line.clone());
        let submitting = thread::spawn(move || {
            let submitted = second.submit(&[], |_| Ok(()), &[other.signal_at(1)]);
            submitted.map(|submitted| submitted.end().value())
        });
        let submitted = first.submit(&[], |_| Ok(()), &[line.signal_at(2)]);
        let two = submitted.unwrap().end().value();
        line.at(2).wait(FOREVER).unwrap();
        if let Ok(one) = submitting.join().unwrap() {
            assert!(one < two);
        }
        first.idle(FOREVER).unwrap();
    });
}

/// A wait for pending ends once the driver has the submission, before it completes it.
#[test]
fn a_wait_for_pending_against_a_submission() {
    interrupted(5, || {
        let device = device();
        let line = timeline(device, "line");
        let queue = queue(device, "queue", Completes::WhenRun);
        let (submitter, other) = (queue.clone(), line.clone());
        let submitting = thread::spawn(move || {
            submitter
                .submit(&[], |_| Ok(()), &[other.signal_at(1)])
                .unwrap();
        });
        line.at(1).wait_pending(FOREVER).unwrap();
        assert!(!line.at(1).is_reached().unwrap());
        assert!(queue.driver().run());
        assert!(line.at(1).is_reached().unwrap());
        submitting.join().unwrap();
    });
}

/// Two threads wait until different values are pending. Waking one keeps the other registered.
#[test]
fn two_waits_for_pending_against_submissions() {
    interrupted(2, || {
        let device = device();
        let line = timeline(device, "line");
        let queue = queue(device, "queue", Completes::WhenRun);
        let waits = [1, 2].map(|value| {
            let line = line.clone();
            thread::spawn(move || line.at(value).wait_pending(FOREVER).unwrap())
        });
        for value in [1, 2] {
            queue
                .submit(&[], |_| Ok(()), &[line.signal_at(value)])
                .unwrap();
        }
        for wait in waits {
            wait.join().unwrap();
        }
        while queue.driver().run() {}
    });
}
