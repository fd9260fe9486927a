//! A subject with a bug in its hooks, where a user would see it, or in its backend.

use std::any::Any;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use syncline::clock::{Axis, Clock, Elapsed, Estimate, Time};
use syncline::{
    Claim, Error, Fence, KeptPoint, Point, QueueKind, Result, Signal, Stopwatch, Timeline,
    WaitMode,
    handle::Rejected,
    wait::{Blockers, Notification},
};
use syncline::{Held, Submitted};
use syncline_conformance::{Subject, Waiting};
use syncline_core::backend::{ByEngine, Device as _, Port, Queue as _};

use super::backend::{PlantedDevice, PlantedQueue};
use super::bugs::Bug;
use super::late::{A_WHILE, Leaky, Sleeper, follow, sleep_through};
use super::lock;
use super::memory::{Memory, SIGNALS, timed_out};
use crate::clockwork::suite::Clockwork;
use crate::clockwork::{Buffer, Recorder};

/// The subject of every mutant, and of the one without a bug.
#[derive(Clone)]
pub(crate) struct Mutant {
    device: PlantedDevice,
    bug: Bug,
    memory: Arc<Memory>,
}

impl Mutant {
    pub(crate) fn new(device: PlantedDevice) -> Self {
        Self {
            bug: device.bug,
            device,
            memory: Arc::default(),
        }
    }

    /// Submits nothing, in place of a submission that should have been refused.
    fn pretend<'q>(queue: &'q PlantedQueue) -> Result<Submitted<'q>> {
        queue.submit(&[], |_| Ok(()), &[])
    }

    /// Changes what a time on a device's clock converts to.
    fn converted(&self, clock: &Clock, told: Estimate) -> Estimate {
        let right = told.error;
        let error = match self.bug {
            Bug::ErrorUnderstated => right / 2,
            Bug::ErrorForgetsAge => {
                let mut first = lock(&self.memory.errors);
                *first.entry(clock.object().id()).or_insert(right)
            }
            Bug::ErrorOverstated => u64::MAX / 8,
            _ => right,
        };
        let nanoseconds = match self.bug {
            Bug::ShiftedMap => told.nanoseconds + 20_000_000,
            _ => told.nanoseconds,
        };
        Estimate { nanoseconds, error }
    }

    /// Changes a stopwatch's answer to a queue.
    fn taken(&self, by: Result<()>) -> Result<()> {
        match (self.bug, by) {
            (Bug::StopwatchTakesAnyQueue, Err(Error::WrongDevice { .. })) => Ok(()),
            (_, taken) => taken,
        }
    }

    /// Changes the time of a stopwatch.
    fn passed(&self, told: Result<Elapsed>) -> Result<Elapsed> {
        Ok(match (self.bug, told) {
            (Bug::StopwatchTellsTheTimeBefore, Err(error @ Error::NotRecorded { .. })) => {
                lock(&self.memory.before).ok_or(error)?
            }
            (Bug::StopwatchHasNoSign, Ok(told)) => Elapsed {
                nanoseconds: told.nanoseconds.abs(),
                ..told
            },
            (Bug::StopwatchForgetsTheAxis, Ok(told)) => Elapsed {
                axis: Axis::Same,
                ..told
            },
            (_, told) => told?,
        })
    }
}

/// The counter of others, as an engine with a bug uses it.
struct OfOthers {
    port: Box<dyn Port>,
    bug: Bug,
    last: AtomicU64,
}

impl Port for OfOthers {
    fn poll(&self) -> Result<Option<u64>> {
        let found = self.port.poll()?;
        if self.bug != Bug::CounterIsNotChecked {
            return Ok(found);
        }
        // Others that signal past the next value are not seen, as without a look at the counter.
        let found = found.unwrap_or(0);
        let last = self.last.load(Ordering::SeqCst);
        if last > 0 && found == last + 2 {
            return Ok(Some(last));
        }
        self.last.store(found, Ordering::SeqCst);
        Ok(Some(found))
    }

    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
        match self.bug {
            Bug::NoSignalInPlace => Ok(()),
            _ => {
                self.last.store(value, Ordering::SeqCst);
                self.port.signal(value, by)
            }
        }
    }
}

