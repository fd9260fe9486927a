//! Random operations on timelines and queues, compared after each one with a model of the contract.
//!
//! Everything runs on one thread, and the test decides when a driver completes and unlocks. So a
//! sequence always has the same result. A failing sequence is shrunk and printed as a list of
//! operations.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod driver;
mod plain;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestCaseResult};
use syncline_core::backend::{Device as _, SubmissionQueue};
use syncline_core::wait::future::{self, WaitAll, WaitAny};
use syncline_core::{
    Claim, Error, Fence, KeptPoint, Point, Result, Signal, Timeline, info::DeviceId, wait_all,
    wait_any,
};

use driver::{CAPACITY, Driver, failure};
use plain::{Cause, Place, QueueView, Refusal, Standing, View, Work, World};

/// The largest value of an operation. The smallest is 1.
const VALUES: u64 = 6;

/// The devices that have a port of each timeline.
///
/// The application also signals `RAW` itself. Values of `NARROW` may be up to [`DIFFERENCE`] apart.
const LINES: [&[usize]; 4] = [&[0], &[0], &[1], &[0, 1]];
const RAW: usize = 1;
const NARROW: usize = 3;
const DIFFERENCE: u64 = 4;

/// The first value of each timeline. In the model each timeline starts at 0.
///
/// The values cross the limits of 32 bits, with and without a sign, and of 63 bits.
const FIRST: [u64; 4] = [(1 << 32) - 3, (1 << 31) - 3, 0, (1 << 63) - 3];

/// The devices of the queues.
const QUEUES: [usize; 3] = [0, 0, 1];

/// The number of fences, one for each device.
const FENCES: usize = 2;

/// A point to wait for.
#[derive(Debug, Clone, Copy)]
enum Target {
    Empty,
    Line(usize, u64),
    Fence(usize),
    /// The position of a queue.
    Position(usize),
}

#[derive(Debug, Clone)]
enum Operation {
    Submit {
        queue: usize,
        waits: Vec<Target>,
        signals: Vec<(usize, u64)>,
        fails: bool,
    },
    /// The driver of a queue completes a submission.
    Complete(usize),
    Signal(usize, u64),
    Fail(usize),
    DropHandle(usize),
    Claim {
        value: u64,
        own_wait: u64,
    },
    /// The application declares its oldest undeclared claim as submitted.
    Submitted,
    /// The newest undeclared claim is dropped.
    DropClaim,
    /// The application's oldest submission of its own executes.
    Executed,
    Lock(usize),
    Unlock(usize),
    Record(usize, usize),
    Wait {
        targets: Vec<Target>,
        any: bool,
        nanoseconds: u64,
    },
    /// A wait for a value to be pending.
    WaitPending(Target, u64),
    /// A future is made and polled once.
    Await {
        targets: Vec<Target>,
        kind: Kind,
    },
    /// All futures are polled again, each with a new waker.
    Poll,
    DropFuture,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    All,
    Any,
    Pending,
}

fn value() -> impl Strategy<Value = u64> {
    1..=VALUES
}

fn line() -> impl Strategy<Value = usize> {
    0..LINES.len()
}

fn queue() -> impl Strategy<Value = usize> {
    0..QUEUES.len()
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        1 => Just(Target::Empty),
        12 => (line(), value()).prop_map(|(line, value)| Target::Line(line, value)),
        2 => (0..FENCES).prop_map(Target::Fence),
        1 => queue().prop_map(Target::Position),
    ]
}

fn targets(most: usize) -> impl Strategy<Value = Vec<Target>> {
    prop::collection::vec(target(), 0..=most)
}

