//! Futures of points, polled by the test and by a small executor.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::host::Device;
use syncline_core::{Error, KeptPoint, Point, QueueKind, wait::future};

/// A waker that counts its calls and unparks the thread that made it.
struct Count(AtomicUsize, thread::Thread);

impl Count {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(0), thread::current()))
    }

    fn woken(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.unpark();
    }
}

/// Runs one future to its end on this thread. Hangs if a wakeup is lost.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let count = Count::new();
    let waker = Waker::from(count);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        thread::park();
    }
}

fn poll<F: Future + Unpin>(future: &mut F, count: &Arc<Count>) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(&Waker::from(count.clone())))
}

fn cause() -> Error {
    Error::work(std::io::Error::other("the cause"))
}

const fn require_send<T: Send + 'static>(_: &T) {}

#[test]
fn a_reached_point_is_ready_at_once() {
    let device = Device::new();
    let line = device.timeline_from("line", 4).unwrap();
    let count = Count::new();
    assert!(matches!(
        poll(&mut line.at(4).into_future(), &count),
        Poll::Ready(Ok(()))
    ));
    assert!(matches!(
        poll(&mut Point::EMPTY.into_future(), &count),
        Poll::Ready(Ok(()))
    ));
    assert!(matches!(
        poll(&mut KeptPoint::default().into_future(), &count),
        Poll::Ready(Ok(()))
    ));
    assert!(matches!(
        poll(&mut future::all(&[]), &count),
        Poll::Ready(Ok(()))
    ));
    assert!(matches!(
        poll(&mut future::any(&[]), &count),
        Poll::Ready(Err(Error::NothingToWaitFor))
    ));
    assert_eq!(count.woken(), 0);
}

#[test]
fn a_signal_wakes_once_and_a_new_waker_replaces_the_old() {
    let device = Device::new();
    let line = device.timeline("line").unwrap();
    let mut wait = line.at(3).into_future();
    require_send(&wait);
    let (first, second) = (Count::new(), Count::new());
    assert!(poll(&mut wait, &first).is_pending());
    line.signal(2).unwrap();
    assert_eq!(first.woken(), 0, "woken by a signal below its value");
    assert!(poll(&mut wait, &second).is_pending());
    line.signal(5).unwrap();
    assert_eq!((first.woken(), second.woken()), (0, 1));
    assert!(matches!(poll(&mut wait, &second), Poll::Ready(Ok(()))));
}

#[test]
fn a_dropped_future_is_not_woken() {
    let device = Device::new();
    let line = device.timeline("line").unwrap();
    let count = Count::new();
    let mut wait = line.at(1).into_future();
    assert!(poll(&mut wait, &count).is_pending());
    assert_eq!(Arc::strong_count(&count), 2);
    drop(wait);
    assert_eq!(
        Arc::strong_count(&count),
        1,
        "its waker is still registered"
    );
    line.signal(1).unwrap();
    assert_eq!(count.woken(), 0);
}

/// One signal wakes two futures, and the first waker drops the second future.
#[test]
fn a_future_that_is_dropped_during_the_signal_is_not_woken() {
    struct Drops(std::sync::Mutex<Option<future::WaitAll>>);
    impl Wake for Drops {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
        }
    }
    let device = Device::new();
    let line = device.timeline("line").unwrap();
    let count = Count::new();
    let mut victim = line.at(1).into_future();
    let mut first = line.at(1).into_future();
    let drops = Arc::new(Drops(std::sync::Mutex::new(None)));
    let waker = Waker::from(drops.clone());
    assert!(
        Pin::new(&mut first)
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    assert!(poll(&mut victim, &count).is_pending());
    *drops.0.lock().unwrap() = Some(victim);
    line.signal(1).unwrap();
    assert_eq!(count.woken(), 0);
}

#[test]
fn a_failure_or_the_last_drop_ends_a_future() {
    let device = Device::new();
    let (bad, lone) = (
        device.timeline("bad").unwrap(),
        device.timeline("lone").unwrap(),
    );
    let count = Count::new();
    let (mut failed, mut cancelled) = (bad.at(1).into_future(), lone.at(1).into_future());
    assert!(poll(&mut failed, &count).is_pending() && poll(&mut cancelled, &count).is_pending());
    bad.fail(cause());
    drop(lone);
    assert_eq!(count.woken(), 2);
    assert!(matches!(
        poll(&mut failed, &count),
        Poll::Ready(Err(Error::Failed { .. }))
    ));
    assert!(matches!(
        poll(&mut cancelled, &count),
        Poll::Ready(Err(Error::Cancelled { .. }))
    ));
}

#[test]
fn any_and_all_over_two_devices() {
    let (one, two) = (Device::new(), Device::new());
    let (a, b) = (one.timeline("a").unwrap(), two.timeline("b").unwrap());
    let count = Count::new();
    let points = [a.at(1), b.at(1), a.at(1), b.at(2)];
    let (mut any, mut all) = (future::any(&points), future::all(&points));
    assert!(poll(&mut any, &count).is_pending() && poll(&mut all, &count).is_pending());
    b.signal(1).unwrap();
    assert!(matches!(poll(&mut any, &count), Poll::Ready(Ok(1))));
    assert!(poll(&mut all, &count).is_pending());
    b.signal(2).unwrap();
    a.signal(1).unwrap();
    assert!(matches!(poll(&mut all, &count), Poll::Ready(Ok(()))));
    // A reached point takes precedence over a failed one.
    a.fail(cause());
    assert!(matches!(
        poll(&mut future::any(&[a.at(9), b.at(2)]), &count),
        Poll::Ready(Ok(1))
    ));
    assert!(matches!(
        poll(&mut future::any(&[b.at(9), a.at(9)]), &count),
        Poll::Ready(Err(Error::Failed { .. }))
    ));
    assert!(matches!(
        poll(&mut future::all(&[b.at(9), a.at(9)]), &count),
        Poll::Ready(Err(Error::Failed { .. }))
    ));
}

#[test]
fn a_future_of_pending_ends_before_one_of_reached() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let (gate, line) = (
        device.timeline("gate").unwrap(),
        device.timeline("line").unwrap(),
    );
    let (open, opened) = std::sync::mpsc::channel::<()>();
    queue
        .submit(
            &[gate.at(1)],
            move |recorder| {
                recorder.run(move || {
                    let _ = opened.recv();
                });
                Ok(())
            },
            &[line.signal_at(1)],
        )
        .unwrap();
    let count = Count::new();
    let (mut pending, mut reached) = (line.at(1).pending(), line.at(1).into_future());
    assert!(poll(&mut pending, &count).is_pending() && poll(&mut reached, &count).is_pending());
    gate.signal(1).unwrap();
    assert!(matches!(poll(&mut pending, &count), Poll::Ready(Ok(()))));
    assert!(poll(&mut reached, &count).is_pending());
    open.send(()).unwrap();
    block_on(reached).unwrap();
}

#[test]
fn no_wakeup_is_lost_between_threads() {
    const ROUNDS: u64 = 2000;
    let device = Device::new();
    let (ping, pong) = (
        device.timeline("ping").unwrap(),
        device.timeline("pong").unwrap(),
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=ROUNDS {
                block_on(ping.at(n).into_future()).unwrap();
                pong.signal(n).unwrap();
            }
        });
        for n in 1..=ROUNDS {
            ping.signal(n).unwrap();
            block_on(async { pong.at(n).await }).unwrap();
        }
    });
}
