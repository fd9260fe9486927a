//! Traces: what became of each submission, on every queue that takes part, on one axis of time.
//!
//! A lane that nobody follows looks once at a flag for each submission. One that is followed puts two stamps of its device's
//! clock around the work, writes down when it was submitted and when it went to the driver, and leaves that with a
//! follower. What submissions wait for is followed too: a signal of the host is written down with its time.

mod follower;
mod recording;
mod slot;

pub(crate) use follower::{Follower, Lane};
pub use recording::{Arrow, Edge, HostSignal, Outcome, Place, Recording, Submission, Track};
pub(crate) use slot::{Followed, Slot};

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::backend::Queue;
use crate::clock::{Clock, Estimate, HostClock, Map};
use crate::error::Result;
use crate::point::Point;
use crate::state::Shared;

/// Records what queues do, from [`Trace::follow`] to [`Trace::finish`].
///
/// A queue that is followed writes two times of its device's clock for each submission, one before its work and one behind
/// it, both between its waits and its signals, which costs what two [clocked fences](crate::backend::Device::clocked_fence) do. A queue that is not pays for one look at a flag. Nothing
/// is global: a trace follows the queues that it is given, and those alone, and of what these wait for it sees the signals that the host makes.
/// A queue has one trace at a time, a timeline any number. Until its end it keeps the devices whose queues it follows. Dropping it ends it, too, which waits while a clock is being sampled:
/// 30 ms at most on CUDA, a quarter of a second on a Vulkan device without calibrated timestamps.
///
/// Usable from any thread.
pub struct Trace {
    inner: Arc<Inner>,
    /// Samples the clocks now and then, so that times are converted between samples near by: seconds in a
    /// trace of a minute, more in a longer one, whose errors say so.
    sampler: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

pub(crate) struct Inner {
    begun: i64,
    /// So many submissions for each queue, and as many signals of the host.
    room: usize,
    followers: Mutex<Vec<Arc<Follower>>>,
    timelines: Mutex<Timelines>,
    host: Mutex<(Vec<HostSignal>, u64)>,
    /// By the submission's point on its queue's position.
    labels: Mutex<HashMap<Edge, String>>,
}

/// Those that submissions have to do with.
#[derive(Default)]
struct Timelines {
    /// By the timeline's id.
    indices: HashMap<u64, usize>,
    names: Vec<String>,
    /// Their values when they were first met.
    reached: Vec<u64>,
    /// Whose signals by the host are written down.
    watched: Vec<Weak<Shared>>,
}

/// A poisoned lock is no reason to lose a trace.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

impl Trace {
    /// So many submissions are recorded for each queue, and as many signals of the host, unless
    /// [`Trace::with_room`] says otherwise.
    pub const ROOM: usize = 100_000;
    /// The devices' clocks are sampled so often meanwhile.
    pub const SAMPLED_EVERY: Duration = Duration::from_millis(250);

    /// A trace that begins now and follows nobody yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_room(Self::ROOM)
    }

    /// With room for so many submissions of each queue, some 300 bytes each, and as many signals of the host. What comes later is
    /// counted, and not recorded.
    #[must_use]
    pub fn with_room(room: usize) -> Self {
        let inner = Arc::new(Inner {
            begun: HostClock::Monotonic.now(),
            room,
            followers: Mutex::default(),
            timelines: Mutex::default(),
            host: Mutex::default(),
            labels: Mutex::default(),
        });
        let ended = Arc::new(AtomicBool::new(false));
        let (sampled, until) = (Arc::downgrade(&inner), ended.clone());
        let sampler = thread::Builder::new()
            .name("syncline-trace".into())
            .spawn(move || keep_sampling(&sampled, &until));
        Self {
            inner,
            // Without a thread the conversions of a long trace are less exact, and say so.
            sampler: sampler.ok().map(|thread| (ended, thread)),
        }
    }

