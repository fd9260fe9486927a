//! The engine over a driver that is often busy, sometimes refuses, and takes few submissions.
//!
//! The host backend does none of these.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::words::{Of, queue};
use syncline_core::backend::{
    Attachment, Batch, ByEngine, Completion, Enqueue, Flush, Keep, NoStamp, Port, Waker,
};
use syncline_core::{Error, KeptPoint, Result, Timeline, info::DeviceId, wait_all};

const LONG: Duration = Duration::from_secs(20);

/// A port that the host cannot poll for a value.
struct Bare;

impl Port for Bare {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
}

fn timeline(device: DeviceId, label: &str) -> Timeline {
    let attachment = Attachment::new(device, 0, Bare);
    Timeline::new(label, 0, |_| Ok([attachment].into_iter().collect())).unwrap()
}

struct Task {
    waits: Vec<KeptPoint>,
    signals: Vec<Completion>,
    refused: bool,
}

/// A driver whose queue is often locked, with a thread that executes its submissions.
struct Fickle {
    home: Of<Self>,
    number: u64,
    dice: AtomicU64,
    refuses: bool,
    in_flight: Arc<AtomicU64>,
    recording: AtomicBool,
    tasks: Mutex<Sender<Task>>,
    /// Wakers of queues that found it locked. Another thread wakes them.
    blocked: Mutex<Sender<Waker>>,
}

impl Fickle {
    fn new(device: DeviceId, number: u64, refuses: bool) -> Self {
        let (tasks, taken) = channel::<Task>();
        let (blocked, unlocked) = channel::<Waker>();
        let in_flight = Arc::new(AtomicU64::new(0));
        let left = in_flight.clone();
        std::thread::spawn(move || {
            for task in taken {
                let points: Vec<_> = task.waits.iter().map(KeptPoint::point).collect();
                let waited = wait_all(&points, LONG);
                left.fetch_sub(1, Ordering::SeqCst);
                for signal in task.signals {
                    match &waited {
                        Ok(()) => signal.complete(),
                        Err(error) => signal.fail(error.clone()),
                    }
                }
            }
        });
        std::thread::spawn(move || unlocked.into_iter().for_each(Waker::wake));
        Self {
            home: Of::new(device, move || Attachment::new(device, 0, Bare)),
            number,
            dice: AtomicU64::new(number),
            refuses,
            in_flight,
            recording: AtomicBool::new(false),
            tasks: Mutex::new(tasks),
            blocked: Mutex::new(blocked),
        }
    }

    fn one_in(&self, n: u64) -> bool {
        let next = |x: u64| x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let before = self
            .dice
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |x| Some(next(x)));
        (before.unwrap() >> 33).is_multiple_of(n)
    }
}

fn refusal() -> Error {
    Error::work(std::io::Error::other("refused"))
}

impl Enqueue for Fickle {
    type Device = Of<Self>;
    type Recorder<'a> = ();
    type Ready<'a> = ();
    type State = Option<Task>;
    type Stamp = NoStamp;
    const MAX_IN_FLIGHT: u64 = 3;

    fn device(&self) -> &Of<Self> {
        &self.home
    }

    fn order_domain(&self) -> Option<u64> {
        Some(self.number)
    }

    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn record<W>(
        &self,
        (): (),
        recorded: &mut Option<Task>,
        batch: &Batch<'_, Self>,
        _: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut ()) -> Result<()>,
    {
        assert!(
            !self.recording.swap(true, Ordering::SeqCst),
            "two records at a time"
        );
        let worked = work(&mut ());
        self.recording.store(false, Ordering::SeqCst);
        worked?;
        let waits = batch.waits.iter().chain(batch.order);
        let signals = batch.signals.iter().chain([&batch.end]);
        *recorded = Some(Task {
            waits: waits.map(|wait| wait.keep()).collect(),
            signals: signals.map(|signal| signal.completion().unwrap()).collect(),
            // Empty submissions are not refused, because the queue would fail then.
            refused: self.refuses && !batch.signals.is_empty() && self.one_in(40),
        });
        Ok(())
    }

    fn flush(&self, recorded: &mut Option<Task>, waker: &dyn Fn() -> Waker) -> Flush {
        if self.one_in(3) {
            self.blocked.lock().unwrap().send(waker()).unwrap();
            return Flush::Busy;
        }
        let task = recorded.take().unwrap();
        if task.refused {
            return Flush::Refused(refusal());
        }
        assert!(self.in_flight.fetch_add(1, Ordering::SeqCst) < Self::MAX_IN_FLIGHT);
        self.tasks.lock().unwrap().send(task).unwrap();
        Flush::Done
    }
}

/// Two queues of two devices signal one timeline in turn, and a third follows.
///
/// Each queue has its own submitting thread.
fn round(refuses: bool) {
    let (near, far) = (DeviceId::new::<Of<Fickle>>(), DeviceId::new::<Of<Fickle>>());
    let queue = |device, number: u64| {
        let driver = Fickle::new(device, number, refuses);
        queue(&number.to_string(), driver)
    };
    let queues = [queue(near, 1), queue(far, 2), queue(near, 3)];
    let (line, echo) = (timeline(near, "line"), timeline(far, "echo"));
    let last = 120;
    std::thread::scope(|scope| {
        for (first, queue) in queues.iter().enumerate() {
            let (line, echo) = (&line, &echo);
            scope.spawn(move || {
                for n in 1..=last {
                    let submitted = match first {
                        2 => queue.submit(&[line.at(n)], |()| Ok(()), &[echo.signal_at(n)]),
                        _ if n % 2 == first as u64 => {
                            queue.submit(&[line.at(n - 1)], |()| Ok(()), &[line.signal_at(n)])
                        }
                        _ => continue,
                    };
                    if let Err(error) = submitted {
                        assert!(refuses, "{error}");
                        if first == 2 { echo } else { line }.fail(error);
                    }
                }
            });
        }
    });
    let ended = echo.at(last).wait(LONG);
    match ended {
        Ok(()) => assert_eq!(line.value().unwrap(), last),
        Err(error) => assert!(refuses && !error.is_timeout(), "{error}"),
    }
    for queue in &queues {
        queue.idle(LONG).unwrap();
        assert_eq!(queue.held().count, 0);
    }
}

#[test]
fn a_busy_driver_loses_no_submission() {
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        round(false);
    }
}

#[test]
fn a_driver_that_refuses_fails_waits_and_hangs_no_thread() {
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        round(true);
    }
}
