//! Submissions that are held or meet a locked driver queue, against threads that release them.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;
use syncline_model::backend::{InFlightBudget, Keep};
use syncline_model::{Error, Result, info::DeviceId};

use crate::driver::{
    Completes, Machine, device, narrow_queue, queue, queue_beside, sharing_queue, timeline,
};
use crate::{FOREVER, interrupted, is_planted, planted};

/// The order in which work runs.
///
/// Work cannot check the order itself: the engine takes a panic of work for a failure.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u64>>>);

impl Log {
    /// Work that adds `number` to the log.
    fn note(&self, number: u64) -> impl FnOnce(&mut Keep) -> Result<()> + Send + 'static {
        let log = self.clone();
        move |_| {
            log.0.lock().unwrap().push(number);
            Ok(())
        }
    }

    fn ran(&self) -> Vec<u64> {
        self.0.lock().unwrap().clone()
    }
}

#[test]
fn a_release_against_a_submission() {
    interrupted(4, || {
        let device = device();
        let gate = timeline(device, "gate");
        let queue = queue(device, "queue", Completes::InTheCall);
        let opener = gate.clone();
        let opening = thread::spawn(move || opener.signal(1).unwrap());
        let log = Log::default();
        let submitted = queue.submit(&[gate.at(1)], log.note(1), &[]).unwrap();
        submitted.end().wait(FOREVER).unwrap();
        assert_eq!(log.ran(), [1]);
        opening.join().unwrap();
        assert_eq!(queue.held().count, 0);
    });
}

/// The second submission runs after the first, whichever thread releases the first.
#[test]
fn a_release_against_the_next_submission() {
    interrupted(4, || {
        let device = device();
        let gate = timeline(device, "gate");
        let queue = queue(device, "queue", Completes::InTheCall);
        let log = Log::default();
        queue.submit(&[gate.at(1)], log.note(1), &[]).unwrap();
        let opening = thread::spawn(move || gate.signal(1).unwrap());
        let second = queue.submit(&[], log.note(2), &[]).unwrap();
        second.end().wait(FOREVER).unwrap();
        assert_eq!(log.ran(), [1, 2]);
        opening.join().unwrap();
    });
}

/// Two threads signal the two points of one submission at the same time.
#[test]
fn two_releases_against_each_other() {
    interrupted(4, || {
        let device = device();
        let (left, right) = (timeline(device, "left"), timeline(device, "right"));
        let queue = queue(device, "queue", Completes::InTheCall);
        let log = Log::default();
        queue
            .submit(&[left.at(1), right.at(1)], log.note(1), &[])
            .unwrap();
        let opening = thread::spawn(move || left.signal(1).unwrap());
        right.signal(1).unwrap();
        opening.join().unwrap();
        // The later of the two signals has released it.
        assert_eq!(log.ran(), [1]);
        queue.idle(FOREVER).unwrap();
    });
}

/// Two threads submit to two queues, and each queue waits for the other.
#[test]
fn submissions_that_cross() {
    interrupted(2, || {
        let device = device();
        let (there, back) = (timeline(device, "there"), timeline(device, "back"));
        let (left, right) = (
            queue(device, "left", Completes::InTheCall),
            queue(device, "right", Completes::InTheCall),
        );
        let (there_too, back_too) = (there.clone(), back.clone());
        let answering = thread::spawn(move || {
            right
                .submit(&[there_too.at(1)], |_| Ok(()), &[back_too.signal_at(1)])
                .unwrap();
        });
        left.submit(&[], |_| Ok(()), &[there.signal_at(1)]).unwrap();
        let last = left.submit(&[back.at(1)], |_| Ok(()), &[]).unwrap();
        last.end().wait(FOREVER).unwrap();
        answering.join().unwrap();
    });
}

/// Two threads submit the two halves of a circle. One is refused, and the other is held.
#[test]
fn a_circle_from_two_threads() {
    interrupted(4, || {
        let device = device();
        let (there, back) = (timeline(device, "there"), timeline(device, "back"));
        let (left, right) = (
            queue(device, "left", Completes::InTheCall),
            queue(device, "right", Completes::InTheCall),
        );
        let (right_too, there_too, back_too) = (right.clone(), there.clone(), back.clone());
        let answering = thread::spawn(move || {
            let submitted =
                right_too.submit(&[there_too.at(1)], |_| Ok(()), &[back_too.signal_at(1)]);
            submitted.map(|_| ())
        });
        let here = left.submit(&[back.at(1)], |_| Ok(()), &[there.signal_at(1)]);
        let results = [here.map(|_| ()), answering.join().unwrap()];
        let refused: Vec<_> = results
            .iter()
            .filter_map(|result| result.as_ref().err())
            .collect();
        assert!(
            matches!(refused[..], [Error::Circular { .. }]),
            "{refused:?}"
        );
        assert_eq!(left.held().count + right.held().count, 1);
        // The held submission waits for a value without a claim, so the host may signal it.
        let open = if results[0].is_ok() { &back } else { &there };
        open.signal(1).unwrap();
        assert_eq!(left.held().count + right.held().count, 0);
    });
}

