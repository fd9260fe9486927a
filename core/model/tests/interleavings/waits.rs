//! Waiting host threads, against the signals, failures and drops that end their waits.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use syncline_model::{Error, wait_all, wait_any};

use crate::driver::{device, timeline};
use crate::{A_WHILE, FOREVER, interrupted, is_planted, planted};

#[test]
fn a_signal_against_a_wait() {
    interrupted(4, || {
        let line = timeline(device(), "line");
        let signaller = line.clone();
        let signalling = thread::spawn(move || signaller.signal(1).unwrap());
        line.at(1).wait(FOREVER).unwrap();
        assert_eq!(line.value().unwrap(), 1);
        signalling.join().unwrap();
    });
}

/// Writes before a signal are visible after a wait, and after a query that returned true.
#[test]
fn a_wait_and_a_query_make_writes_visible() {
    interrupted(4, || {
        let line = timeline(device(), "line");
        let data = Arc::new(AtomicU64::new(0));
        let (signaller, written) = (line.clone(), data.clone());
        let signalling = thread::spawn(move || {
            written.store(7, Ordering::Relaxed);
            signaller.signal(1).unwrap();
        });
        if !line.at(1).is_reached().unwrap() {
            line.at(1).wait(FOREVER).unwrap();
        }
        assert_eq!(data.load(Ordering::Relaxed), 7);
        signalling.join().unwrap();
    });
}

#[test]
fn a_signal_past_the_value_against_two_waits() {
    interrupted(2, || {
        let line = timeline(device(), "line");
        let other = line.at(2).keep();
        let waiting = thread::spawn(move || other.point().wait(FOREVER).unwrap());
        let signaller = line.clone();
        let signalling = thread::spawn(move || signaller.signal(3).unwrap());
        line.at(1).wait(FOREVER).unwrap();
        signalling.join().unwrap();
        waiting.join().unwrap();
    });
}

#[test]
fn a_failure_against_a_wait() {
    interrupted(4, || {
        let line = timeline(device(), "line");
        let failing = line.clone();
        let failing = thread::spawn(move || failing.fail(planted()));
        let error = line.at(1).wait(FOREVER).unwrap_err();
        assert!(is_planted(&error), "{error}");
        failing.join().unwrap();
    });
}

/// A wait ends with a failure or a signal. Later queries agree with its result.
#[test]
fn a_failure_against_a_signal_against_a_wait() {
    interrupted(2, || {
        let line = timeline(device(), "line");
        let (failing, signaller) = (line.clone(), line.clone());
        let failing = thread::spawn(move || failing.fail(planted()));
        let signalling = thread::spawn(move || signaller.signal(1));
        let ended = line.at(1).wait(FOREVER);
        failing.join().unwrap();
        let signalled = signalling.join().unwrap();
        assert_eq!(ended.is_ok(), signalled.is_ok());
        assert_eq!(ended.is_ok(), line.at(1).is_reached().is_ok());
        assert_eq!(ended.is_ok(), line.frozen_value() == 1);
        assert!(is_planted(&line.value().unwrap_err()));
    });
}

/// A wait whose time is over takes back its own registration and no other.
#[test]
fn a_time_out_against_a_signal() {
    interrupted(2, || {
        let line = timeline(device(), "line");
        let other = line.at(1).keep();
        let waiting = thread::spawn(move || other.point().wait(FOREVER).unwrap());
        let signaller = line.clone();
        let signalling = thread::spawn(move || signaller.signal(1).unwrap());
        match line.at(1).wait(A_WHILE) {
            Ok(()) => assert_eq!(line.value().unwrap(), 1),
            Err(error) => assert!(error.is_timeout(), "{error}"),
        }
        signalling.join().unwrap();
        waiting.join().unwrap();
    });
}

/// A thread whose wait timed out waits again. A late wake-up of the first does not end the second.
#[test]
fn a_time_out_then_a_wait() {
    interrupted(2, || {
        let line = timeline(device(), "line");
        let signaller = line.clone();
        let signalling = thread::spawn(move || {
            signaller.signal(1).unwrap();
            signaller.signal(2).unwrap();
        });
        let _ = line.at(1).wait(A_WHILE);
        line.at(2).wait(FOREVER).unwrap();
        signalling.join().unwrap();
    });
}

