//! Errors of the application whose destructors panic: whoever drops the last of them goes on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::host::{self, Device};
use syncline_core::{Error, QueueKind, Result};

const LONG: Duration = Duration::from_secs(5);

/// An error that panics where it is dropped, and counts that.
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

/// Nobody waits for work that was held and fails: the queue alone remembers why, for those that may
/// ask, and only the last of these errors.
#[test]
fn held_work_that_fails_for_nobody_harms_no_queue() {
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
        "not as many are forgotten as are to be"
    );
    queue.submit(&[], nothing, &[]).unwrap();
    queue.idle(LONG).unwrap();
    drop(queue);
    until("the queue has gone, and its errors have not", || {
        dropped() == ALL
    });
    let other = device.queue(QueueKind::Compute, "other").unwrap();
    other.submit(&[], nothing, &[]).unwrap();
    other.idle(LONG).unwrap();
}

/// The last who know of the cause are the worker threads.
#[test]
fn a_cause_that_a_worker_drops_harms_no_worker() {
    let device = Device::new();
    let [first, second] =
        ["first", "second"].map(|label| device.queue(QueueKind::Compute, label).unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    for signals in [0, 1] {
        for others in [0, 1] {
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
            let before = count.load(Ordering::SeqCst);
            let all = [out.signal_at(1), more.signal_at(1)];
            let signals = &all[..signals + others];
            second.submit(&[line.at(1)], runs, signals).unwrap();
            line.fail(Error::work(Bomb(count.clone())));
            drop((line, out, more));
            drop(go);
            until("nobody drops it", || count.load(Ordering::SeqCst) > before);
            for queue in [&first, &second] {
                queue.submit(&[], runs, &[]).unwrap();
                queue.idle(LONG).unwrap();
            }
        }
    }
}