fn operation() -> impl Strategy<Value = Operation> {
    let signals = || prop::collection::vec((line(), value()), 0..=2);
    let kind = || prop_oneof![Just(Kind::All), Just(Kind::Any), Just(Kind::Pending)];
    prop_oneof![
        12 => (queue(), targets(2), signals(), prop::bool::weighted(0.1)).prop_map(
            |(queue, waits, signals, fails)| Operation::Submit { queue, waits, signals, fails }
        ),
        8 => queue().prop_map(Operation::Complete),
        6 => (line(), value()).prop_map(|(line, value)| Operation::Signal(line, value)),
        1 => line().prop_map(Operation::Fail),
        1 => line().prop_map(Operation::DropHandle),
        2 => (value(), 0..=VALUES).prop_map(
            |(value, own_wait)| Operation::Claim { value, own_wait }
        ),
        2 => Just(Operation::Submitted),
        1 => Just(Operation::DropClaim),
        2 => Just(Operation::Executed),
        1 => queue().prop_map(Operation::Lock),
        2 => queue().prop_map(Operation::Unlock),
        1 => (queue(), 0..FENCES).prop_map(|(queue, fence)| Operation::Record(queue, fence)),
        2 => (targets(3), any::<bool>(), 0..=1_u64).prop_map(
            |(targets, any, nanoseconds)| Operation::Wait { targets, any, nanoseconds }
        ),
        1 => (target(), 0..=1_u64).prop_map(
            |(target, nanoseconds)| Operation::WaitPending(target, nanoseconds)
        ),
        2 => (targets(3), kind()).prop_map(|(targets, kind)| Operation::Await { targets, kind }),
        1 => Just(Operation::Poll),
        1 => Just(Operation::DropFuture),
    ]
}

/// A waker that counts its calls.
#[derive(Default)]
struct Calls(AtomicU64);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

enum Waiting {
    All(WaitAll),
    Any(WaitAny),
}

impl Waiting {
    fn poll(&mut self, calls: &Arc<Calls>) -> Poll<Result<usize>> {
        let waker = Waker::from(calls.clone());
        let mut context = Context::from_waker(&waker);
        match self {
            Self::All(future) => Pin::new(future).poll(&mut context).map_ok(|()| 0),
            Self::Any(future) => Pin::new(future).poll(&mut context),
        }
    }
}

/// A future that was pending at its last poll.
struct Awaited {
    waiting: Waiting,
    places: Vec<Place>,
    kind: Kind,
    calls: Arc<Calls>,
}

/// A claim that the application has.
struct Raw {
    value: u64,
    claim: Claim,
    above: u64,
    submitted: bool,
}

/// The engine under test, and the world of the model that it must equal.
struct Bench {
    world: World,
    lines: Vec<Option<Timeline>>,
    clocked: usize,
    /// The points of all values of each line. They outlive its handle.
    points: Vec<Vec<KeptPoint>>,
    counter: Arc<AtomicU64>,
    queues: Vec<Arc<SubmissionQueue<Driver>>>,
    /// The positions of all submissions, by queue.
    positions: Vec<Vec<KeptPoint>>,
    ran: Vec<Arc<Mutex<Vec<u64>>>>,
    fences: Vec<(Fence, Place)>,
    raw: Vec<Raw>,
    futures: Vec<Awaited>,
    /// Wakers of dropped futures, each with the number of its calls until the drop.
    silent: Vec<(Arc<Calls>, u64)>,
    planted: usize,
}

impl Bench {
    /// With `clocked` 0 the timelines with even numbers have timestamps, and with 1 the others.
    fn new(clocked: usize) -> Self {
        let hosts = [driver::device(), driver::device()];
        let devices: [DeviceId; 2] = std::array::from_fn(|index| hosts[index].id());
        let mut world = World::new();
        let mut counter = Arc::default();
        let mut lines = Vec::new();
        for (index, homes) in LINES.iter().enumerate() {
            let label = format!("line {index}");
            let difference = if index == NARROW {
                DIFFERENCE
            } else {
                u64::MAX
            };
            world.add_line(homes, difference);
            let homes: Vec<DeviceId> = homes.iter().map(|&home| devices[home]).collect();
            let line = if index == RAW {
                let (line, count) = driver::raw_line(homes[0], &label, FIRST[index]);
                counter = count;
                line
            } else {
                driver::bare_line(&homes, &label, FIRST[index], difference)
            };
            let clocks = hosts.iter().map(|host| (host.id(), host.clock().unwrap()));
            lines.push(if index % 2 == clocked {
                line.clocked(clocks).unwrap()
            } else {
                line
            });
        }
        let points = lines
            .iter()
            .zip(FIRST)
            .map(|(line, first)| (1..=VALUES).map(|v| line.at(first + v).keep()).collect());
        let queues = QUEUES.iter().enumerate().map(|(index, &device)| {
            world.add_queue(device, CAPACITY);
            driver::queue(&hosts[device], &format!("queue {index}"))
        });
        let queues: Vec<_> = queues.collect();
        let fences = hosts.iter().map(|host| (host.fence("fence"), Place::Empty));
        Self {
            clocked,
            points: points.collect(),
            lines: lines.into_iter().map(Some).collect(),
            counter,
            positions: vec![Vec::new(); QUEUES.len()],
            ran: (0..QUEUES.len()).map(|_| Arc::default()).collect(),
            queues,
            fences: fences.collect(),
            world,
            raw: Vec::new(),
            futures: Vec::new(),
            silent: Vec::new(),
            planted: 0,
        }
    }
}

