//! What is written down of one queue.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use super::{Edge, Inner, Outcome, Submission, Track, lock};
use crate::base::error::{Error, Failure};
use crate::clock::{Clock, Estimate, HostClock};
use crate::port::Stamp;
use crate::queue::{Follow, FollowSubmission, Traceable};
use crate::timeline::point::{KeptPoint, Point, Signal};
use crate::timeline::state::Shared;

/// The trace's side of one queue.
pub(super) struct Follower {
    trace: Weak<Inner>,
    queue: Traceable,
    /// The number of the queue's own timeline.
    position: usize,
    /// The device's clock, or why there are no times.
    clock: Result<Clock, String>,
    room: usize,
    lives: Mutex<Lives>,
}

#[derive(Default)]
struct Lives {
    /// Not known to have finished, in the order in which they were noted: about the queue's.
    open: VecDeque<(u64, Arc<Life>)>,
    over: Vec<Over>,
    /// How many have been noted, and the last one's number.
    noted: usize,
    last: u64,
    /// There was no room for.
    lost: u64,
    /// Why a stamp could not be had, the first time.
    untimed: Option<String>,
}

/// A submission of a traced queue.
struct Life {
    follower: Weak<Follower>,
    made: i64,
    /// [`NEVER`] until its work is recorded.
    released: AtomicI64,
    stamps: Option<[Arc<dyn Stamp>; 2]>,
    /// Its work was recorded, all of it.
    recorded: AtomicBool,
    /// Why not.
    failed: OnceLock<String>,
    held: OnceLock<bool>,
    waited: Vec<KeptPoint>,
    signalled: Vec<KeptPoint>,
    waits: Vec<Edge>,
    signals: Vec<Edge>,
}

/// What has become of one, in the device's time.
struct Over {
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

impl FollowSubmission for Life {
    fn accepted(self: Arc<Self>, number: u64, is_held: bool) {
        let _ = self.held.set(is_held);
        if let Some(follower) = self.follower.upgrade() {
            let mut lives = lock(&follower.lives);
            lives.noted += 1;
            lives.last = number.max(lives.last);
            lives.open.push_back((number, self));
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

impl Life {
    /// What has become of it; `over` if its queue has come past it.
    fn look(&self, number: u64, over: Option<Outcome>) -> Over {
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
            && let Some([_, behind]) = &self.stamps
            && matches!(behind.time(), Err(Error::NotReady { .. }))
        {
            // The queue has come past it.
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
                // It may have begun, and even have ended if its signals wait for others.
                stamp.time_if_written()
            }
        };
        // The end first: what has ended by then has begun.
        let (ended, began) = (time(1), time(0));
        Over {
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

    /// The queue has come past it; whether with its work.
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
        let trace = self.trace.upgrade()?;
        // So that stamps are used again soon.
        self.gather();
        {
            let mut lives = lock(&self.lives);
            if lives.noted >= self.room {
                lives.lost += 1;
                return None;
            }
        }
        let stamps = match self.clock.as_ref().map(|_| stamps()) {
            Ok(Ok(stamps)) => Some(stamps),
            Ok(Err(error)) => {
                let mut lives = lock(&self.lives);
                lives.untimed.get_or_insert_with(|| error.to_string());
                None
            }
            Err(_) => None,
        };
        let edge = |of: &Arc<Shared>, value: u64, awaited: bool| Edge {
            timeline: trace.timeline(of, awaited),
            value,
        };
        let of = |wait: &Point<'_>| Some(edge(wait.of?, wait.value, true));
        Some(Arc::new(Life {
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
    pub(super) fn new(trace: &Arc<Inner>, queue: Traceable) -> Arc<Self> {
        // Other clocks of the host are not that of the recording.
        let clock = queue
            .clock
            .clone()
            .and_then(|clock| match clock.host_clock() {
                HostClock::Monotonic => Ok(clock),
                other => Err(format!(
                    "its clock can be compared with {} alone",
                    other.name()
                )),
            });
        Arc::new(Self {
            trace: Arc::downgrade(trace),
            position: trace.timeline(&queue.own, false),
            queue,
            clock,
            room: trace.room,
            lives: Mutex::default(),
        })
    }

    pub(super) fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref().ok()
    }

    pub(super) fn leave(&self) {
        self.queue.remove_follower();
    }

    pub(super) fn wait(&self, patience: Duration) {
        let last = lock(&self.lives)
            .open
            .iter()
            .map(|(number, _)| *number)
            .max();
        if let Some(value) = last {
            let of = Some(&self.queue.own);
            // Whatever it says: what has not finished is pending, and what has failed is told of each.
            let _ = Point { of, value }.wait(patience);
        }
    }

    /// True if `value` of the timeline numbered `timeline` is the end of a submission that was noted, or of one before such.
    pub(super) fn has_noted(&self, timeline: usize, value: u64) -> bool {
        self.position == timeline && value <= lock(&self.lives).last
    }

    /// Reads the times of what has finished, so that its stamps can be used again. Drivers are asked, and what is let go is
    /// dropped, without the lock.
    pub(super) fn gather(&self) {
        let reached = self.queue.own.reached();
        let mut done = Vec::new();
        {
            let mut lives = lock(&self.lives);
            while lives
                .open
                .front()
                .is_some_and(|(number, _)| *number <= reached)
            {
                done.extend(lives.open.pop_front());
            }
        }
        let finished =
            |(number, life): &(u64, Arc<Life>)| life.look(*number, Some(Outcome::Finished));
        let over: Vec<_> = done.iter().map(finished).collect();
        lock(&self.lives).over.extend(over);
    }

    /// What was recorded, with times as `to_host` converts them. After the end of the trace.
    pub(super) fn track(
        &self,
        labels: &mut HashMap<Edge, String>,
        to_host: impl Fn(&Clock, i64) -> Option<Estimate>,
    ) -> Track {
        self.queue.own.refresh();
        self.gather();
        let failure = self.queue.own.failure();
        let open = std::mem::take(&mut lock(&self.lives).open);
        let rest: Vec<_> = open
            .iter()
            .map(|(number, life)| {
                let over = failure.as_ref();
                life.look(
                    *number,
                    over.map(|cause| Outcome::Failed(cause.to_string())),
                )
            })
            .collect();
        drop(open);
        let mut lives = lock(&self.lives);
        lives.over.extend(rest);
        lives.over.sort_by_key(|over| over.number);
        let estimate = |time: Option<i64>| to_host(self.clock()?, time?);
        let mut label = |number: u64| {
            labels.remove(&Edge {
                timeline: self.position,
                value: number,
            })
        };
        // One that could not be had in passing is not worth a word.
        let timed = lives.over.iter().any(|over| over.ended.is_some());
        let untimed = lives.untimed.take().filter(|_| !timed);
        let submissions = std::mem::take(&mut lives.over)
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
            queue: self.queue.object.label().to_owned(),
            device: self.queue.device.marked_name(),
            backend: self.queue.device.backend,
            gpu: self.queue.device.uuid,
            position: self.position,
            submissions: submissions.collect(),
            lost: lives.lost,
            untimed: self.clock.as_ref().err().cloned().or(untimed),
        }
    }
}
