//! Waiting for any of many points.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use syncline::backend::Device as _;
use syncline::{Error, KeptPoint, Point, Timeline, info::BackendKind, wait::future, wait_any};

use super::{Call, Floor, Row, is_short};
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::side::{OURS as OURS_SIDE, Outcome, Side, Stop, timed};
use crate::stats::median;

/// Time-out of all waits of these rows.
const LONG: Duration = Duration::from_secs(20);

/// Largest number of timelines of the points. Their devices take turns.
const TIMELINES: u64 = 64;

/// The number of points that all others are compared with.
const FEW: u64 = 10;

/// The largest number of points in a short run.
const MOST_IN_SHORT: u64 = 1000;

/// Duration from the registration of a wait to its signal, so that the thread sleeps by then.
const ASLEEP: Duration = Duration::from_millis(2);

/// The side that looks at all points.
const LOOK: &str = "look_per_point";

const LIMITS: &[Limit] = &[
    // 10 000 points do not fit into the fastest caches.
    Limit::Figure("ratio_to_point_of_10", 1.5),
    Limit::Figure("wake_to_that_of_10", 1.5),
];

const OURS: &str = "a future of any of N points on up to 64 timelines of all devices, those of Vulkan with a signal outstanding: polled once, so that all are registered, and dropped; per point (--quick: at most 1000 points)";
const RAW: &str = "(no driver offers it)";

const fn row(id: &'static str, run: super::Run) -> Row {
    Row {
        id,
        ours: OURS,
        raw: RAW,
        floor: Floor::Unmeasured("no driver offers it"),
        limits: LIMITS,
        on: &[On::Mixed],
        variants: &[],
        run,
    }
}

pub(super) const ROWS: &[Row] = &[
    row("wait.any.10", |call, lab| any(call, lab, 10)),
    row("wait.any.1000", |call, lab| any(call, lab, 1000)),
    row("wait.any.10000", |call, lab| any(call, lab, 10_000)),
];

/// Points without a signal, except for the last one, which the row signals.
struct Points {
    /// Kept alive, because waits on a timeline without an owner end.
    _timelines: Vec<Timeline>,
    /// The timeline of the last point. It belongs to the last device, the host, so its signal costs
    /// the same for any number of points.
    signalled: Timeline,
    points: Vec<KeptPoint>,
}

