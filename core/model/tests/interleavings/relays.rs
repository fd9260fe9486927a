//! Signals that the host makes for a queue on a device without a port.

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use crate::driver::{Completes, device, queue, timeline};
use crate::{FOREVER, interrupted, is_planted, planted};

#[test]
fn a_completion_against_a_relay() {
    interrupted(4, || {
        let (near, far) = (device(), device());
        let line = timeline(near, "line");
        let queue = queue(far, "far", Completes::WhenRun);
        let driver = queue.clone();
        let running = thread::spawn(move || {
            // The driver has the submission then.
            driver.position().wait_pending(FOREVER).unwrap();
            driver.driver().run()
        });
        queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
        // The other thread completed nothing if it read the position before the submission.
        if !running.join().unwrap() {
            assert!(queue.driver().run());
        }
        line.at(1).wait(FOREVER).unwrap();
    });
}

/// The work ends while the timeline fails. The wait and the frozen value agree about the signal.
#[test]
fn a_relay_against_a_failure() {
    interrupted(4, || {
        let (near, far) = (device(), device());
        let line = timeline(near, "line");
        let queue = queue(far, "far", Completes::WhenRun);
        queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
        let driver = queue.clone();
        let running = thread::spawn(move || assert!(driver.driver().run()));
        line.fail(planted());
        let ended = line.at(1).wait(FOREVER);
        running.join().unwrap();
        match ended {
            Ok(()) => assert_eq!(line.frozen_value(), 1),
            Err(error) => {
                assert!(is_planted(&error), "{error}");
                assert_eq!(line.frozen_value(), 0);
            }
        }
    });
}

/// The work of the second signal ends before, during or after the first signal.
#[test]
fn a_relay_against_its_predecessor() {
    interrupted(4, || {
        let (near, far) = (device(), device());
        let line = timeline(near, "line");
        let first = queue(near, "near", Completes::WhenRun);
        let second = queue(far, "far", Completes::WhenRun);
        first.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
        second
            .submit(&[], |_| Ok(()), &[line.signal_at(2)])
            .unwrap();
        let begun = Arc::new(AtomicBool::new(false));
        let begins = begun.clone();
        let running = thread::spawn(move || {
            begins.store(true, Ordering::Release);
            assert!(first.driver().run());
        });
        assert!(second.driver().run());
        line.at(2).wait(FOREVER).unwrap();
        assert!(
            begun.load(Ordering::Acquire),
            "the second signal came before the first"
        );
        running.join().unwrap();
        assert_eq!(line.value().unwrap(), 2);
    });
}

/// A queue waits for a signal that the host makes for a queue of another device.
#[test]
fn a_relay_against_a_submission_that_waits_for_it() {
    interrupted(4, || {
        let (near, far) = (device(), device());
        let line = timeline(near, "line");
        let (first, second) = (
            queue(far, "far", Completes::WhenRun),
            queue(near, "near", Completes::InTheCall),
        );
        first.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
        let running = thread::spawn(move || assert!(first.driver().run()));
        let last = second.submit(&[line.at(1)], |_| Ok(()), &[]).unwrap();
        last.end().wait(FOREVER).unwrap();
        running.join().unwrap();
    });
}

/// A thread that sees a submission and then finds the queue idle also sees the relayed signal.
#[test]
fn a_relay_against_an_idle_queue() {
    interrupted(3, || {
        let (near, far) = (device(), device());
        let line = timeline(near, "line");
        let queue = queue(far, "far", Completes::InTheCall);
        let (submitter, signalled) = (queue.clone(), line.clone());
        let submitting = thread::spawn(move || {
            let signals = [signalled.signal_at(1)];
            submitter.submit(&[], |_| Ok(()), &signals).unwrap();
        });
        let seen = queue.position().value();
        queue.idle(FOREVER).unwrap();
        if seen > 0 {
            assert_eq!(line.value().unwrap(), 1);
        }
        submitting.join().unwrap();
    });
}