fn unrecorded(fence: &Fence) -> bool {
    fence.point().is_ok_and(|kept| kept.point().value() == 0)
}

impl Subject for Mutant {
    type Device = PlantedDevice;
    type Buffer = Buffer;
    type Latch = Buffer;

    fn device(&self) -> &PlantedDevice {
        &self.device
    }

    fn buffer(&self, words: usize) -> Result<Buffer> {
        Ok(self.device.inner.buffer(words))
    }

    fn read(buffer: &Buffer) -> Vec<u32> {
        Clockwork::read(buffer)
    }

    fn fill(recorder: &mut Recorder<'_>, buffer: &Buffer, value: u32) -> Result<()> {
        Clockwork::fill(recorder, buffer, value)
    }

    fn copy(recorder: &mut Recorder<'_>, from: &Buffer, to: &Buffer) -> Result<()> {
        Clockwork::copy(recorder, from, to)
    }

    fn busy(&self, recorder: &mut Recorder<'_>, time: Duration) -> Result<()> {
        recorder.busy(time);
        Ok(())
    }

    fn keep(recorder: &mut Recorder<'_>, object: Arc<dyn Any + Send + Sync>) {
        Clockwork::keep(recorder, object);
    }

    fn latch(&self) -> Result<Buffer> {
        self.buffer(1)
    }

    fn block(recorder: &mut Recorder<'_>, latch: &Buffer) -> Result<()> {
        Clockwork::block(recorder, latch)
    }

    fn open(latch: &Buffer) -> Result<()> {
        Clockwork::open(latch)
    }

    fn timeline_with(&self, _other: &Self, label: &str, initial: u64) -> Result<Timeline> {
        let line = self.device.timeline_from(label, initial)?;
        if matches!(
            self.bug,
            Bug::LastHandleCancelsNothing | Bug::FailureSpreads | Bug::TimeoutFailsTheTimeline
        ) {
            lock(&self.memory.timelines).push(line.clone());
        }
        Ok(line)
    }

    fn queue(&self, kind: QueueKind, label: &str) -> Result<PlantedQueue> {
        let queue = self.device.queue(kind, label)?;
        Ok(match self.bug {
            Bug::OneQueueForAll => self.memory.queue.get_or_init(|| queue).clone(),
            _ => queue,
        })
    }

    fn fence(&self, label: &str, timed: bool) -> Fence {
        if timed && self.bug != Bug::NoFenceIsTimed {
            self.device.timed_fence(label)
        } else {
            self.device.fence(label)
        }
    }

    fn clocked_fence(&self, label: &str) -> Result<Fence> {
        match self.bug {
            Bug::NoFenceIsClocked => Ok(self.device.timed_fence(label)),
            _ => self.device.clocked_fence(label),
        }
    }

    fn clocked_timeline(&self, label: &str, initial: u64) -> Result<Timeline> {
        match self.bug {
            Bug::NoTimelineIsClocked => self.device.timeline_from(label, initial),
            _ => self.device.clocked_timeline_from(label, initial),
        }
    }

    fn point_time(&self, point: Point<'_>) -> Result<Time> {
        let clock = || self.device.clock();
        let now = || {
            let clock = clock()?;
            let host = clock.host_clock().now();
            let nanoseconds = clock.to_device(host)?.nanoseconds;
            Ok(Time::new(clock, nanoseconds))
        };
        if self.bug == Bug::PointTimeBlocks {
            point.wait(A_WHILE)?;
        }
        let failed = || {
            let asked = format!("{point:?}");
            let causes = lock(&self.memory.causes);
            causes
                .iter()
                .find(|(id, _)| asked.contains(&format!("#{id} at ")))
                .map(|(_, cause)| cause.clone())
        };
        match (self.bug, point.time()) {
            (Bug::PointTimeNotReached, Err(Error::NotReached { .. }))
            | (Bug::PointTimeNotEnabled, Err(Error::TimesNotEnabled { .. }))
            | (Bug::PointTimeOfNobody, Err(Error::NoTime { .. }))
            | (Bug::ForgottenTimeIsInvented, Err(Error::TimeForgotten { .. })) => {
                Ok(Time::new(clock()?, 0))
            }
            (Bug::PointTimeIsOfTheQuestion, Ok(_)) => now(),
            (Bug::PointTimeIsTheLatest, Ok(told)) => {
                let mut latest = lock(&self.memory.latest);
                if latest
                    .as_ref()
                    .is_none_or(|latest| latest.nanoseconds() < told.nanoseconds())
                {
                    *latest = Some(told.clone());
                }
                Ok(latest.clone().unwrap_or(told))
            }
            (Bug::FailureTakesTimesAway, Ok(told)) => failed().map_or(Ok(told), Err),
            (_, told) => told,
        }
    }