/// The root cause of an error.
fn cause_of(error: &Error) -> Cause {
    match error {
        Error::Cancelled { timeline, .. } => Cause::Cancelled(
            timeline
                .label()
                .strip_prefix("line ")
                .unwrap()
                .parse()
                .unwrap(),
        ),
        Error::Work(source) => match source.to_string().strip_prefix("planted ") {
            Some(number) => Cause::Planted(number.parse().unwrap()),
            None => Cause::Work,
        },
        other => panic!("no cause of this test: {other}"),
    }
}

fn refusal_of(error: &Error) -> Refusal {
    match error {
        Error::Failed { cause, .. } => Refusal::Failed(cause_of(cause)),
        Error::Cancelled { .. } => Refusal::Cancelled,
        Error::TimedOut { .. } => Refusal::TimedOut,
        Error::SignalNotAboveReached { .. } => Refusal::NotAboveReached,
        Error::SignalOverlapsClaim { .. } => Refusal::Overlap,
        Error::ValueOutOfRange { .. } => Refusal::OutOfRange,
        Error::SignalBehindOwnWait { .. } => Refusal::BehindOwnWait,
        Error::DuplicateSignal { .. } => Refusal::Duplicate,
        Error::Circular { .. } => Refusal::Circular,
        Error::Work(_) => Refusal::Work,
        Error::NotPending { .. } => Refusal::NotPending,
        Error::NothingToWaitFor => Refusal::NothingToWaitFor,
        Error::WrongDevice { .. } => Refusal::WrongDevice,
        other => panic!("no refusal of this test: {other}"),
    }
}

fn standing_of(point: Point<'_>) -> Standing {
    match point.is_reached() {
        Ok(true) => Standing::Reached,
        Ok(false) if point.is_pending().unwrap() => Standing::Pending,
        Ok(false) => Standing::Open,
        Err(Error::Failed { cause, .. }) => Standing::Failed(cause_of(&cause)),
        Err(Error::Cancelled { .. }) => Standing::Cancelled,
        Err(other) => panic!("{other}"),
    }
}

/// Compares the result of a call with that of the model.
///
/// If several reasons for a refusal apply, the call may return any of them.
fn agree<T: PartialEq + std::fmt::Debug>(
    got: Result<T>,
    expected: &Result<T, BTreeSet<Refusal>>,
) -> TestCaseResult {
    let got = got.map_err(|error| refusal_of(&error));
    let same = match (&got, expected) {
        (Ok(got), Ok(expected)) => got == expected,
        (Err(got), Err(expected)) => expected.contains(got),
        _ => false,
    };
    prop_assert!(same, "returned {got:?}, and the model {expected:?}");
    Ok(())
}

fn one(refusal: Refusal) -> BTreeSet<Refusal> {
    BTreeSet::from([refusal])
}

impl Bench {
    fn place(&self, target: Target) -> Place {
        match target {
            Target::Empty => Place::Empty,
            Target::Line(line, value) => Place::Line(line, value),
            Target::Fence(fence) => self.fences[fence].1,
            Target::Position(queue) => Place::Position(queue, self.world.last(queue)),
        }
    }

    fn kept(&self, target: Target) -> KeptPoint {
        match target {
            Target::Empty => KeptPoint::default(),
            Target::Line(line, value) => self.points[line][value as usize - 1].clone(),
            Target::Fence(fence) => self.fences[fence].0.point().unwrap(),
            Target::Position(queue) => self.queues[queue].position().keep(),
        }
    }