#[test]
fn signals_against_a_wait_for_all() {
    interrupted(3, || {
        let device = device();
        let lines = [timeline(device, "a"), timeline(device, "b")];
        let signallers = lines.clone();
        let signalling = thread::spawn(move || {
            signallers[1].signal(1).unwrap();
            signallers[0].signal(1).unwrap();
        });
        wait_all(&[lines[0].at(1), lines[1].at(1)], FOREVER).unwrap();
        assert!(lines.iter().all(|line| line.value().unwrap() == 1));
        signalling.join().unwrap();
    });
}

#[test]
fn signals_against_a_wait_for_any() {
    interrupted(3, || {
        let device = device();
        let lines = [timeline(device, "a"), timeline(device, "b")];
        let signallers = lines.clone();
        let signalling = thread::spawn(move || {
            signallers[1].signal(1).unwrap();
            signallers[0].signal(1).unwrap();
        });
        let index = wait_any(&[lines[0].at(1), lines[1].at(1)], FOREVER).unwrap();
        assert!(lines[index].at(1).is_reached().unwrap());
        // The other one comes second.
        assert!(lines[1].at(1).is_reached().unwrap());
        signalling.join().unwrap();
    });
}

/// One point is reached, and then the other fails. The wait returns the reached point.
#[test]
fn a_failure_against_a_wait_for_any() {
    interrupted(4, || {
        let device = device();
        let lines = [timeline(device, "a"), timeline(device, "b")];
        let ending = lines.clone();
        let ending = thread::spawn(move || {
            ending[1].signal(1).unwrap();
            ending[0].fail(planted());
        });
        let any = wait_any(&[lines[0].at(1), lines[1].at(1)], FOREVER);
        assert_eq!(any.unwrap(), 1);
        ending.join().unwrap();
    });
}

/// One timeline fails, and the other point is never reached.
#[test]
fn a_failure_against_a_wait_for_all() {
    interrupted(4, || {
        let device = device();
        let lines = [timeline(device, "a"), timeline(device, "b")];
        let failing = lines[1].clone();
        let failing = thread::spawn(move || failing.fail(planted()));
        let error = wait_all(&[lines[0].at(1), lines[1].at(1)], FOREVER).unwrap_err();
        assert!(is_planted(&error), "{error}");
        failing.join().unwrap();
    });
}

/// A thread that reads the value during signals never sees it fall, nor `pending` below it.
#[test]
fn queries_against_signals() {
    interrupted(4, || {
        let line = timeline(device(), "line");
        let signaller = line.clone();
        let signalling = thread::spawn(move || {
            signaller.signal(1).unwrap();
            signaller.signal(2).unwrap();
        });
        let first = line.value().unwrap();
        assert!(line.at(first).is_reached().unwrap());
        assert!(line.at(first).is_pending().unwrap());
        let second = line.value().unwrap();
        assert!(first <= second, "{first} then {second}");
        signalling.join().unwrap();
        assert_eq!(line.value().unwrap(), 2);
    });
}

/// The last handle is dropped while a thread waits, so no signal can come.
#[test]
fn the_last_drop_against_a_wait() {
    interrupted(4, || {
        let line = timeline(device(), "line");
        let point = line.at(1).keep();
        let dropping = thread::spawn(move || drop(line));
        let error = point.point().wait(FOREVER).unwrap_err();
        assert!(
            matches!(error, Error::Cancelled { value: 1, .. }),
            "{error}"
        );
        dropping.join().unwrap();
    });
}

/// Two threads drop the two handles, one of them after a signal.
#[test]
fn two_drops_and_a_signal_against_a_wait() {
    interrupted(2, || {
        let line = timeline(device(), "line");
        let other = line.clone();
        let (near, far) = (line.at(1).keep(), line.at(2).keep());
        let dropping = thread::spawn(move || drop(line));
        let signalling = thread::spawn(move || other.signal(1).unwrap());
        near.point().wait(FOREVER).unwrap();
        let error = far.point().wait(FOREVER).unwrap_err();
        assert!(
            matches!(error, Error::Cancelled { value: 2, .. }),
            "{error}"
        );
        dropping.join().unwrap();
        signalling.join().unwrap();
    });
}