#[test]
fn a_failure_against_a_submission() {
    interrupted(4, || {
        let device = device();
        let (gate, out) = (timeline(device, "gate"), timeline(device, "out"));
        let queue = queue(device, "queue", Completes::InTheCall);
        let failing = gate.clone();
        let failing = thread::spawn(move || failing.fail(planted()));
        let submitted = queue.submit(
            &[gate.at(1)],
            |_| panic!("work that must not run"),
            &[out.signal_at(1)],
        );
        submitted.unwrap().end().wait(FOREVER).unwrap();
        let error = out.at(1).wait(FOREVER).unwrap_err();
        assert!(is_planted(&error), "{error}");
        failing.join().unwrap();
    });
}

/// A failure skips a held submission that is not the first of its queue.
///
/// The first submission waits for another timeline.
#[test]
fn a_failure_against_a_submission_that_is_not_the_first() {
    interrupted(4, || {
        let device = device();
        let (gate, fails) = (timeline(device, "gate"), timeline(device, "fails"));
        let out = timeline(device, "out");
        let queue = queue(device, "queue", Completes::InTheCall);
        queue.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
        let failing = fails.clone();
        let failing = thread::spawn(move || failing.fail(planted()));
        queue
            .submit(
                &[fails.at(1)],
                |_| panic!("work that must not run"),
                &[out.signal_at(1)],
            )
            .unwrap();
        let error = out.at(1).wait(FOREVER).unwrap_err();
        assert!(is_planted(&error), "{error}");
        failing.join().unwrap();
        gate.signal(1).unwrap();
        queue.idle(FOREVER).unwrap();
    });
}

/// A failure skips the first submission although other waits of it are still open.
///
/// Meanwhile another thread signals what the next submission waits for.
#[test]
fn a_failure_of_one_wait_of_three_against_the_next_release() {
    interrupted(3, || {
        let device = device();
        let (gate, fails) = (timeline(device, "gate"), timeline(device, "fails"));
        let (never, out) = (timeline(device, "never"), timeline(device, "out"));
        let queue = queue(device, "queue", Completes::InTheCall);
        queue
            .submit(
                &[never.at(1), never.at(2), fails.at(1)],
                |_| panic!("work that must not run"),
                &[out.signal_at(1)],
            )
            .unwrap();
        queue.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
        let opening = thread::spawn(move || gate.signal(1).unwrap());
        fails.fail(planted());
        opening.join().unwrap();
        // Both threads are done, so nothing is left to wait for.
        assert_eq!(queue.held().count, 0);
        let error = out.at(1).wait(FOREVER).unwrap_err();
        assert!(is_planted(&error), "{error}");
    });
}

/// Same as the case above, while another thread releases the first submission.
///
/// One of the two threads skips the second submission, once.
#[test]
fn a_failure_against_a_release() {
    interrupted(4, || {
        let device = device();
        let (gate, fails) = (timeline(device, "gate"), timeline(device, "fails"));
        let out = timeline(device, "out");
        let queue = queue(device, "queue", Completes::InTheCall);
        queue.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
        queue
            .submit(
                &[fails.at(1)],
                |_| panic!("work that must not run"),
                &[out.signal_at(1)],
            )
            .unwrap();
        let opening = thread::spawn(move || gate.signal(1).unwrap());
        fails.fail(planted());
        opening.join().unwrap();
        // Both threads are done, so nothing is left to wait for.
        assert!(is_planted(&out.at(1).is_reached().unwrap_err()));
        assert_eq!(queue.held().count, 0);
        queue.idle(FOREVER).unwrap();
    });
}