    fn places(&self, targets: &[Target]) -> Vec<Place> {
        targets.iter().map(|&target| self.place(target)).collect()
    }

    fn all_kept(&self, targets: &[Target]) -> Vec<KeptPoint> {
        targets.iter().map(|&target| self.kept(target)).collect()
    }

    fn perform(&mut self, operation: &Operation) -> TestCaseResult {
        match operation {
            Operation::Submit {
                queue,
                waits,
                signals,
                fails,
            } => return self.submit(*queue, waits, signals, *fails),
            Operation::Complete(queue) => {
                let completed = self.queues[*queue].driver().complete();
                prop_assert_eq!(completed, self.world.complete(*queue));
            }
            Operation::Signal(line, value) => {
                if let Some(handle) = &self.lines[*line] {
                    let expected = self.world.signal(*line, *value);
                    agree(handle.signal(FIRST[*line] + *value), &expected)?;
                }
            }
            Operation::Fail(line) => {
                if let Some(handle) = &self.lines[*line] {
                    self.planted += 1;
                    handle.fail(failure(&format!("planted {}", self.planted)));
                    self.world.fail(*line, Cause::Planted(self.planted));
                }
            }
            Operation::DropHandle(line) => {
                if self.lines[*line].take().is_some() {
                    self.world.close(*line);
                }
            }
            Operation::Claim { .. }
            | Operation::Submitted
            | Operation::DropClaim
            | Operation::Executed => return self.raw(operation),
            Operation::Lock(queue) => {
                self.queues[*queue].driver().lock();
                self.world.lock(*queue, true);
            }
            Operation::Unlock(queue) => {
                self.world.lock(*queue, false);
                self.queues[*queue].driver().unlock();
            }
            Operation::Record(queue, fence) => {
                let recorded = self.queues[*queue].record(&self.fences[*fence].0);
                if QUEUES[*queue] == *fence {
                    let expected = self.world.submit(*queue, &[], &[], Work::Nothing);
                    agree(recorded, &expected.map(|_| ()))?;
                    self.fences[*fence].1 = Place::Position(*queue, self.world.last(*queue));
                } else {
                    agree(recorded, &Err(one(Refusal::WrongDevice)))?;
                }
            }
            Operation::Wait {
                targets,
                any,
                nanoseconds,
            } => {
                let expected = self.world.ask(&self.places(targets), *any, false);
                let kept = self.all_kept(targets);
                let points: Vec<Point<'_>> = kept.iter().map(KeptPoint::point).collect();
                let timeout = Duration::from_nanos(*nanoseconds);
                let got = if *any {
                    wait_any(&points, timeout)
                } else {
                    wait_all(&points, timeout).map(|()| 0)
                };
                agree(got, &expected.map_err(one))?;
            }
            Operation::WaitPending(target, nanoseconds) => {
                let expected = self.world.ask(&[self.place(*target)], false, true);
                let timeout = Duration::from_nanos(*nanoseconds);
                let got = self.kept(*target).point().wait_pending(timeout);
                agree(got, &expected.map(|_| ()).map_err(one))?;
            }
            Operation::Await { targets, kind } => return self.wait_for(targets, *kind),
            Operation::Poll => {
                for mut future in std::mem::take(&mut self.futures) {
                    let before = std::mem::take(&mut future.calls);
                    let count = before.0.load(Ordering::SeqCst);
                    self.silent.push((before, count));
                    self.poll(future)?;
                }
            }
            Operation::DropFuture => {
                if let Some(Awaited { waiting, calls, .. }) = self.futures.pop() {
                    drop(waiting);
                    let count = calls.0.load(Ordering::SeqCst);
                    self.silent.push((calls, count));
                }
            }
        }
        Ok(())
    }