    fn to_host(&self, clock: &Clock, device: i64) -> Result<Estimate> {
        Ok(self.converted(clock, clock.to_host(device)?))
    }

    fn time_to_host(&self, time: &Time) -> Result<Estimate> {
        Ok(self.converted(time.clock(), time.to_host()?))
    }

    fn to_device(&self, clock: &Clock, host: i64) -> Result<Estimate> {
        let told = clock.to_device(host)?;
        let nanoseconds = match self.bug {
            Bug::ShiftedBack => told.nanoseconds + 20_000_000,
            _ => told.nanoseconds,
        };
        Ok(Estimate {
            nanoseconds,
            ..told
        })
    }

    fn time(&self, fence: &Fence) -> Result<Time> {
        let none = || Ok(Time::new(self.device.clock()?, 0));
        match (self.bug, fence.time()) {
            (Bug::TimeNotReady, Err(Error::NotReady { .. }))
            | (Bug::TimeWithoutClock, Err(Error::TimingDisabled { .. })) => none(),
            (_, told) => told,
        }
    }

    fn since(&self, start: &Time, end: &Time) -> Result<Elapsed> {
        let told = end.since(start)?;
        let direct = end.nanoseconds() - start.nanoseconds();
        Ok(match self.bug {
            Bug::SinceHasNoSign => Elapsed {
                nanoseconds: told.nanoseconds.abs(),
                ..told
            },
            Bug::ClocksTakenForOne if told.axis == Axis::Host => Elapsed {
                nanoseconds: direct,
                error: 2 * end.clock().resolution(),
                axis: Axis::One,
            },
            Bug::SinceForgetsTheAxis => Elapsed {
                axis: Axis::Host,
                ..told
            },
            Bug::SinceWithoutError if told.axis == Axis::Host => Elapsed { error: 0, ..told },
            _ => told,
        })
    }

    fn start(&self, stopwatch: &Stopwatch, queue: &PlantedQueue) -> Result<()> {
        if self.bug == Bug::StopwatchTellsTheTimeBefore {
            *lock(&self.memory.before) = stopwatch.elapsed().ok();
        }
        self.taken(stopwatch.start(queue))
    }

    fn stop(&self, stopwatch: &Stopwatch, queue: &PlantedQueue) -> Result<()> {
        self.taken(stopwatch.stop(queue))
    }

    fn time_submission<'q, W>(
        &self,
        stopwatch: &Stopwatch,
        queue: &'q PlantedQueue,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()> + Send + 'static,
    {
        let first = match self.bug {
            Bug::StopwatchCountsTheWaits => &[],
            Bug::StopwatchLeavesOutTheWork | Bug::TimedWorkRunsBehindFailures => waits,
            _ => return stopwatch.time(queue, waits, work, signals),
        };
        queue.submit(first, |_| Ok(()), &[])?;
        stopwatch.start(queue)?;
        if self.bug == Bug::StopwatchLeavesOutTheWork {
            stopwatch.stop(queue)?;
            return queue.submit(waits, work, signals);
        }
        let again = match self.bug {
            Bug::TimedWorkRunsBehindFailures => &[],
            _ => waits,
        };
        let submitted = queue.submit(again, work, signals)?;
        stopwatch.stop(queue)?;
        Ok(submitted)
    }

    fn stopwatch_elapsed(&self, stopwatch: &Stopwatch) -> Result<Elapsed> {
        self.passed(stopwatch.elapsed())
    }

    fn wait_stopwatch(&self, stopwatch: &Stopwatch, timeout: Duration) -> Result<Elapsed> {
        self.passed(stopwatch.wait(timeout))
    }

