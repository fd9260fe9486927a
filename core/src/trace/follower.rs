//! What a trace records of one queue.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::recording::{Edge, Outcome, Submission, Track};
use super::timelines::Timelines;
use crate::base::error::{Error, Failure};
use crate::base::sync::Mutex;
use crate::clock::{Clock, Estimate, HostClock};
use crate::port::Stamp;
use crate::queue::{Follow, FollowSubmission, Traceable};
use crate::timeline::point::{KeptPoint, Point, Signal};
use crate::timeline::state::Shared;

/// The trace's part of one queue.
pub(super) struct Follower {
    timelines: Weak<Timelines>,
    queue: Traceable,
    /// The index of the queue's position among the trace's timelines.
    position: usize,
    /// The device's clock, or the reason why there are no times.
    clock: Result<Clock, String>,
    capacity: usize,
    submissions: Mutex<Submissions>,
}

#[derive(Default)]
struct Submissions {
    /// Submissions not known to have finished, in order of acceptance: roughly the queue's order.
    open: VecDeque<(u64, Arc<Followed>)>,
    over: Vec<Ended>,
    /// The number of accepted submissions, and the highest submission number.
    noted: usize,
    last: u64,
    /// The number of submissions beyond the capacity.
    lost: u64,
    /// Why the first stamp without a time could not be made.
    untimed: Option<String>,
}

/// A submission of a traced queue, until its end is known.
struct Followed {
    follower: Weak<Follower>,
    made: i64,
    /// The time at which its work was recorded; [`NEVER`] until then.
    released: AtomicI64,
    stamps: Option<[Arc<dyn Stamp>; 2]>,
    /// True once all of its work is recorded.
    recorded: AtomicBool,
    /// Why recording failed.
    failed: OnceLock<String>,
    held: OnceLock<bool>,
    waited: Vec<KeptPoint>,
    signalled: Vec<KeptPoint>,
    waits: Vec<Edge>,
    signals: Vec<Edge>,
}

/// A submission that has ended, or was open at the end of the trace. Its device times are raw.
struct Ended {
    number: u64,
    made: i64,
    held: bool,
    released: Option<i64>,
    began: Option<i64>,
    ended: Option<i64>,
    outcome: Outcome,
    waits: Vec<Edge>,
    signals: Vec<Edge>,
}

const NEVER: i64 = i64::MIN;

impl FollowSubmission for Followed {
    fn accepted(self: Arc<Self>, number: u64, is_held: bool) {
        let _ = self.held.set(is_held);
        if let Some(follower) = self.follower.upgrade() {
            let mut submissions = follower.submissions.lock();
            if submissions.noted >= follower.capacity {
                submissions.lost += 1;
                return;
            }
            submissions.noted += 1;
            submissions.last = number.max(submissions.last);
            submissions.open.push_back((number, self));
        }
    }

    fn released(&self) {
        self.released
            .store(HostClock::Monotonic.now(), Ordering::Relaxed);
    }

    fn recorded(&self) {
        self.recorded.store(true, Ordering::Release);
    }

    fn failed(&self, cause: &dyn Display) {
        let _ = self.failed.set(cause.to_string());
    }
}