/// A driver takes one submission at a time. The next one goes to it when that one has finished.
#[test]
fn a_completion_against_a_submission_over_the_bound() {
    interrupted(4, || {
        let device = DeviceId::new::<Machine<1>>();
        let queue = narrow_queue::<1>(device, "queue", Completes::WhenRun);
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        let driver = queue.clone();
        let running = thread::spawn(move || assert!(driver.driver().run()));
        let second = queue.submit(&[], |_| Ok(()), &[]).unwrap();
        second.end().wait_pending(FOREVER).unwrap();
        assert!(queue.driver().run());
        assert!(second.end().is_reached().unwrap());
        running.join().unwrap();
    });
}

/// Two queues share a budget of one unit.
///
/// The unit of the first submission is given back, and the second submission is released.
#[test]
fn a_submission_that_takes_units_against_one_that_finds_none() {
    interrupted(3, || {
        let device = device();
        let budget = InFlightBudget::new(1);
        let takes = |keep: &mut Keep| {
            keep.take_in_flight(1);
            Ok(())
        };
        let (left, right) = (
            sharing_queue(device, "left", &budget),
            sharing_queue(device, "right", &budget),
        );
        let other = left.clone();
        let submitting = thread::spawn(move || {
            other.submit(&[], takes, &[]).unwrap();
            other.driver().run();
        });
        let end = right.submit(&[], takes, &[]).unwrap().end();
        submitting.join().unwrap();
        while right.driver().run() || left.driver().run() {}
        end.wait_pending(FOREVER).unwrap();
        while right.driver().run() || left.driver().run() {}
        for queue in [&left, &right] {
            queue.idle(FOREVER).unwrap();
        }
        // Both queues find the budget free again.
        left.submit(&[], |_| Ok(()), &[]).unwrap();
        right.submit(&[], |_| Ok(()), &[]).unwrap();
        assert_eq!(budget.taken(), 0);
    });
}

/// Two threads submit to one queue whose budget is full after one submission.
///
/// A submission is counted before another thread can hand one to the driver.
#[test]
fn submissions_that_take_units_against_each_other() {
    interrupted(3, || {
        let device = device();
        let budget = InFlightBudget::new(1);
        let queue = sharing_queue(device, "queue", &budget);
        let takes = |keep: &mut Keep| {
            keep.take_in_flight(1);
            Ok(())
        };
        let other = queue.clone();
        let submitting = thread::spawn(move || {
            other.submit(&[], takes, &[]).unwrap();
        });
        queue.submit(&[], takes, &[]).unwrap();
        submitting.join().unwrap();
        assert_eq!(queue.driver().taken(), 1);
        while queue.driver().run() {}
        queue.idle(FOREVER).unwrap();
    });
}

/// The units of a submission are given back once, although two threads find it finished.
///
/// The budget is full after two submissions. A thread that submits gives back what has finished,
/// and so does one that waits until the queue is idle.
#[test]
fn a_submission_that_finds_no_units_against_an_idle_queue() {
    interrupted(2, || {
        let device = device();
        let budget = InFlightBudget::new(6);
        let queue = sharing_queue(device, "queue", &budget);
        let takes = |keep: &mut Keep| {
            keep.take_in_flight(3);
            Ok(())
        };
        for _ in 0..2 {
            queue.submit(&[], takes, &[]).unwrap();
        }
        let other = queue.clone();
        let waiting = thread::spawn(move || {
            other.driver().run();
            other.driver().run();
            other.idle(FOREVER).unwrap();
        });
        let third = queue.submit(&[], takes, &[]).unwrap();
        third.end().wait_pending(FOREVER).unwrap();
        while queue.driver().run() {}
        waiting.join().unwrap();
        queue.idle(FOREVER).unwrap();
        assert_eq!(budget.taken(), 0);
    });
}

/// The driver queue is unlocked while the engine finds it locked.
#[test]
fn an_unlock_against_a_submission() {
    interrupted(5, || {
        let device = device();
        let queue = queue(device, "queue", Completes::InTheCall);
        queue.driver().hold();
        let owner = queue.clone();
        let unlocking = thread::spawn(move || owner.driver().let_go());
        let submitted = queue.submit(&[], |_| Ok(()), &[]).unwrap();
        submitted.end().wait(FOREVER).unwrap();
        unlocking.join().unwrap();
    });
}

/// Two threads block on the lock of the driver queue, and a submission finds it locked by either.
#[test]
fn two_that_hold_the_driver_against_a_submission() {
    interrupted(3, || {
        let device = device();
        let queue = queue(device, "queue", Completes::InTheCall);
        let holding = [(); 2].map(|()| {
            let owner = queue.clone();
            thread::spawn(move || {
                owner.driver().hold();
                owner.driver().let_go();
            })
        });
        let submitted = queue.submit(&[], |_| Ok(()), &[]).unwrap();
        submitted.end().wait(FOREVER).unwrap();
        for thread in holding {
            thread.join().unwrap();
        }
    });
}

