//! Waiting for any of many points.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use syncline::backend::Device as _;
use syncline::{Error, KeptPoint, Point, Timeline, info::BackendKind, wait::future, wait_any};

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::row::{Call, LONG, Question, Row};
use crate::side::{OURS, Outcome, Side, Stop};
use crate::stats::median;

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

const WORK: &str = "a future of any of N points on up to 64 timelines of all devices, those of Vulkan with a signal outstanding: polled once, so that all are registered, and dropped; per point (--quick: at most 1000 points)";
const RAW: &str = "(no driver offers it)";

const fn row(id: &'static str, run: crate::row::Run) -> Row {
    Row {
        id,
        question: Question::Many,
        ours: WORK,
        raw: RAW,
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
    let count = if lab.is_quick() {
        count.min(MOST_IN_SHORT)
    } else {
        count
    };
    let (few, many) = (Points::new(call, FEW)?, Points::new(call, count)?);
    let (few_list, many_list) = (few.list(), many.list());
    lab.race(vec![
        Side::timed(OURS, || register(&many_list)).each(count),
        Side::timed("point_of_10", || register(&few_list)).each(FEW),
        // One poll of all points, with which each wait begins.
        Side::timed(LOOK, || look(&many_list)).each(count),
    ])?;
    // A wait looks at all points and registers all of them before it sleeps.
    let median_of = |side| {
        let median = lab.median(side);
        median.ok_or_else(|| Stop::Failed(format!("the race had no side {side}")))
    };
    let begins = (median_of(OURS)? + median_of(LOOK)?) * count as f64;
    let asleep = ASLEEP + 2 * Duration::from_nanos(begins as u64);
    let [mut of_few, mut of_many] = [const { Vec::new() }; 2];
    for _ in 0..3 * lab.rounds() {
        // In turns, as the sides of a race.
        of_few.push(wake(&few, asleep)?);
        of_many.push(wake(&many, asleep)?);
    }
    let [few, many] = [&of_few, &of_many].map(|of| median(of).unwrap_or(f64::NAN));
    lab.figure("wake_ns", many);
    lab.figure("wake_of_10_ns", few);
    lab.figure("wake_to_that_of_10", many / few);
    lab.note(
        "wake: from the signal of the last point until a thread that sleeps in an executor runs"
            .into(),
    );
    Ok(())
}

fn unsignalled(ended: &dyn std::fmt::Debug) -> Stop {
    Stop::Failed(format!("a wait ended without a signal: {ended:?}"))
}

fn register(points: &[Point<'_>]) -> Outcome<()> {
    let mut waiting = pin!(future::any(points));
    match waiting
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Pending => Ok(()),
        Poll::Ready(ended) => Err(unsignalled(&ended)),
    }
}

fn look(points: &[Point<'_>]) -> Outcome<()> {
    match wait_any(black_box(points), Duration::ZERO) {
        Err(Error::TimedOut { .. }) => Ok(()),
        ended => Err(unsignalled(&ended)),
    }
}

struct Unparker(thread::Thread);

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns the nanoseconds from the signal of the last point until a sleeping thread runs.
///
/// The signal comes `asleep` after the thread has registered all points.
fn wake(points: &Points, asleep: Duration) -> Outcome<f64> {
    let (timeline, value) = points.next();
    let list = &points.waiting_for(timeline.at(value));
    thread::scope(|scope| {
        let (send, receive) = channel();
        let waiter = scope.spawn(move || {
            let waker = Waker::from(Arc::new(Unparker(thread::current())));
            let mut waiting = pin!(future::any(list));
            let mut context = Context::from_waker(&waker);
            if let Poll::Ready(ended) = waiting.as_mut().poll(&mut context) {
                return Err(unsignalled(&ended));
            }
            // The receiver waits for it.
            let _ = send.send(());
            loop {
                thread::park_timeout(LONG);
                let woken = Instant::now();
                if waiting.as_mut().poll(&mut context).is_ready() {
                    return Ok(woken);
                }
            }
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