impl Points {
    fn new(call: &Call<'_>, count: u64) -> Outcome<Self> {
        /// Values that are signalled lie below.
        const ABOVE: u64 = 1_000_000;
        let devices = call
            .subject
            .indices
            .iter()
            .map(|index| call.machine.device(*index))
            .collect::<Outcome<Vec<_>>>()?;
        let last = devices
            .last()
            .ok_or_else(|| Stop::Failed("a subject without devices".into()))?;
        let signalled = last.timeline("signalled")?;
        let others = (count - 1).clamp(1, TIMELINES - 1);
        let timelines = (0..others as usize)
            .map(|number| {
                let device = &devices[number % devices.len()];
                let timeline = device.timeline("one of many")?;
                if device.info().backend == BackendKind::Vulkan {
                    // A claim for a submission that never comes, so that each poll calls the
                    // driver.
                    timeline.claim(ABOVE + count)?.submitted()?;
                }
                Ok(timeline)
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let mut points: Vec<_> = (0..count - 1)
            .map(|number| {
                let timeline = &timelines[(number % others) as usize];
                timeline.at(ABOVE + number).keep()
            })
            .collect();
        points.push(signalled.at(ABOVE).keep());
        Ok(Self {
            _timelines: timelines,
            signalled,
            points,
        })
    }

    /// The timeline of the last point, and the value to signal next.
    fn next(&self) -> (&Timeline, u64) {
        (&self.signalled, self.signalled.frozen_value() + 1)
    }

    /// All points, with `last` in place of the last one.
    fn waiting_for<'p>(&'p self, last: Point<'p>) -> Vec<Point<'p>> {
        let mut list = self.list();
        list.pop();
        list.push(last);
        list
    }

    fn list(&self) -> Vec<Point<'_>> {
        self.points.iter().map(KeptPoint::point).collect()
    }
}

fn any(call: &Call<'_>, lab: &mut Lab, count: u64) -> Outcome<()> {
    let count = if is_short(lab) {
        count.min(MOST_IN_SHORT)
    } else {
        count
    };
    let (few, many) = (Points::new(call, FEW)?, Points::new(call, count)?);
    let (few_list, many_list) = (few.list(), many.list());
    lab.race(vec![
        Side::ours(|n| register(&many_list, n)).each(count),
        Side::new("point_of_10", |n| register(&few_list, n)).each(FEW),
        // One poll of all points, with which each wait begins.
        Side::new(LOOK, |n| look(&many_list, n)).each(count),
    ])?;
    // A wait looks at all points and registers all of them before it sleeps.
    let median_of = |side| {
        let median = lab.median(side);
        median.ok_or_else(|| Stop::Failed(format!("the race had no side {side}")))
    };
    let begins = (median_of(OURS_SIDE)? + median_of(LOOK)?) * count as f64;
    let asleep = ASLEEP + 2 * Duration::from_nanos(begins as u64);
    let mut wakes = Wakes::default();
    for _ in 0..3 * lab.rounds() {
        // In turns, as the sides of a race.
        wakes.few.sample(&few, asleep)?;
        wakes.many.sample(&many, asleep)?;
    }
    for (name, few, many) in [
        ("wake", &wakes.few.thread, &wakes.many.thread),
        ("return", &wakes.few.returned, &wakes.many.returned),
        ("waker", &wakes.few.waker, &wakes.many.waker),
    ] {
        let of = |samples: &[f64]| median(samples).unwrap_or(f64::NAN);
        lab.figure(&format!("{name}_ns"), of(many));
        lab.figure(&format!("{name}_of_10_ns"), of(few));
        lab.figure(&format!("{name}_to_that_of_10"), of(many) / of(few));
    }
    lab.note(
        "from the signal of the last point: wake, until a thread that sleeps in an executor runs; return, until wait_any returns, which removes its registrations; waker, until a waker is called".into(),
    );
    Ok(())
}

fn unsignalled(ended: &dyn std::fmt::Debug) -> Stop {
    Stop::Failed(format!("a wait ended without a signal: {ended:?}"))
}

fn register(points: &[Point<'_>], n: u64) -> Outcome<Duration> {
    let mut context = Context::from_waker(Waker::noop());
    timed(|| {
        for _ in 0..n {
            let mut waiting = pin!(future::any(points));
            if let Poll::Ready(ended) = waiting.as_mut().poll(&mut context) {
                return Err(unsignalled(&ended));
            }
        }
        Ok(())
    })
}

fn look(points: &[Point<'_>], n: u64) -> Outcome<Duration> {
    timed(|| {
        for _ in 0..n {
            match wait_any(black_box(points), Duration::ZERO) {
                Err(Error::TimedOut { .. }) => {}
                ended => {
                    return Err(unsignalled(&ended));
                }
            }
        }
        Ok(())
    })
}

/// A waker that records the time of its call.
struct RecordingWaker {
    epoch: Instant,
    called: AtomicU64,
}

impl Wake for RecordingWaker {
    fn wake(self: Arc<Self>) {
        let now = self.epoch.elapsed().as_nanos() as u64;
        self.called.store(now, Ordering::Release);
    }
}

#[derive(Default)]
struct Wakes {
    few: Samples,
    many: Samples,
}

/// Nanoseconds from the signal of the last point.
#[derive(Default)]
struct Samples {
    thread: Vec<f64>,
    returned: Vec<f64>,
    waker: Vec<f64>,
}

impl Samples {
    fn sample(&mut self, points: &Points, asleep: Duration) -> Outcome<()> {
        self.thread.push(awaited(points, asleep, |list, ready| {
            let waker = Waker::from(Arc::new(Unparker(thread::current())));
            let mut waiting = pin!(future::any(list));
            let mut context = Context::from_waker(&waker);
            // The first poll registers all points.
            if let Poll::Ready(ended) = waiting.as_mut().poll(&mut context) {
                return Err(unsignalled(&ended));
            }
            ready();
            loop {
                thread::park_timeout(LONG);
                let woken = Instant::now();
                if waiting.as_mut().poll(&mut context).is_ready() {
                    return Ok(woken);
                }
            }
        })?);
        self.returned.push(awaited(points, asleep, |list, ready| {
            ready();
            // `awaited` checks that the point is reached.
            let _ = wait_any(list, LONG);
            Ok(Instant::now())
        })?);
        self.waker.push(called(points)?);
        Ok(())
    }
}

struct Unparker(thread::Thread);

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns the nanoseconds from the signal until `wait`, on another thread, has been woken.
///
/// `wait` calls its second argument before it sleeps, and returns when it was woken. The signal
/// comes `asleep` after that call.
fn awaited(
    points: &Points,
    asleep: Duration,
    wait: impl FnOnce(&[Point<'_>], &dyn Fn()) -> Outcome<Instant> + Send,
) -> Outcome<f64> {
    let (timeline, value) = points.next();
    let list = &points.waiting_for(timeline.at(value));
    thread::scope(|scope| {
        let (send, receive) = channel();
        let waiter = scope.spawn(move || {
            wait(list, &|| {
                // The receiver waits for it.
                let _ = send.send(());
            })
        });
        // An error means that the waiting thread has ended, and `join` below tells why.
        let _ = receive.recv();
        thread::sleep(asleep);
        let start = Instant::now();
        timeline.signal(value)?;
        let woken = waiter
            .join()
            .map_err(|_| Stop::Failed("the waiting thread panicked".into()))??;
        if !timeline.at(value).is_reached()? {
            return Err(Stop::Failed(
                "the waiting thread was woken too early".into(),
            ));
        }
        Ok(woken.saturating_duration_since(start).as_nanos() as f64)
    })
}

/// Returns the nanoseconds from the signal until the waker of a future is called.
fn called(points: &Points) -> Outcome<f64> {
    let (timeline, value) = points.next();
    let list = points.waiting_for(timeline.at(value));
    let recorder = Arc::new(RecordingWaker {
        epoch: Instant::now(),
        called: AtomicU64::new(0),
    });
    let waker = Waker::from(recorder.clone());
    let mut waiting = pin!(future::any(&list));
    if let Poll::Ready(ended) = waiting.as_mut().poll(&mut Context::from_waker(&waker)) {
        return Err(unsignalled(&ended));
    }
    let start = recorder.epoch.elapsed().as_nanos() as u64;
    timeline.signal(value)?;
    let deadline = Instant::now() + LONG;
    loop {
        match recorder.called.load(Ordering::Acquire) {
            0 if Instant::now() > deadline => {
                return Err(Stop::Failed("the waker was not called".into()));
            }
            0 => std::hint::spin_loop(),
            called => return Ok(called.saturating_sub(start) as f64),
        }
    }
}