/// Two queues share one driver queue, and a thread blocks on its lock.
#[test]
fn two_queues_on_one_driver_against_one_that_holds_it() {
    interrupted(3, || {
        let device = device();
        let first = queue(device, "first", Completes::InTheCall);
        let second = queue_beside(&first, device, "second");
        let owner = first.clone();
        let holding = thread::spawn(move || {
            owner.driver().hold();
            owner.driver().let_go();
        });
        let beside = thread::spawn(move || {
            let submitted = second.submit(&[], |_| Ok(()), &[]).unwrap();
            submitted.end().wait(FOREVER).unwrap();
        });
        let submitted = first.submit(&[], |_| Ok(()), &[]).unwrap();
        submitted.end().wait(FOREVER).unwrap();
        holding.join().unwrap();
        beside.join().unwrap();
    });
}

/// The driver queue is unlocked while another thread releases a held submission to it.
#[test]
fn an_unlock_against_a_release() {
    interrupted(4, || {
        let device = device();
        let gate = timeline(device, "gate");
        let queue = queue(device, "queue", Completes::InTheCall);
        queue.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
        queue.driver().hold();
        let owner = queue.clone();
        let unlocking = thread::spawn(move || owner.driver().let_go());
        gate.signal(1).unwrap();
        unlocking.join().unwrap();
        // One of the two threads has sent the submission.
        assert_eq!(queue.held().count, 0);
        queue.idle(FOREVER).unwrap();
    });
}

/// A submission signals a timeline that fails while the signal before its own is pending.
///
/// Its other signals fail, too, in every state of the submission.
#[test]
fn a_failure_against_a_submission_that_signals() {
    interrupted(3, || {
        let device = device();
        let (gate, fails) = (timeline(device, "gate"), timeline(device, "fails"));
        let out = timeline(device, "out");
        let (first, second) = (
            queue(device, "first", Completes::WhenRun),
            queue(device, "second", Completes::InTheCall),
        );
        first
            .submit(&[], |_| Ok(()), &[fails.signal_at(1)])
            .unwrap();
        let failing = fails.clone();
        let failing = thread::spawn(move || failing.fail(planted()));
        let submitted = second.submit(
            &[gate.at(1)],
            |_| Ok(()),
            &[fails.signal_at(2), out.signal_at(1)],
        );
        match submitted {
            Ok(_) => assert!(is_planted(&out.at(1).wait(FOREVER).unwrap_err())),
            // The timeline had failed before the submission.
            Err(error) => assert!(is_planted(&error), "{error}"),
        }
        failing.join().unwrap();
        assert!(first.driver().run());
        gate.signal(1).unwrap();
        second.idle(FOREVER).unwrap();
    });
}

/// A submission behind a held one is skipped. The queue's position stays where it is, so nothing
/// else ends the wait.
#[test]
fn a_failure_against_a_wait_for_what_it_skips() {
    interrupted(3, || {
        let device = device();
        let (shut, gate) = (timeline(device, "shut"), timeline(device, "gate"));
        let queue = queue(device, "queue", Completes::WhenRun);
        queue.submit(&[shut.at(1)], |_| Ok(()), &[]).unwrap();
        let submitted = queue.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
        let failing = gate.clone();
        let failing = thread::spawn(move || failing.fail(planted()));
        let ended = submitted.wait_submitted(FOREVER).unwrap_err();
        assert!(matches!(ended, Error::Skipped { .. }), "{ended}");
        failing.join().unwrap();
    });
}

/// The skipped submission is the next one behind a release. Its number goes to the driver, which
/// reaches it at once. A thread that finds the position reached must also find the cause.
#[test]
fn a_failure_and_a_release_against_a_wait_for_what_is_skipped() {
    interrupted(2, || {
        let device = device();
        let (gate, fails) = (timeline(device, "gate"), timeline(device, "fails"));
        let queue = queue(device, "queue", Completes::InTheCall);
        queue.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
        let submitted = queue.submit(&[fails.at(1)], |_| Ok(()), &[]).unwrap();
        let failing = fails.clone();
        let failing = thread::spawn(move || failing.fail(planted()));
        gate.signal(1).unwrap();
        let ended = submitted.wait_submitted(FOREVER).unwrap_err();
        assert!(matches!(ended, Error::Skipped { .. }), "{ended}");
        failing.join().unwrap();
    });
}
