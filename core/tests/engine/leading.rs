//! A waiting thread that leads: it calls the device's `watch` itself.
//!
//! It does so while no other thread or submission waits for the device, and then leaves the watch
//! to the watching thread.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use syncline_core::backend::{Attachment, Device as _, Port, Queue as _, Watch, Watcher};
use syncline_core::{Error, QueueKind, Result, Timeline, WaitMode, host, info::DeviceId};

use crate::words::Word;

const LONG: Duration = Duration::from_secs(10);
/// After this time a waiting thread sleeps or is in `watch`.
const A_WHILE: Duration = Duration::from_millis(30);

/// A device whose counters advance when the test says so, and that lends its watch.
#[derive(Default)]
struct Driver {
    watcher: Watcher,
    state: Mutex<State>,
    changed: Condvar,
    watched: AtomicBool,
    lost: AtomicBool,
    /// True if `watch` returns at its time-out. Otherwise it returns much later, unless nudged.
    punctual: AtomicBool,
}

#[derive(Default)]
struct State {
    nudged: bool,
    /// The threads that called `watch`, in order, without repetitions.
    callers: Vec<ThreadId>,
}

impl Driver {
    fn timeline(self: &Arc<Self>, label: &str, outside: bool) -> (Timeline, Arc<AtomicU64>) {
        let counter = Arc::<AtomicU64>::default();
        let port = Word(counter.clone());
        let line = Timeline::new(label, 0, |_| {
            let attachment = Attachment::new(DeviceId::new::<()>(), 0, port)
                .watched_by(self.clone())
                .signalled_elsewhere(outside);
            Ok([attachment].into_iter().collect())
        });
        (line.unwrap(), counter)
    }

    /// Sets `counter` to `value`, as the driver does.
    fn execute(&self, counter: &AtomicU64, value: u64) {
        let _state = self.state.lock().unwrap();
        counter.store(value, Ordering::SeqCst);
        self.changed.notify_all();
    }

    fn lose(&self) {
        let _state = self.state.lock().unwrap();
        self.lost.store(true, Ordering::SeqCst);
        self.changed.notify_all();
    }

    fn callers(&self) -> Vec<ThreadId> {
        self.state.lock().unwrap().callers.clone()
    }

    /// Blocks until `is_it` is true for the last thread that called `watch`.
    fn until_watched_by(&self, is_it: impl Fn(ThreadId) -> bool) {
        let since = Instant::now();
        while !self.callers().last().is_some_and(|&last| is_it(last)) {
            assert!(since.elapsed() < LONG, "watched by {:?}", self.callers());
            thread::yield_now();
        }
    }
}

impl Watch for Driver {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        let met = self.watched.swap(true, Ordering::SeqCst);
        assert!(!met, "two calls of watch at a time");
        let late = !self.punctual.load(Ordering::SeqCst);
        let until = if late { until + LONG } else { until };
        let mut state = self.state.lock().unwrap();
        let caller = thread::current().id();
        if state.callers.last() != Some(&caller) {
            state.callers.push(caller);
        }
        let result = loop {
            if self.lost.load(Ordering::SeqCst) {
                break Err(Error::device_lost(
                    syncline_core::error::Object::new("device", ""),
                    "watch",
                    -4,
                    "LOST",
                ));
            }
            let reached = |&(port, value): &(&dyn Port, u64)| {
                let reached = port.poll().unwrap();
                reached.is_some_and(|reached| reached >= value)
            };
            let left = until.saturating_duration_since(Instant::now());
            if std::mem::take(&mut state.nudged) || ports.iter().any(reached) || left.is_zero() {
                break Ok(());
            }
            state = self.changed.wait_timeout(state, left).unwrap().0;
        };
        drop(state);
        self.watched.store(false, Ordering::SeqCst);
        result
    }

    fn nudge(&self) {
        self.state.lock().unwrap().nudged = true;
        self.changed.notify_all();
    }

    fn lends(&self) -> bool {
        true
    }
}

fn wait(line: &Timeline, value: u64, timeout: Duration) -> Result<()> {
    line.at(value).wait_with(WaitMode::Block, timeout)
}

