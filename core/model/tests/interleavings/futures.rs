//! Waits that are awaited, against whatever ends them.

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Condvar, Mutex};
use loom::thread;
use syncline_model::future::{WaitAll, any};
use syncline_model::{DeviceId, Error, Result};

use crate::driver::{Completes, queue, timeline};
use crate::{interrupted, is_planted, planted};

/// A waker that counts its calls, for an executor that sleeps in between.
#[derive(Default)]
struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() += 1;
        self.changed.notify_one();
    }
}

impl Bell {
    fn rung(&self) -> u64 {
        *self.rung.lock().unwrap()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut future = pin!(future);
    let mut heard = 0;
    loop {
        if let Poll::Ready(ended) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return ended;
        }
        let mut rung = bell.rung.lock().unwrap();
        while *rung == heard {
            rung = bell.changed.wait(rung).unwrap();
        }
        heard = *rung;
    }
}

fn poll(future: &mut WaitAll, bell: &Arc<Bell>) -> Poll<Result<()>> {
    let waker = Waker::from(bell.clone());
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

#[test]
fn a_signal_against_a_future() {
    interrupted(5, || {
        let line = timeline(DeviceId::new(), "line");
        let future = line.at(1).into_future();
        let signaller = line.clone();
        let signalling = thread::spawn(move || signaller.signal(1).unwrap());
        block_on(future).unwrap();
        signalling.join().unwrap();
    });
}

#[test]
fn a_failure_against_a_future() {
    interrupted(5, || {
        let line = timeline(DeviceId::new(), "line");
        let future = line.at(1).into_future();
        let failing = line.clone();
        let failing = thread::spawn(move || failing.fail(planted()));
        let error = block_on(future).unwrap_err();
        assert!(is_planted(&error), "{error}");
        failing.join().unwrap();
    });
}

#[test]
fn the_last_drop_against_a_future() {
    interrupted(5, || {
        let line = timeline(DeviceId::new(), "line");
        let future = line.at(1).into_future();
        let dropping = thread::spawn(move || drop(line));
        let error = block_on(future).unwrap_err();
        assert!(
            matches!(error, Error::Cancelled { value: 1, .. }),
            "{error}"
        );
        dropping.join().unwrap();
    });
}

#[test]
fn a_submission_against_a_future_of_pending() {
    interrupted(4, || {
        let device = DeviceId::new();
        let line = timeline(device, "line");
        let queue = queue(device, "queue", Completes::WhenRun);
        let (submitter, other) = (queue.clone(), line.clone());
        let submitting = thread::spawn(move || {
            submitter
                .submit(&[], |_| Ok(()), &[other.signal_at(1)])
                .unwrap();
        });
        block_on(line.at(1).pending()).unwrap();
        submitting.join().unwrap();
        assert!(queue.driver().run());
    });
}

#[test]
fn two_signals_against_a_future_of_any() {
    interrupted(4, || {
        let device = DeviceId::new();
        let lines = [timeline(device, "a"), timeline(device, "b")];
        let signallers = lines.clone();
        let signalling = thread::spawn(move || {
            signallers[1].signal(1).unwrap();
            signallers[0].signal(1).unwrap();
        });
        let index = block_on(any(&[lines[0].at(1), lines[1].at(1)])).unwrap();
        assert!(lines[index].at(1).is_reached().unwrap());
        signalling.join().unwrap();
    });
}

/// A future that is polled again with another waker, between and during signals, wakes the new one.
#[test]
fn a_signal_against_a_change_of_waker() {
    interrupted(5, || {
        let line = timeline(DeviceId::new(), "line");
        let mut future = line.at(1).into_future();
        assert!(poll(&mut future, &Arc::default()).is_pending());
        let signalling = thread::spawn(move || line.signal(1).unwrap());
        block_on(future).unwrap();
        signalling.join().unwrap();
    });
}

/// A future is dropped while what it waits for comes. It may still be woken by that signal, but
/// nothing of it is left behind.
#[test]
fn a_signal_against_the_drop_of_a_future() {
    interrupted(5, || {
        let line = timeline(DeviceId::new(), "line");
        let bell = Arc::new(Bell::default());
        let mut future = line.at(1).into_future();
        assert!(poll(&mut future, &bell).is_pending());
        let signaller = line.clone();
        let signalling = thread::spawn(move || signaller.signal(1).unwrap());
        drop(future);
        signalling.join().unwrap();
        assert!(bell.rung() <= 1);
        assert_eq!(Arc::strong_count(&bell), 1);
    });
}