    fn submit(
        &mut self,
        queue: usize,
        waits: &[Target],
        signals: &[(usize, u64)],
        fails: bool,
    ) -> TestCaseResult {
        let signals: Vec<_> = signals
            .iter()
            .copied()
            .filter(|&(line, _)| self.lines[line].is_some())
            .collect();
        let (places, kept) = (self.places(waits), self.all_kept(waits));
        let number = self.world.last(queue) + 1;
        let ran = self.ran[queue].clone();
        let does = if fails { Work::Fails } else { Work::Runs };
        let work = move |(): &mut ()| {
            ran.lock().unwrap().push(number);
            if fails {
                Err(failure("refused"))
            } else {
                Ok(())
            }
        };
        let waits: Vec<Point<'_>> = kept.iter().map(KeptPoint::point).collect();
        let made: Vec<Signal<'_>> = signals
            .iter()
            .filter_map(|&(line, value)| {
                Some(self.lines[line].as_ref()?.signal_at(FIRST[line] + value))
            })
            .collect();
        let got = self.queues[queue].submit(&waits, work, &made);
        let got = got.map(|submitted| submitted.end().value());
        let expected = self.world.submit(queue, &places, &signals, does);
        agree(got, &expected)
    }

    /// Performs an operation on the application's own submissions.
    fn raw(&mut self, operation: &Operation) -> TestCaseResult {
        match operation {
            Operation::Claim { value, own_wait } => {
                if let Some(handle) = &self.lines[RAW] {
                    let claimed = handle.claim_after(FIRST[RAW] + *value, FIRST[RAW] + *own_wait);
                    let expected = self.world.claim(RAW, *value, *own_wait);
                    let above = claimed.as_ref().map(|c| c.predecessor() - FIRST[RAW]);
                    agree(above.map_err(Clone::clone), &expected)?;
                    self.raw.extend(claimed.ok().map(|claim| Raw {
                        value: *value,
                        above: claim.predecessor() - FIRST[RAW],
                        claim,
                        submitted: false,
                    }));
                }
            }
            Operation::Submitted => {
                if let Some(raw) = self.raw.iter_mut().find(|raw| !raw.submitted) {
                    let expected = self.world.submitted(RAW, raw.value, raw.above);
                    raw.submitted = expected.is_ok();
                    agree(raw.claim.submitted(), &expected.map_err(one))?;
                }
            }
            Operation::DropClaim => {
                if let Some(index) = self.raw.iter().rposition(|raw| !raw.submitted) {
                    let raw = self.raw.remove(index);
                    self.world.withdraw(RAW, raw.value);
                    drop(raw);
                }
            }
            _ => {
                if let Some(index) = self.raw.iter().position(|raw| raw.submitted) {
                    let (value, above) = (self.raw[index].value, self.raw[index].above);
                    if self.world.executed(RAW, value, above) {
                        self.raw.remove(index);
                        self.counter.store(FIRST[RAW] + value, Ordering::SeqCst);
                        // The engine learns of the value in this query.
                        let point = &self.points[RAW][value as usize - 1];
                        prop_assert!(point.point().is_reached().unwrap());
                    }
                }
            }
        }
        Ok(())
    }

    fn wait_for(&mut self, targets: &[Target], kind: Kind) -> TestCaseResult {
        let mut targets = targets.to_vec();
        if kind == Kind::Pending {
            targets.resize(1, Target::Empty);
        }
        let kept = self.all_kept(&targets);
        let points: Vec<Point<'_>> = kept.iter().map(KeptPoint::point).collect();
        let waiting = match kind {
            Kind::All => Waiting::All(future::all(&points)),
            Kind::Any => Waiting::Any(future::any(&points)),
            Kind::Pending => Waiting::All(points[0].pending()),
        };
        self.poll(Awaited {
            waiting,
            places: self.places(&targets),
            kind,
            calls: Arc::default(),
        })
    }

    /// Polls a future. Keeps it if it is pending.
    fn poll(&mut self, mut future: Awaited) -> TestCaseResult {
        let (any, pending) = (future.kind == Kind::Any, future.kind == Kind::Pending);
        let expected = self.world.ask(&future.places, any, pending);
        match future.waiting.poll(&future.calls) {
            Poll::Ready(got) => agree(got, &expected.map_err(one)),
            Poll::Pending => {
                prop_assert_eq!(expected, Err(Refusal::TimedOut), "{:?}", future.places);
                self.futures.push(future);
                Ok(())
            }
        }
    }

    fn view(&self) -> View {
        let standings = |points: &Vec<KeptPoint>| {
            let points = points.iter().map(KeptPoint::point);
            points.map(standing_of).collect()
        };
        let queues = self.queues.iter().zip(&self.positions).zip(&self.ran);
        let queues = queues.map(|((queue, positions), ran)| QueueView {
            held: queue.held().count,
            with_driver: queue.driver().with_driver(),
            positions: standings(positions),
            ran: ran.lock().unwrap().clone(),
        });
        View {
            lines: self.points.iter().map(standings).collect(),
            queues: queues.collect(),
        }
    }

