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
use syncline::{BackendKind, Error, KeptPoint, Point, Timeline, future, wait_any};

use super::{Call, Floor, Row};
use crate::bar::Bar;
use crate::lab::{Lab, Outcome, Side, Stop, timed};
use crate::machine::On;
use crate::stats::median;

/// No wait of these rows takes so long.
const LONG: Duration = Duration::from_secs(20);

/// The points lie on so many timelines at the most, taken in turns from all devices.
const TIMELINES: u64 = 64;

/// What every number of points is compared with.
const FEW: u64 = 10;

/// So long a thread has been waiting before it is woken: long enough to be asleep.
const ASLEEP: Duration = Duration::from_millis(2);

const BAR: Bar = Bar::All(&[
    // What 10 000 points take does not fit into the fastest caches.
    Bar::Figure("ratio_to_point_of_10", 1.5),
    Bar::Figure("wake_to_that_of_10", 1.5),
]);

const OURS: &str = "a future of any of N points on up to 64 timelines of all devices, those of Vulkan with a signal outstanding: polled once, so that all are registered, and dropped; per point";
const RAW: &str = "(nobody offers it)";

const fn row(id: &'static str, run: super::Run) -> Row {
    Row {
        id,
        ours: OURS,
        raw: RAW,
        floor: Floor::Unmeasured("nobody offers it"),
        bar: BAR,
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

/// Points that nothing signals unless it is told to.
struct Points {
    /// Kept, as waits on a timeline without an owner end.
    _timelines: Vec<Timeline>,
    /// Of the last point, on the last device, which is the host: what is signalled costs the same
    /// however many there are.
    signalled: Timeline,
    points: Vec<KeptPoint>,
}

impl Points {
    fn new(call: &Call<'_>, count: u64) -> Outcome<Self> {
        /// What is signalled to wake somebody lies below.
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
                    // A submission of the application's own, which never comes: so its driver is
                    // asked at every look.
                    timeline.claim(ABOVE + count, 0)?.submitted()?;
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

    /// The last point's timeline, and the value that it is signalled to next.
    fn next(&self) -> (&Timeline, u64) {
        (&self.signalled, self.signalled.frozen_value() + 1)
    }

    /// All points, but this one for the last.
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

fn any(call: &Call<'_>, lab: &mut dyn Lab, count: u64) -> Outcome<()> {
    let (few, many) = (Points::new(call, FEW)?, Points::new(call, count)?);
    let (few_list, many_list) = (few.list(), many.list());
    lab.race(vec![
        Side::ours(|n| register(&many_list, n)).each(count),
        Side::new("point_of_10", |n| register(&few_list, n)).each(FEW),
        // One look at all of them, as each wait begins with.
        Side::new("look_per_point", |n| look(&many_list, n)).each(count),
    ])?;
    let mut wakes = Wakes::default();
    for _ in 0..3 * lab.rounds() {
        // In turns, as the sides of a race.
        wakes.few.sample(&few)?;
        wakes.many.sample(&many)?;
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
        "from the signal of the list's last point: wake, until a thread that sleeps in a future's executor runs; return, until one comes out of wait_any, which takes its registrations back; waker, until a waker is called".into(),
    );
    Ok(())
}

fn register(points: &[Point<'_>], n: u64) -> Outcome<Duration> {
    let mut context = Context::from_waker(Waker::noop());
    timed(|| {
        for _ in 0..n {
            let mut waiting = pin!(future::any(points));
            if let Poll::Ready(ended) = waiting.as_mut().poll(&mut context) {
                return Err(Stop::Failed(format!(
                    "nobody has signalled, but: {ended:?}"
                )));
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
                    return Err(Stop::Failed(format!(
                        "nobody has signalled, but: {ended:?}"
                    )));
                }
            }
        }
        Ok(())
    })
}

/// Notes when it is called.
struct Bell {
    epoch: Instant,
    rang: AtomicU64,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let now = self.epoch.elapsed().as_nanos() as u64;
        self.rang.store(now, Ordering::Release);
    }
}

#[derive(Default)]
struct Wakes {
    few: Samples,
    many: Samples,
}

/// Nanoseconds from a signal of the list's last point.
#[derive(Default)]
struct Samples {
    thread: Vec<f64>,
    returned: Vec<f64>,
    waker: Vec<f64>,
}

impl Samples {
    fn sample(&mut self, points: &Points) -> Outcome<()> {
        self.thread.push(awaited(points, |list, ready| {
            let waker = Waker::from(Arc::new(Unparker(thread::current())));
            let mut waiting = pin!(future::any(list));
            let mut context = Context::from_waker(&waker);
            let mut woken = Instant::now();
            ready();
            while waiting.as_mut().poll(&mut context).is_pending() {
                thread::park_timeout(LONG);
                woken = Instant::now();
            }
            woken
        })?);
        self.returned.push(awaited(points, |list, ready| {
            ready();
            // The signal is checked where it is made.
            let _ = wait_any(list, LONG);
            Instant::now()
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

/// How long after the signal a thread that does `wait` has been woken, by its own account.
fn awaited(
    points: &Points,
    wait: impl FnOnce(&[Point<'_>], &dyn Fn()) -> Instant + Send,
) -> Outcome<f64> {
    let (timeline, value) = points.next();
    let list = &points.waiting_for(timeline.at(value));
    thread::scope(|scope| {
        let (send, receive) = channel();
        let waiter = scope.spawn(move || {
            wait(list, &|| {
                // Whoever receives waits for it.
                let _ = send.send(());
            })
        });
        // It is gone only if it panicked, and then that is told below.
        let _ = receive.recv();
        thread::sleep(ASLEEP);
        let start = Instant::now();
        timeline.signal(value)?;
        let woken = waiter
            .join()
            .map_err(|_| Stop::Failed("the waiting thread panicked".into()))?;
        if !timeline.at(value).is_reached()? {
            return Err(Stop::Failed(
                "the waiting thread was woken too early".into(),
            ));
        }
        Ok(woken.saturating_duration_since(start).as_nanos() as f64)
    })
}

/// How long after the signal a future's waker is called.
fn called(points: &Points) -> Outcome<f64> {
    let (timeline, value) = points.next();
    let list = points.waiting_for(timeline.at(value));
    let bell = Arc::new(Bell {
        epoch: Instant::now(),
        rang: AtomicU64::new(0),
    });
    let waker = Waker::from(bell.clone());
    let mut waiting = pin!(future::any(&list));
    if let Poll::Ready(ended) = waiting.as_mut().poll(&mut Context::from_waker(&waker)) {
        return Err(Stop::Failed(format!(
            "nobody has signalled, but: {ended:?}"
        )));
    }
    let start = bell.epoch.elapsed().as_nanos() as u64;
    timeline.signal(value)?;
    let deadline = Instant::now() + LONG;
    loop {
        match bell.rang.load(Ordering::Acquire) {
            0 if Instant::now() > deadline => {
                return Err(Stop::Failed("the waker was not called".into()));
            }
            0 => std::hint::spin_loop(),
            rang => return Ok(rang.saturating_sub(start) as f64),
        }
    }
}
