//! Futures, against the signals, failures and drops that end them.

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Condvar, Mutex};
use loom::thread;
use syncline_model::wait::future::{WaitAll, any};
use syncline_model::{Error, Result};

use crate::driver::{Completes, device, queue, timeline};
use crate::{interrupted, is_planted, planted};

/// A waker that counts its calls, for an executor that sleeps between them.
#[derive(Default)]
struct CountingWaker {
    woken: Mutex<u64>,
    changed: Condvar,
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() += 1;
        self.changed.notify_one();
    }
}

impl CountingWaker {
    fn woken(&self) -> u64 {
        *self.woken.lock().unwrap()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let counting = Arc::new(CountingWaker::default());
    let waker = Waker::from(counting.clone());
    let mut future = pin!(future);
    let mut seen = 0;
    loop {
        if let Poll::Ready(ended) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return ended;
        }
        let mut woken = counting.woken.lock().unwrap();
        while *woken == seen {
            woken = counting.changed.wait(woken).unwrap();
        }
        seen = *woken;
    }
}

fn poll(future: &mut WaitAll, waker: &Arc<CountingWaker>) -> Poll<Result<()>> {
    let waker = Waker::from(waker.clone());
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

#[test]
fn a_signal_against_a_future() {
    interrupted(5, || {
        let line = timeline(device(), "line");
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
        let line = timeline(device(), "line");
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
        let line = timeline(device(), "line");
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
        let device = device();
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
    interrupted(3, || {
        let device = device();
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

/// A future that is polled with another waker during a signal wakes the new waker.
#[test]
fn a_signal_against_a_change_of_waker() {
    interrupted(5, || {
        let line = timeline(device(), "line");
        let mut future = line.at(1).into_future();
        assert!(poll(&mut future, &Arc::default()).is_pending());
        let signalling = thread::spawn(move || line.signal(1).unwrap());
        block_on(future).unwrap();
        signalling.join().unwrap();
    });
}

/// A future is dropped while its point is signalled.
///
/// The signal may still wake it once. Afterwards the engine has no clone of its waker.
#[test]
fn a_signal_against_the_drop_of_a_future() {
    interrupted(5, || {
        let line = timeline(device(), "line");
        let waker = Arc::new(CountingWaker::default());
        let mut future = line.at(1).into_future();
        assert!(poll(&mut future, &waker).is_pending());
        let signaller = line.clone();
        let signalling = thread::spawn(move || signaller.signal(1).unwrap());
        drop(future);
        signalling.join().unwrap();
        assert!(waker.woken() <= 1);
        assert_eq!(Arc::strong_count(&waker), 1);
    });
}