    /// Checks that exactly the reached values of timelines with timestamps have a time.
    ///
    /// A value that the application may have signalled itself may have none.
    fn compare_times(&self) -> TestCaseResult {
        for (index, points) in self.points.iter().enumerate() {
            for point in points.iter().map(KeptPoint::point) {
                let (reached, time) = (point.is_reached(), point.time());
                let fits = match (&reached, &time) {
                    (_, Err(Error::TimesNotEnabled { .. })) => index % 2 != self.clocked,
                    _ if index % 2 != self.clocked => false,
                    (Ok(true), Ok(_)) | (Ok(false), Err(Error::NotReached { .. })) => true,
                    (Ok(true), Err(Error::NoTime { .. })) => index == RAW,
                    (Err(Error::Failed { .. }), Err(Error::Failed { .. })) => true,
                    (Err(Error::Cancelled { .. }), Err(Error::Cancelled { .. })) => true,
                    _ => false,
                };
                prop_assert!(fits, "{point:?}: reached {reached:?}, at {time:?}");
            }
        }
        Ok(())
    }

    /// Compares the visible state of the engine with that of the model.
    fn compare(&mut self) -> TestCaseResult {
        for (queue, positions) in self.queues.iter().zip(&mut self.positions) {
            let position = queue.position();
            if position.value() > positions.len() as u64 {
                positions.push(position.keep());
            }
        }
        let view = self.view();
        let world = std::mem::replace(&mut self.world, World::new());
        let first = world.clone().settled().next();
        let Some(found) = world.settled().find(|world| world.view(VALUES) == view) else {
            let expected = first.unwrap().view(VALUES);
            prop_assert!(
                false,
                "the engine shows\n{view:?}and the model\n{expected:?}"
            );
            return Ok(());
        };
        self.world = found;
        self.compare_times()?;
        for future in std::mem::take(&mut self.futures) {
            let (any, pending) = (future.kind == Kind::Any, future.kind == Kind::Pending);
            if self.world.ask(&future.places, any, pending) == Err(Refusal::TimedOut) {
                self.futures.push(future);
            } else {
                let calls = future.calls.0.load(Ordering::SeqCst);
                prop_assert!(calls > 0, "a future of {:?} was not woken", future.places);
                self.poll(future)?;
            }
        }
        for (calls, count) in &self.silent {
            prop_assert_eq!(
                calls.0.load(Ordering::SeqCst),
                *count,
                "a stale waker was called"
            );
        }
        Ok(())
    }

    /// Unlocks all drivers and completes all submissions that can be completed.
    fn drain(&mut self) -> TestCaseResult {
        for queue in 0..QUEUES.len() {
            self.perform(&Operation::Unlock(queue))?;
            self.compare()?;
        }
        let mut busy = true;
        while busy {
            busy = false;
            for queue in 0..QUEUES.len() {
                let completed = self.queues[queue].driver().complete();
                prop_assert_eq!(completed, self.world.complete(queue));
                self.compare()?;
                busy |= completed;
            }
        }
        Ok(())
    }
}

fn run(operations: &[Operation], clocked: usize) -> TestCaseResult {
    let mut bench = Bench::new(clocked);
    for (index, operation) in operations.iter().enumerate() {
        bench
            .perform(operation)
            .and_then(|()| bench.compare())
            .map_err(|error| {
                TestCaseError::fail(format!("operation {index}, {operation:?}: {error}"))
            })?;
    }
    bench.drain()
}

/// The number of sequences is 500, about ten seconds, unless `PROPTEST_CASES` is set.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => usual.cases,
        None => 500,
    };
    let regressions = FileFailurePersistence::Direct("tests/engine/model/regressions.txt");
    ProptestConfig {
        cases,
        max_shrink_iters: 50_000,
        failure_persistence: Some(Box::new(regressions)),
        ..usual
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_engine_does_what_the_model_does(
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        run(&operations, 0)?;
        run(&operations, 1)?;
    }
}