impl Followed {
    /// What became of the submission. `over` is `None` while the queue may still finish it.
    fn end(&self, number: u64, over: Option<Outcome>) -> Ended {
        let released = match self.released.load(Ordering::Relaxed) {
            NEVER => None,
            at => Some(at),
        };
        let came_past = over == Some(Outcome::Finished);
        let mut outcome = match (over, self.failed.get()) {
            (Some(_), Some(why)) => Outcome::Failed(why.clone()),
            (Some(Outcome::Finished), None) => self.unless_skipped(released),
            (Some(outcome), None) => outcome,
            (None, _) => Outcome::Pending,
        };
        if outcome == Outcome::Finished
            && let Some([_, after]) = &self.stamps
            && matches!(after.time(), Err(Error::NotReady { .. }))
        {
            // The queue's position has passed it, so the stamp will never be written.
            outcome = Outcome::Failed("the driver refused it".into());
        }
        let ran = outcome == Outcome::Finished;
        let time = |nth: usize| {
            let stamp = self.stamps.as_ref()?.get(nth)?;
            if ran {
                stamp.time().ok().flatten()
            } else if came_past {
                None
            } else {
                // It may have begun. It may even have finished its work, if its signals wait for
                // others.
                stamp.time_if_written()
            }
        };
        // The end first, so that an end is never without a beginning.
        let (ended, began) = (time(1), time(0));
        Ended {
            number,
            made: self.made,
            held: self.held.get().copied().unwrap_or(false),
            released,
            began,
            ended,
            outcome,
            waits: self.waits.clone(),
            signals: self.signals.clone(),
        }
    }

    /// The outcome of a submission that the queue's position has passed.
    fn unless_skipped(&self, released: Option<i64>) -> Outcome {
        let cause_of = |point: &KeptPoint| point.of.as_ref()?.unreachable_cause(point.value);
        let cause = |points: &[KeptPoint]| points.iter().find_map(cause_of);
        let failed = |cause: Failure| Outcome::Failed(cause.to_string());
        if released.is_none() {
            let cause = cause(&self.waited).or_else(|| cause(&self.signalled));
            return cause.map_or_else(|| Outcome::Failed("it was not run".into()), failed);
        }
        if !self.recorded.load(Ordering::Acquire) {
            return Outcome::Failed("its work panicked".into());
        }
        cause(&self.signalled).map_or(Outcome::Finished, failed)
    }
}