/// Checks that a nudge or signal ended the wait, and not the late end of a watch.
fn in_time(since: Instant) {
    assert!(since.elapsed() < LONG / 2, "{:?}", since.elapsed());
}

#[test]
fn a_thread_that_waits_alone_leads() {
    let driver = Arc::new(Driver::default());
    let (line, counter) = driver.timeline("line", true);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&line, 3, LONG).map(|()| thread::current().id()));
        thread::sleep(A_WHILE);
        driver.execute(&counter, 3);
        let waiter = waiting.join().unwrap().unwrap();
        assert_eq!(driver.callers(), [waiter]);
    });
    assert_eq!(line.value().unwrap(), 3);
}

#[test]
fn a_leading_wait_times_out_in_time_and_changes_nothing() {
    let driver = Arc::new(Driver::default());
    driver.punctual.store(true, Ordering::SeqCst);
    let (line, counter) = driver.timeline("line", true);
    for timeout in [1, 30, 150].map(Duration::from_millis) {
        let since = Instant::now();
        let error = wait(&line, 1, timeout).unwrap_err();
        assert!(error.is_timeout() && since.elapsed() >= timeout, "{error}");
        in_time(since);
    }
    driver.execute(&counter, 1);
    wait(&line, 1, LONG).unwrap();
    assert_eq!(driver.callers(), [thread::current().id()]);
}

#[test]
fn the_loss_of_the_device_ends_a_leading_wait() {
    let driver = Arc::new(Driver::default());
    let (line, _counter) = driver.timeline("line", true);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&line, 1, LONG));
        driver.until_watched_by(|_| true);
        driver.lose();
        let error = waiting.join().unwrap().unwrap_err();
        let lost = |cause: &Error| matches!(cause, Error::DeviceLost { .. });
        assert!(
            matches!(&error, Error::Failed { cause, .. } if lost(cause)),
            "{error}"
        );
    });
}

#[test]
fn the_last_drop_ends_a_leading_wait() {
    let driver = Arc::new(Driver::default());
    let (line, _counter) = driver.timeline("line", false);
    let mut claim = line.claim(1).unwrap();
    claim.submitted().unwrap();
    let later = line.claim(2).unwrap();
    let point = line.at(2).keep();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || point.point().wait_with(WaitMode::Block, LONG));
        driver.until_watched_by(|_| true);
        thread::sleep(A_WHILE);
        drop(line);
        let since = Instant::now();
        drop(later);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Cancelled { .. }), "{error}");
        in_time(since);
    });
    drop(claim);
}

/// A submission that waits for a lower value of the timeline is released during a leading wait.
///
/// Its queue belongs to another device.
#[test]
fn a_leading_wait_does_not_delay_a_held_submission() {
    let driver = Arc::new(Driver::default());
    let (line, counter) = driver.timeline("line", true);
    let device = host::Device::new();
    let queue = device.queue(QueueKind::Compute, "held").unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&line, 2, LONG).map(|()| thread::current().id()));
        driver.until_watched_by(|_| true);
        let submitted = queue.submit(&[line.at(1)], |_| Ok(()), &[]).unwrap();
        assert!(submitted.is_held());
        let since = Instant::now();
        driver.execute(&counter, 1);
        submitted.end().wait(LONG).unwrap();
        assert!(!waiting.is_finished());
        driver.execute(&counter, 2);
        waiting.join().unwrap().unwrap();
        in_time(since);
    });
}

/// Other submissions that become pending do not end the watch of a leading thread.
#[test]
fn other_submissions_do_not_interrupt_a_leading_wait() {
    let driver = Arc::new(Driver::default());
    let (line, counter) = driver.timeline("line", false);
    let mut claims: Vec<_> = (1..10).map(|value| line.claim(value).unwrap()).collect();
    claims[0].submitted().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&line, 1, LONG));
        let waiter = waiting.thread().id();
        driver.until_watched_by(|last| last == waiter);
        for claim in &mut claims[1..] {
            claim.submitted().unwrap();
        }
        thread::sleep(A_WHILE);
        assert_eq!(driver.callers(), [waiter]);
        driver.execute(&counter, 9);
        waiting.join().unwrap().unwrap();
        assert_eq!(driver.callers(), [waiter]);
    });
}