    /// Records what `queue` is given from now on. Its device is asked for its clock, which makes that if nobody has before (see
    /// [`Device::clock`](crate::backend::Device::clock): call this at set-up) and samples it once. A device or a queue without
    /// times is followed by the host alone, and the [track](Track::untimed) says why.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if another trace follows it, or its backend cannot be traced.
    pub fn follow<Q: Queue>(&self, queue: &Q) -> Result<()> {
        queue.trace(self)
    }

    /// Calls the submission that ends at `end` ([`Submitted::end`](crate::Submitted::end)) by a name; a later name replaces it.
    /// Nothing happens if `end` is no position of a queue that is followed, or its submission found no room.
    pub fn label(&self, end: Point<'_>, label: &str) {
        let Some(of) = end.of else { return };
        let known = lock(&self.inner.timelines)
            .indices
            .get(&of.object.id())
            .copied();
        let Some(timeline) = known else { return };
        let value = end.value;
        let noted = lock(&self.inner.followers)
            .iter()
            .any(|follower| follower.has_noted(timeline, value));
        if noted {
            lock(&self.inner.labels).insert(Edge { timeline, value }, label.into());
        }
    }

    /// Ends the trace: follows nobody any more, waits up to `patience` for what was submitted, and tells what was recorded. Submissions that have
    /// not finished by then are in it as they are. Blocks meanwhile, and while the clocks are sampled once more.
    #[must_use]
    pub fn finish(mut self, patience: Duration) -> Recording {
        let until = Instant::now().checked_add(patience);
        self.end();
        let ended = HostClock::Monotonic.now();
        let followers = std::mem::take(&mut *lock(&self.inner.followers));
        for follower in &followers {
            let left = until.map_or(patience, |until| {
                until.saturating_duration_since(Instant::now())
            });
            follower.wait(left);
        }
        let clocks = Clocks::of(&followers);
        let mut labels = std::mem::take(&mut *lock(&self.inner.labels));
        let mut tracks: Vec<_> = followers
            .iter()
            .map(|follower| follower.track(&mut labels, |clock, time| clocks.to_host(clock, time)))
            .collect();
        tracks.sort_by(|one, other| {
            let key = |track: &Track| (track.backend.to_string(), track.device.clone());
            key(one).cmp(&key(other))
        });
        let (mut host_signals, host_lost) = std::mem::take(&mut *lock(&self.inner.host));
        host_signals.sort_by_key(|signal| signal.at);
        let timelines = std::mem::take(&mut *lock(&self.inner.timelines));
        Recording {
            begun: self.inner.begun,
            ended,
            tracks,
            host_signals,
            host_lost,
            timelines: timelines.names,
            reached_before: timelines.reached,
        }
    }

    /// Takes a queue in.
    pub(crate) fn add(
        &self,
        make: impl FnOnce(&Arc<Inner>) -> Result<Arc<Follower>>,
    ) -> Result<()> {
        let follower = make(&self.inner)?;
        lock(&self.inner.followers).push(follower.clone());
        if let Some(clock) = follower.clock() {
            // Conversions begin with it; if it fails they try again, and the track says so in the end.
            let _ = clock.sample();
        }
        Ok(())
    }

    fn end(&mut self) {
        // Without the lock: what a lane lets go may be the application's.
        let followers = lock(&self.inner.followers).clone();
        for follower in &followers {
            follower.leave();
        }
        for timeline in std::mem::take(&mut lock(&self.inner.timelines).watched) {
            if let Some(timeline) = timeline.upgrade() {
                timeline.trace.leave(&self.inner);
            }
        }
        if let Some((ended, thread)) = self.sampler.take() {
            ended.store(true, Ordering::Release);
            thread.thread().unpark();
            // It has no panic to tell of.
            let _ = thread.join();
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.end();
        // Here, and not on whose thread the last signal of the host is noted: devices may go with them.
        let followers = std::mem::take(&mut *lock(&self.inner.followers));
        drop(followers);
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} queues)", lock(&self.inner.followers).len())
    }
}