impl Follow for Follower {
    fn begin(
        self: Arc<Self>,
        waits: &[Point<'_>],
        signals: &[Signal<'_>],
        stamps: &mut dyn FnMut() -> crate::base::error::Result<[Arc<dyn Stamp>; 2]>,
    ) -> Option<Arc<dyn FollowSubmission>> {
        let made = HostClock::Monotonic.now();
        let timelines = self.timelines.upgrade()?;
        // Frees stamps for reuse.
        self.gather();
        // Beyond the capacity the submission is only counted, once it is accepted.
        let is_full = self.submissions.lock().noted >= self.capacity;
        let stamps = match self
            .clock
            .as_ref()
            .map(|_| (!is_full).then(stamps).transpose())
        {
            Ok(Ok(stamps)) => stamps,
            Ok(Err(error)) => {
                let mut submissions = self.submissions.lock();
                submissions.untimed.get_or_insert_with(|| error.to_string());
                None
            }
            Err(_) => None,
        };
        let edge = |of: &Arc<Shared>, value: u64, awaited: bool| Edge {
            timeline: timelines.timeline(of, awaited),
            value,
        };
        let of = |wait: &Point<'_>| Some(edge(wait.of?, wait.value, true));
        Some(Arc::new(Followed {
            follower: Arc::downgrade(&self),
            made,
            released: AtomicI64::new(NEVER),
            stamps,
            recorded: AtomicBool::new(false),
            failed: OnceLock::new(),
            held: OnceLock::new(),
            signalled: signals
                .iter()
                .map(|signal| KeptPoint {
                    of: Some(signal.of.clone()),
                    value: signal.value,
                })
                .collect(),
            waited: waits.iter().map(|wait| wait.keep()).collect(),
            waits: waits.iter().filter_map(of).collect(),
            signals: signals
                .iter()
                .map(|signal| edge(signal.of, signal.value, false))
                .collect(),
        }))
    }
}

impl Follower {
    pub(super) fn new(timelines: &Arc<Timelines>, capacity: usize, queue: Traceable) -> Arc<Self> {
        // The recording uses the monotonic clock, so a clock that converts to another one is of no
        // use.
        let clock =
            queue
                .clock()
                .map_err(str::to_owned)
                .and_then(|clock| match clock.host_clock() {
                    HostClock::Monotonic => Ok(clock.clone()),
                    other => Err(format!(
                        "its clock can be compared with {} alone",
                        other.name()
                    )),
                });
        Arc::new(Self {
            timelines: Arc::downgrade(timelines),
            position: timelines.timeline(queue.own(), false),
            queue,
            clock,
            capacity,
            submissions: Mutex::default(),
        })
    }

    pub(super) fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref().ok()
    }

    pub(super) fn stop(&self) {
        self.queue.remove_follower();
    }

    pub(super) fn wait(&self, patience: Duration) {
        let last = self
            .submissions
            .lock()
            .open
            .iter()
            .map(|(number, _)| *number)
            .max();
        if let Some(value) = last {
            let of = Some(self.queue.own());
            // The result does not matter: a submission that has not finished is recorded as pending
            // or failed.
            let _ = Point { of, value }.wait(patience);
        }
    }

    /// True if `timeline` is the queue's position and `value` is not above the last accepted
    /// submission.
    pub(super) fn has_noted(&self, timeline: usize, value: u64) -> bool {
        self.position == timeline && value <= self.submissions.lock().last
    }

    /// Reads the times of finished submissions, so that their stamps can be reused.
    ///
    /// Drivers are queried and objects are dropped without the lock.
    pub(super) fn gather(&self) {
        let reached = self.queue.own().reached();
        let mut done = Vec::new();
        {
            let mut submissions = self.submissions.lock();
            while submissions
                .open
                .front()
                .is_some_and(|(number, _)| *number <= reached)
            {
                done.extend(submissions.open.pop_front());
            }
        }
        let finished = |(number, followed): &(u64, Arc<Followed>)| {
            followed.end(*number, Some(Outcome::Finished))
        };
        let over: Vec<_> = done.iter().map(finished).collect();
        self.submissions.lock().over.extend(over);
    }

    /// The recorded submissions, with times converted by `to_host`. Call it after the end of the
    /// trace.
    pub(super) fn track(
        &self,
        labels: &mut HashMap<Edge, String>,
        to_host: impl Fn(&Clock, i64) -> Option<Estimate>,
    ) -> Track {
        self.queue.own().refresh();
        self.gather();
        let failure = self.queue.own().failure();
        let open = std::mem::take(&mut self.submissions.lock().open);
        let rest: Vec<_> = open
            .iter()
            .map(|(number, followed)| {
                let over = failure.as_ref();
                followed.end(
                    *number,
                    over.map(|cause| Outcome::Failed(cause.to_string())),
                )
            })
            .collect();
        drop(open);
        let mut known = self.submissions.lock();
        known.over.extend(rest);
        known.over.sort_by_key(|over| over.number);
        let estimate = |time: Option<i64>| to_host(self.clock()?, time?);
        let mut label = |number: u64| {
            labels.remove(&Edge {
                timeline: self.position,
                value: number,
            })
        };
        // If any submission has times, a single failed stamp is not reported.
        let timed = known.over.iter().any(|over| over.ended.is_some());
        let untimed = known.untimed.take().filter(|_| !timed);
        let submissions = std::mem::take(&mut known.over)
            .into_iter()
            .map(|over| Submission {
                number: over.number,
                label: label(over.number),
                made: over.made,
                held: over.held,
                released: over.released,
                began: estimate(over.began),
                ended: estimate(over.ended),
                outcome: over.outcome,
                waits: over.waits,
                signals: over.signals,
            });
        Track {
            queue: self.queue.object().label().to_owned(),
            device: self.queue.device().marked_name(),
            backend: self.queue.device().backend,
            gpu: self.queue.device().uuid,
            position: self.position,
            submissions: submissions.collect(),
            lost: known.lost,
            untimed: self.clock.as_ref().err().cloned().or(untimed),
        }
    }
}