    fn at<'t>(&self, of: &'t Timeline, value: u64) -> Point<'t> {
        let now = of.frozen_value();
        let reached_if = |reached: bool| of.at(if reached { value.min(now) } else { value });
        match self.bug {
            Bug::PointsAskThePort => {
                let _ = of.value();
                of.at(value)
            }
            Bug::PointsTruncated => of.at(value & u64::from(u32::MAX)),
            Bug::CyclicCompare32 => {
                reached_if((now as u32).wrapping_sub(value as u32).cast_signed() >= 0)
            }
            Bug::CyclicCompare64 => reached_if(now.wrapping_sub(value).cast_signed() >= 0),
            Bug::ReachedOneEarly => of.at(value.saturating_sub(1)),
            Bug::ReachedOneLate => of.at(value + 1),
            Bug::FailureTakesReachedBack if of.value().is_err() => of.at(value.max(now + 1)),
            _ => of.at(value),
        }
    }

    fn signal_at<'t>(&self, of: &'t Timeline, value: u64) -> Signal<'t> {
        if self.bug == Bug::RejectedClaimsStay {
            SIGNALS.with_borrow_mut(|signals| signals.push((of.clone(), value)));
        }
        of.signal_at(value)
    }

    fn value(&self, of: &Timeline) -> Result<u64> {
        let value = of.value();
        let third = || self.memory.reads.fetch_add(1, Ordering::Relaxed) % 3 == 2;
        match self.bug {
            Bug::ValueGoesBack if third() => value.map(|value| value.saturating_sub(1)),
            Bug::ValueIsInvented if third() => value.map(|value| value + 1),
            Bug::FailedValueIsFine => value.or_else(|_| Ok(of.frozen_value())),
            _ => value,
        }
    }

    fn frozen_value(&self, of: &Timeline) -> u64 {
        match self.bug {
            Bug::FrozenValueForgotten if of.value().is_err() => 0,
            _ => of.frozen_value(),
        }
    }

    fn signal(&self, of: &Timeline, value: u64) -> Result<()> {
        match (self.bug, of.signal(value)) {
            (Bug::LateSignalAccepted, Err(Error::SignalNotAboveReached { .. }))
            | (Bug::HostSignalIgnoresClaims, Err(Error::SignalOverlapsClaim { .. })) => Ok(()),
            (_, signalled) => signalled,
        }
    }

    fn fail(&self, of: &Timeline, cause: Error) {
        let memory = &self.memory;
        lock(&memory.causes).insert(of.object().id(), cause.clone());
        match self.bug {
            Bug::FailIsIgnored => {}
            Bug::FailureSpreads => {
                let all = std::mem::take(&mut *lock(&memory.timelines));
                all.iter().for_each(|line| line.fail(cause.clone()));
            }
            _ => of.fail(cause),
        }
    }

    fn claim(&self, of: &Timeline, value: u64, own_wait: u64) -> Result<Claim> {
        match self.bug {
            Bug::ClaimIgnoresOwnWait => of.claim(value),
            _ => of.claim_after(value, own_wait),
        }
    }

    fn counter_of_others(&self, port: Box<dyn Port>) -> Box<dyn Port> {
        match self.bug {
            Bug::CounterIsNotChecked | Bug::NoSignalInPlace => Box::new(OfOthers {
                port,
                bug: self.bug,
                last: AtomicU64::new(0),
            }),
            _ => port,
        }
    }

    fn signalled_by_others(&self, of: &Timeline, value: u64) -> Result<()> {
        match self.bug {
            Bug::PromiseIsForgotten => Ok(()),
            Bug::SecondPromiseRefused if of.at(value).is_pending()? => Err(Error::NothingToWaitFor),
            Bug::PromiseIgnoresClaims => match of.signalled_by_others(value) {
                Err(Error::SignalOverlapsClaim { .. }) => Ok(()),
                promised => promised,
            },
            _ => of.signalled_by_others(value),
        }
    }

    fn is_reached(&self, point: Point<'_>) -> Result<bool> {
        match self.bug {
            Bug::ReachedNeverTrue => point.is_reached().map(|_| false),
            _ => point.is_reached(),
        }
    }

    fn require_pending(&self, point: Point<'_>) -> Result<()> {
        match self.bug {
            Bug::PendingIsNeverRequired => Ok(()),
            _ => point.require_pending(),
        }
    }

    fn notify(
        &self,
        point: Point<'_>,
        eventfd: OwnedFd,
    ) -> Result<Notification, Rejected<OwnedFd>> {
        match self.bug {
            Bug::ToldWhenPending => point.notify_pending(eventfd),
            _ => point.notify(eventfd),
        }
    }

    fn is_pending(&self, point: Point<'_>) -> Result<bool> {
        match self.bug {
            Bug::ClaimedIsPending => Ok(true),
            Bug::PendingIsReached => point.is_reached(),
            _ => point.is_pending(),
        }
    }

    fn wait(&self, point: Point<'_>, mode: WaitMode, timeout: Duration) -> Result<()> {
        let honest = |timeout| point.wait_with(mode, timeout);
        let ended = match self.bug {
            Bug::TimeoutEarly => honest(timeout / 2),
            Bug::TimeoutInMilliseconds => honest(Duration::from_millis(timeout.as_millis() as u64)),
            Bug::WakeupLost => sleep_through(point, timeout),
            Bug::OneOfManyWoken => {
                let others = self.memory.waiting.fetch_add(1, Ordering::SeqCst);
                let ended = if others == 0 {
                    honest(timeout)
                } else {
                    sleep_through(point, timeout)
                };
                self.memory.waiting.fetch_sub(1, Ordering::SeqCst);
                ended
            }
            Bug::TimeoutStartsAgain => {
                let mut before = None;
                loop {
                    match honest(timeout) {
                        Err(Error::TimedOut { reached, .. }) if before != Some(reached) => {
                            before = Some(reached);
                        }
                        ended => break ended,
                    }
                }
            }
            Bug::ZeroBlocks => honest(timeout.max(Duration::from_millis(20))),
            Bug::SpinSleeps => point.wait_with(WaitMode::Block, timeout),
            Bug::BlockSpins => point.wait_with(WaitMode::Spin, timeout),
            Bug::SpinPollsOnce if mode == WaitMode::Spin => honest(Duration::ZERO),
            _ => honest(timeout),
        };
        if let Err(Error::TimedOut { object, .. }) = &ended {
            match self.bug {
                Bug::TimeoutIsSuccess => return Ok(()),
                Bug::TimeoutFailsTheTimeline => {
                    let all = lock(&self.memory.timelines);
                    let found = all.iter().find(|line| line.object().id() == object.id());
                    found.inspect(|line| line.fail(Error::NothingToWaitFor));
                }
                _ => {}
            }
        }
        self.memory.told(self.bug, ended, timeout)
    }

    fn wait_pending(&self, point: Point<'_>, timeout: Duration) -> Result<()> {
        match self.bug {
            Bug::ClaimedIsPending => Ok(()),
            Bug::PendingIsReached => point.wait(timeout),
            _ => point.wait_pending(timeout),
        }
    }

    fn wait_all(&self, points: &[Point<'_>], timeout: Duration) -> Result<()> {
        match self.bug {
            Bug::AllIsAny => syncline::wait_any(points, timeout).map(|_| ()),
            Bug::AllIsTheFirst => syncline::wait_all(&points[..1], timeout),
            Bug::AllWaitsInTurn => points.iter().try_for_each(|point| point.wait(timeout)),
            Bug::AllSwallowsFailures => {
                let fine: Vec<_> = points
                    .iter()
                    .filter(|point| point.is_reached().is_ok())
                    .copied()
                    .collect();
                syncline::wait_all(&fine, timeout)
            }
            _ => syncline::wait_all(points, timeout),
        }
    }

    fn wait_any(&self, points: &[Point<'_>], timeout: Duration) -> Result<usize> {
        match self.bug {
            Bug::AnyIsAll => syncline::wait_all(points, timeout).map(|()| 0),
            Bug::AnyPrefersFailures => {
                points.iter().try_for_each(|p| p.is_reached().map(|_| ()))?;
                syncline::wait_any(points, timeout)
            }
            Bug::AnyNamesTheLast => {
                let first = syncline::wait_any(points, timeout)?;
                let reached = |point: &Point<'_>| point.is_reached().unwrap_or(false);
                Ok(points.iter().rposition(reached).unwrap_or(first))
            }
            _ => syncline::wait_any(points, timeout),
        }
    }

    fn await_all(&self, points: &[Point<'_>]) -> Waiting<()> {
        let honest: Waiting<()> = Box::pin(syncline::wait::future::all(points));
        match self.bug {
            Bug::FutureOfAllIsAny => {
                let any = syncline::wait::future::any(points);
                Box::pin(async move { any.await.map(|_| ()) })
            }
            Bug::FutureNeverWakes => Box::pin(Sleeper(honest)),
            Bug::FutureSwallowsFailures => Box::pin(async move { honest.await.or(Ok(())) }),
            Bug::CancelledWaiterStillCalled => Box::pin(Leaky::new(honest)),
            _ => honest,
        }
    }

    fn await_any(&self, points: &[Point<'_>]) -> Waiting<usize> {
        let honest: Waiting<usize> = Box::pin(syncline::wait::future::any(points));
        match self.bug {
            Bug::FutureOfAnyIsAll => {
                let all = syncline::wait::future::all(points);
                Box::pin(async move { all.await.map(|()| 0) })
            }
            Bug::FutureNeverWakes => Box::pin(Sleeper(honest)),
            _ => honest,
        }
    }

    fn await_pending(&self, point: Point<'_>) -> Waiting<()> {
        match self.bug {
            Bug::FuturePendingIsReached => Box::pin(syncline::wait::future::all(&[point])),
            _ => Box::pin(point.pending()),
        }
    }

    fn blockers(&self, point: Point<'_>) -> Blockers {
        match self.bug {
            Bug::NobodyBlocks => Blockers::default(),
            _ => point.blockers(),
        }
    }

    fn submit<'q, W>(
        &self,
        queue: &'q PlantedQueue,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()> + Send + 'static,
    {
        let made = SIGNALS.take();
        if self.bug == Bug::SubmissionsLeak {
            lock(&self.memory.leaked).push([1; 512]);
        }
        match self.bug {
            Bug::WorkErrorSwallowed => {
                let quiet = |recorder: &mut Recorder<'_>| work(recorder).or(Ok(()));
                queue.submit(waits, quiet, signals)
            }
            Bug::WorkPanicSwallowed => {
                let quiet = |recorder: &mut Recorder<'_>| {
                    catch_unwind(AssertUnwindSafe(|| work(recorder))).unwrap_or(Ok(()))
                };
                queue.submit(waits, quiet, signals)
            }
            Bug::FailureDoesNotTravel => {
                let fine: Vec<_> = waits
                    .iter()
                    .filter(|wait| wait.is_reached().is_ok())
                    .copied()
                    .collect();
                queue.submit(&fine, work, signals)
            }
            bug => match (bug, queue.submit(waits, work, signals)) {
                (Bug::CirclesAccepted, Err(Error::Circular { .. }))
                | (
                    Bug::LoserToldItWon,
                    Err(Error::SignalNotAboveReached { .. } | Error::SignalOverlapsClaim { .. }),
                ) => Self::pretend(queue),
                (Bug::RejectedClaimsStay, Err(error)) => {
                    for (line, value) in made {
                        // A claim that is not dropped is not withdrawn.
                        let _ = line.claim(value).map(std::mem::forget);
                    }
                    Err(error)
                }
                (_, submitted) => submitted,
            },
        }
    }

    fn record(&self, queue: &PlantedQueue, fence: &Fence) -> Result<()> {
        if self.bug == Bug::RecordedOnce && !lock(&self.memory.recorded).insert(fence.object().id())
        {
            return Ok(());
        }
        match (self.bug, queue.record(fence)) {
            (Bug::ForeignFenceAccepted, Err(Error::WrongDevice { .. })) => Ok(()),
            (_, recorded) => recorded,
        }
    }

    fn wait_submitted(&self, submitted: Submitted<'_>, timeout: Duration) -> Result<()> {
        match self.bug {
            Bug::SkippedLooksSubmitted => submitted.end().wait_pending(timeout),
            _ => submitted.wait_submitted(timeout),
        }
    }

    fn is_held(&self, submitted: Submitted<'_>) -> bool {
        match self.bug {
            Bug::HeldIsNotTold => false,
            _ => submitted.is_held(),
        }
    }

    fn wait_on(&self, queue: &PlantedQueue, fence: &Fence) -> Result<()> {
        match self.bug {
            Bug::QueueWaitForgotten => fence.point().map(|_| ()),
            Bug::QueueWaitCapturedLate => {
                let late = follow(&self.device, fence)?;
                queue.submit(&[late.point()], |_| Ok(()), &[]).map(|_| ())
            }
            _ => queue.wait(fence),
        }
    }

    fn position<'q>(&self, queue: &'q PlantedQueue) -> Point<'q> {
        match self.bug {
            Bug::PositionIsReached => Point::EMPTY,
            _ => queue.position(),
        }
    }

    fn held(&self, queue: &PlantedQueue) -> Held {
        match self.bug {
            Bug::NothingIsHeld => Held::default(),
            _ => queue.held(),
        }
    }

    fn idle(&self, queue: &PlantedQueue, timeout: Duration) -> Result<()> {
        match self.bug {
            Bug::IdleReturnsAtOnce => Ok(()),
            _ => queue.idle(timeout),
        }
    }

    fn settle(&self, queue: &PlantedQueue, timeout: Duration) -> Result<()> {
        match self.bug {
            Bug::SettleReturnsAtOnce => Ok(()),
            _ => queue.settle(timeout),
        }
    }

    fn fence_point(&self, fence: &Fence) -> Result<KeptPoint> {
        match self.bug {
            Bug::FencePointCapturedLate => follow(&self.device, fence),
            _ => fence.point(),
        }
    }

    fn is_complete(&self, fence: &Fence) -> Result<bool> {
        match self.bug {
            Bug::UnrecordedFenceBlocks if unrecorded(fence) => Ok(false),
            Bug::QueryBlocks => fence.wait(A_WHILE).map(|()| true),
            Bug::QueryNeverTrue => Ok(false),
            _ => fence.is_complete(),
        }
    }

    fn wait_fence(&self, fence: &Fence, mode: WaitMode, timeout: Duration) -> Result<()> {
        match self.bug {
            Bug::UnrecordedFenceBlocks if unrecorded(fence) => {
                thread::sleep(timeout.min(A_WHILE));
                Err(timed_out(fence.object(), 0, timeout))
            }
            Bug::HostWaitCapturedLate => {
                let start = Instant::now();
                while !fence.is_complete()? {
                    if start.elapsed() >= timeout {
                        return fence.wait(Duration::ZERO);
                    }
                    thread::sleep(Duration::from_micros(100));
                }
                Ok(())
            }
            Bug::FailureIsSuccess => {
                let ended = fence.wait_with(mode, timeout);
                self.memory.told(self.bug, ended, timeout)
            }
            _ => fence.wait_with(mode, timeout),
        }
    }

    #[allow(unsafe_code, reason = "closing another owner's descriptor is the bug")]
    fn import_descriptor(
        &self,
        descriptor: Option<OwnedFd>,
        label: &str,
    ) -> Result<Fence, Rejected<OwnedFd>> {
        let Some(descriptor) = descriptor else {
            return syncline::host::Device::new().import_descriptor(None, label);
        };
        let number = descriptor.as_raw_fd();
        // SAFETY: there is none. Another owner has the descriptor.
        let close = |number| unsafe { libc::close(number) };
        if self.bug == Bug::HandleClosedTwice
            && let Some(before) = self.memory.closed_before(number)
        {
            close(before);
        }
        let fence = syncline::host::Device::new().import_descriptor(Some(descriptor), label)?;
        if self.bug == Bug::HandleClosedAtOnce {
            close(number);
        }
        Ok(fence)
    }

    fn elapsed(&self, start: &Fence, end: &Fence) -> Result<i64> {
        match (self.bug, end.elapsed_since(start)) {
            (Bug::ElapsedHasNoSign, elapsed) => elapsed.map(i64::abs),
            (Bug::ElapsedWithoutTimes, Err(Error::TimingDisabled { .. }))
            | (Bug::ElapsedNotReady, Err(Error::NotReady { .. } | Error::NotRecorded { .. }))
            | (Bug::MixedTimingAllowed, Err(Error::TimingDiffers { .. })) => Ok(0),
            (_, elapsed) => elapsed,
        }
    }
}
