//! What is written down of one queue.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use super::{Edge, Inner, Outcome, Submission, Track, lock};
use crate::backend::Stamp;
use crate::clock::{Clock, Estimate, HostClock};
use crate::info::Info;
use crate::point::{KeptPoint, Point, Signal};
use crate::state::Shared;

/// A lane that can be followed.
pub(crate) trait Lane: Send + Sync {
    /// Nobody follows it any more.
    fn leave(&self);
}

/// The trace's side of one queue. The lane has it.
pub(crate) struct Follower {
    trace: Weak<Inner>,
    lane: Weak<dyn Lane>,
    queue: String,
    device: Info,
    own: Arc<Shared>,
    position: usize,
    /// Or why there are no times.
    clock: Result<Clock, String>,
    room: usize,
    lives: Mutex<Lives>,
}

#[derive(Default)]
struct Lives {
    /// Not known to have finished, in the order in which they were noted: about the queue's.
    open: VecDeque<(u64, Arc<Life>)>,
    over: Vec<Over>,
    /// There was no room for.
    lost: u64,
    /// Why a stamp could not be had, the first time.
    untimed: Option<String>,
}

/// A submission of a traced queue.
pub(crate) struct Life {
    made: i64,
    /// [`NEVER`] until its work is recorded.
    released: AtomicI64,
    stamps: Option<[Arc<dyn Stamp>; 2]>,
    /// Why its work was not recorded, or not all of it.
    failed: OnceLock<String>,
    held: OnceLock<bool>,
    waited: Vec<KeptPoint>,
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

impl Life {
    /// Its work is recorded now.
    pub(crate) fn release(&self) {
        self.released
            .store(HostClock::Monotonic.now(), Ordering::Relaxed);
    }

    /// Its work could not be recorded.
    pub(crate) fn fail(&self, why: &dyn std::fmt::Display) {
        let _ = self.failed.set(why.to_string());
    }

    /// What has become of it; `over` if its queue has come past it.
    fn look(&self, number: u64, over: Option<Outcome>) -> Over {
        let released = match self.released.load(Ordering::Relaxed) {
            NEVER => None,
            at => Some(at),
        };
        let outcome = match (over, self.failed.get()) {
            (Some(_), Some(why)) => Outcome::Failed(why.clone()),
            (Some(Outcome::Finished), None) if released.is_none() => Outcome::Failed(self.cause()),
            (Some(outcome), None) => outcome,
            (None, _) => Outcome::Pending,
        };
        let time = |nth: usize| {
            let stamp = released.and(self.stamps.as_ref())?.get(nth)?;
            stamp.time().ok().flatten()
        };
        let ran = outcome == Outcome::Finished;
        Over {
            number,
            made: self.made,
            held: self.held.get().copied().unwrap_or(false),
            released,
            began: ran.then(|| time(0)).flatten(),
            ended: ran.then(|| time(1)).flatten(),
            outcome,
            waits: self.waits.clone(),
            signals: self.signals.clone(),
        }
    }

    /// Why it was skipped.
    fn cause(&self) -> String {
        let hopeless = |wait: &KeptPoint| wait.of.as_ref()?.hopeless(wait.value);
        match self.waited.iter().find_map(hopeless) {
            Some(cause) => cause.to_string(),
            None => "it was not run".into(),
        }
    }
}

impl Follower {
    pub(crate) fn new(
        trace: &Arc<Inner>,
        lane: Weak<dyn Lane>,
        queue: &str,
        device: &Info,
        own: &Arc<Shared>,
        clock: Result<Clock, String>,
    ) -> Arc<Self> {
        // Other clocks of the host are not that of the recording.
        let clock = clock.and_then(|clock| match clock.host_clock() {
            HostClock::Monotonic => Ok(clock),
            other => Err(format!(
                "its clock can be compared with {} alone",
                other.name()
            )),
        });
        Arc::new(Self {
            trace: Arc::downgrade(trace),
            lane,
            queue: queue.to_owned(),
            device: device.clone(),
            own: own.clone(),
            position: trace.timeline(own, false),
            clock,
            room: trace.room,
            lives: Mutex::default(),
        })
    }

    pub(crate) fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref().ok()
    }

    pub(super) fn leave(&self) {
        if let Some(lane) = self.lane.upgrade() {
            lane.leave();
        }
    }

    pub(super) fn wait(&self, patience: Duration) {
        let last = lock(&self.lives)
            .open
            .iter()
            .map(|(number, _)| *number)
            .max();
        if let Some(value) = last {
            let of = Some(&self.own);
            // Whatever it says: what has not finished is pending, and what has failed is told of each.
            let _ = Point { of, value }.wait(patience);
        }
    }

    /// A submission is made. `None` if the trace has ended, or has no more room: then it is like any other.
    pub(crate) fn begin(
        &self,
        waits: &[Point<'_>],
        signals: &[Signal<'_>],
        stamps: impl FnOnce() -> crate::Result<[Arc<dyn Stamp>; 2]>,
    ) -> Option<Arc<Life>> {
        let made = HostClock::Monotonic.now();
        let trace = self.trace.upgrade()?;
        {
            let mut lives = lock(&self.lives);
            lives.gather(self.own.reached());
            if lives.open.len() + lives.over.len() >= self.room {
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
            made,
            released: AtomicI64::new(NEVER),
            stamps,
            failed: OnceLock::new(),
            held: OnceLock::new(),
            waited: waits.iter().map(|wait| wait.keep()).collect(),
            waits: waits.iter().filter_map(of).collect(),
            signals: signals
                .iter()
                .map(|signal| edge(signal.of, signal.value, false))
                .collect(),
        }))
    }

    /// It was accepted.
    pub(crate) fn note(&self, number: u64, held: bool, life: Arc<Life>) {
        let _ = life.held.set(held);
        lock(&self.lives).open.push_back((number, life));
    }

    /// What was recorded, with times as `to_host` converts them. After the end of the trace.
    pub(super) fn track(
        &self,
        labels: &mut HashMap<Edge, String>,
        to_host: impl Fn(&Clock, i64) -> Option<Estimate>,
    ) -> Track {
        let mut lives = lock(&self.lives);
        lives.gather(self.own.refresh());
        let failure = self.own.failure();
        while let Some((number, life)) = lives.open.pop_front() {
            let over = failure.as_ref();
            let over = over.map(|cause| Outcome::Failed(cause.to_string()));
            let seen = life.look(number, over);
            lives.over.push(seen);
        }
        lives.over.sort_by_key(|over| over.number);
        let estimate = |time: Option<i64>| to_host(self.clock()?, time?);
        let mut label = |number: u64| {
            labels.remove(&Edge {
                timeline: self.position,
                value: number,
            })
        };
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
            queue: self.queue.clone(),
            device: self.device.name.clone(),
            backend: self.device.backend,
            gpu: self.device.uuid,
            position: self.position,
            submissions: submissions.collect(),
            lost: lives.lost,
            untimed: self.clock.as_ref().err().cloned().or(lives.untimed.take()),
        }
    }
}

impl Lives {
    /// Reads the times of what has finished, so that its stamps can be used again.
    fn gather(&mut self, reached: u64) {
        while let Some((number, life)) = self.open.front()
            && *number <= reached
        {
            let seen = life.look(*number, Some(Outcome::Finished));
            self.over.push(seen);
            self.open.pop_front();
        }
    }
}
