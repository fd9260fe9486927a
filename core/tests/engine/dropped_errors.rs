//! Errors of the application whose destructors panic. The thread that drops the last one goes on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rstest::rstest;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::host::{self, Device};
use syncline_core::{Error, QueueKind, Result};

const LONG: Duration = Duration::from_secs(5);

/// An error that counts its drops, and panics in each.
#[derive(Debug)]
struct Bomb(Arc<AtomicUsize>);

impl fmt::Display for Bomb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bomb")
    }
}

impl std::error::Error for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("dropped");
    }
}

fn nothing(_: &mut host::Recorder<'_>) -> Result<()> {
    Ok(())
}

fn until(what: &str, done: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}

/// Held work fails without a waiter. Only the queue keeps the errors, and only the last 256.
#[test]
fn held_work_whose_errors_panic_does_not_harm_the_queue() {
    const ALL: usize = 300;
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let gate = device.timeline("gate").unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let dropped = || count.load(Ordering::SeqCst);
    for n in 1..=ALL {
        let counted = count.clone();
        let refuse = move |_: &mut host::Recorder| Err(Error::work(Bomb(counted)));
        let submitted = queue.submit(&[gate.at(n as u64)], refuse, &[]).unwrap();
        assert!(submitted.is_held());
        gate.signal(n as u64).unwrap();
        let told = submitted.wait_submitted(LONG);
        assert!(matches!(told, Err(Error::Skipped { .. })), "{told:?}");
    }
    assert_eq!(
        dropped(),
        ALL - 256,
        "the queue keeps another number of errors"
    );
    queue.submit(&[], nothing, &[]).unwrap();
    queue.idle(LONG).unwrap();
    drop(queue);
    until("a dropped queue keeps errors", || dropped() == ALL);
    let other = device.queue(QueueKind::Compute, "other").unwrap();
    other.submit(&[], nothing, &[]).unwrap();
    other.idle(LONG).unwrap();
}

/// The worker threads have the last handles of the cause.
#[rstest]
#[case::no_signal(0)]
#[case::one_signal(1)]
#[case::two_signals(2)]
fn a_cause_that_a_worker_drops_does_not_harm_the_worker(#[case] signals: usize) {
    let device = Device::new();
    let [first, second] =
        ["first", "second"].map(|label| device.queue(QueueKind::Compute, label).unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let line = device.timeline("line").unwrap();
    let [out, more] = ["out", "more"].map(|label| device.timeline(label).unwrap());
    let blocks = move |recorder: &mut host::Recorder| {
        recorder.run(move || {
            let _ = gate.recv();
        });
        Ok(())
    };
    first.submit(&[], blocks, &[line.signal_at(1)]).unwrap();
    let runs = |recorder: &mut host::Recorder| {
        recorder.run(|| ());
        Ok(())
    };
    let all = [out.signal_at(1), more.signal_at(1)];
    second.submit(&[line.at(1)], runs, &all[..signals]).unwrap();
    line.fail(Error::work(Bomb(count.clone())));
    drop((line, out, more));
    drop(go);
    until("the cause is not dropped", || {
        count.load(Ordering::SeqCst) > 0
    });
    for queue in [&first, &second] {
        queue.submit(&[], runs, &[]).unwrap();
        queue.idle(LONG).unwrap();
    }
}