impl Inner {
    /// The number of a timeline, whose signals by the host are written down from now on.
    fn timeline(self: &Arc<Self>, of: &Arc<Shared>, awaited: bool) -> usize {
        // Before its value is read: a signal in between is noted, or seen.
        let taken = awaited && of.trace.take(self);
        let mut timelines = lock(&self.timelines);
        let id = of.object.id();
        let index = match timelines.indices.get(&id) {
            Some(&index) => index,
            None => {
                let index = timelines.names.len();
                timelines.names.push(of.object.label().to_owned());
                timelines.reached.push(of.reached());
                timelines.indices.insert(id, index);
                index
            }
        };
        if taken {
            timelines.watched.push(Arc::downgrade(of));
        }
        index
    }

    /// The signal that was noted last as this was not made.
    pub(crate) fn forget_signal(&self, timeline: &Shared, value: u64, at: i64) {
        let timelines = lock(&self.timelines);
        let Some(&timeline) = timelines.indices.get(&timeline.object.id()) else {
            return;
        };
        drop(timelines);
        let signal = Edge { timeline, value };
        let mut host = lock(&self.host);
        let same = |one: &HostSignal| one.signal == signal && one.at == at;
        match host.0.iter().rposition(same) {
            Some(index) => drop(host.0.remove(index)),
            None => host.1 = host.1.saturating_sub(1),
        }
    }

    /// The host signals `value` of a timeline, now.
    pub(crate) fn note_signal(&self, timeline: &Shared, value: u64, at: i64) {
        let index = lock(&self.timelines)
            .indices
            .get(&timeline.object.id())
            .copied();
        let Some(timeline) = index else { return };
        let thread = thread::current();
        let thread = match thread.name() {
            Some(name) => name.to_owned(),
            None => format!("{:?}", thread.id()),
        };
        let mut host = lock(&self.host);
        if host.0.len() < self.room {
            let signal = Edge { timeline, value };
            host.0.push(HostSignal { at, thread, signal });
        } else {
            host.1 += 1;
        }
    }
}

fn keep_sampling(of: &Weak<Inner>, ended: &AtomicBool) {
    while !ended.load(Ordering::Acquire) {
        thread::park_timeout(Trace::SAMPLED_EVERY);
        let Some(inner) = of.upgrade() else { return };
        let followers = lock(&inner.followers).clone();
        drop(inner);
        let clocks: Vec<_> = followers.iter().filter_map(|one| one.clock()).collect();
        for (at, clock) in clocks.iter().enumerate() {
            if ended.load(Ordering::Acquire) {
                return;
            }
            if !clocks[..at].iter().any(|earlier| earlier.is_same(clock)) {
                // One that is silent is asked again; the conversions say what that costs.
                let _ = clock.sample();
            }
        }
    }
}

/// The clocks that took part, each with the conversion of its times.
struct Clocks(Vec<(Clock, Map)>);

impl Clocks {
    /// Times of clocks that are found to be one are all converted by the first of them, so that what lies between two
    /// of them stays as it was. All have passed: a last sample each, and every time lies between two.
    fn of(followers: &[Arc<Follower>]) -> Self {
        let mut known: Vec<(&Clock, &Clock)> = Vec::new();
        for clock in followers.iter().filter_map(|one| one.clock()) {
            if known.iter().any(|(one, _)| one.is_same(clock)) {
                continue;
            }
            // A silent one has its earlier samples, and a larger error.
            let _ = clock.sample();
            let is_one = |one: &Clock| one.compare(clock).is_ok_and(|found| found.are_one());
            let first = known
                .iter()
                .find(|(one, by)| one.is_same(by) && is_one(one));
            known.push((clock, first.map_or(clock, |&(_, by)| by)));
        }
        let with_map = |(clock, by): (&Clock, &Clock)| (clock.clone(), by.map());
        Self(known.into_iter().map(with_map).collect())
    }

    fn to_host(&self, clock: &Clock, time: i64) -> Option<Estimate> {
        let (_, map) = self.0.iter().find(|(one, _)| one.is_same(clock))?;
        map.to_host(time)
    }
}
