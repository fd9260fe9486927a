//! Traces: what became of each submission, on every queue that takes part, on one axis of time.
//!
//! A queue that nobody follows looks once at a flag for each submission. One that is followed puts two stamps of its device's
//! clock around the work, writes down when it was submitted and when it went to the driver, and leaves that with a
//! follower. What submissions wait for is followed too: a signal of the host is written down with its time.

mod follower;
mod recording;

use follower::Follower;
pub use recording::{Arrow, Edge, HostSignal, Outcome, Place, Recording, Submission, Track};

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::api::Queue;
use crate::base::error::Result;
use crate::clock::{Clock, Course, Estimate, HostClock};
use crate::timeline::host_signals::ObserveHostSignals;
use crate::timeline::point::Point;
use crate::timeline::state::Shared;

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
    /// Samples the clocks now and then, so that times are converted between samples near by, however long the trace is.
    sampler: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

struct Inner {
    begun: i64,
    /// So many submissions for each queue, and as many signals of the host.
    room: usize,
    followers: Mutex<Vec<Arc<Follower>>>,
    timelines: Mutex<Timelines>,
    host: Mutex<(Vec<HostSignal>, u64)>,
    /// By the submission's point on its queue's position.
    labels: Mutex<HashMap<Edge, String>>,
    /// How each clock went beside the host's since it was followed first.
    courses: Mutex<Vec<(Clock, Course)>>,
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
    /// counted, and not recorded. Beside that a trace grows by 100 bytes a second for each clock, which keeps early times as exact as late ones.
    #[must_use]
    pub fn with_room(room: usize) -> Self {
        let inner = Arc::new(Inner {
            begun: HostClock::Monotonic.now(),
            room,
            followers: Mutex::default(),
            timelines: Mutex::default(),
            host: Mutex::default(),
            labels: Mutex::default(),
            courses: Mutex::default(),
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
        let inner = &self.inner;
        let follower = queue
            .traceable()?
            .follow(|queue| Follower::new(inner, queue))?;
        lock(&inner.followers).push(follower.clone());
        if let Some(clock) = follower.clock() {
            // Conversions begin with it; if it fails they try again, and the track says so in the end.
            inner.sample(clock);
        }
        Ok(())
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
        let clocks = self
            .inner
            .clocks(followers.iter().filter_map(|one| one.clock()));
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

    fn end(&mut self) {
        // Without the lock: what a queue lets go may be the application's.
        let followers = lock(&self.inner.followers).clone();
        for follower in &followers {
            follower.leave();
        }
        for timeline in std::mem::take(&mut lock(&self.inner.timelines).watched) {
            if let Some(timeline) = timeline.upgrade() {
                let inner: Arc<dyn ObserveHostSignals> = self.inner.clone();
                timeline.host_signals.remove(&inner);
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
        let courses = std::mem::take(&mut *lock(&self.inner.courses));
        drop(courses);
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
        let observer: Arc<dyn ObserveHostSignals> = self.clone();
        let taken = awaited && of.host_signals.add(&observer);
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
}

impl ObserveHostSignals for Inner {
    /// The signal that was noted last as this was not made.
    fn forget(&self, timeline: &Shared, value: u64, at: i64) {
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
    fn note(&self, timeline: &Shared, value: u64, at: i64) {
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
        let clocks: Vec<_> = followers.iter().filter_map(|one| one.clock()).collect();
        for (at, clock) in clocks.iter().enumerate() {
            if ended.load(Ordering::Acquire) {
                return;
            }
            if !clocks[..at].iter().any(|earlier| earlier.is_same(clock)) {
                inner.sample(clock);
            }
        }
    }
}

/// The clocks that took part, each with the course that converts its times.
struct Clocks(Vec<(Clock, Arc<Course>)>);

impl Inner {
    /// Samples a clock, for what its times will be converted by. A silent one is asked again next time; the conversions say what that costs.
    fn sample(&self, clock: &Clock) {
        let _ = clock.sample();
        let mut courses = lock(&self.courses);
        let known = courses.iter().position(|(one, _)| one.is_same(clock));
        let at = known.unwrap_or_else(|| {
            courses.push((clock.clone(), Course::default()));
            courses.len() - 1
        });
        if let Some((clock, course)) = courses.get_mut(at) {
            // Read under the lock, and so in the order of the samples.
            course.go_on(clock.map());
        }
    }

    /// Times of clocks that are found to be one are all converted by the first of them, so that what lies between two
    /// of them stays as it was. All have passed: a last sample each, and every time lies between two.
    fn clocks<'c>(&self, clocks: impl Iterator<Item = &'c Clock>) -> Clocks {
        let mut known: Vec<(&Clock, &Clock)> = Vec::new();
        for clock in clocks {
            if known.iter().any(|(one, _)| one.is_same(clock)) {
                continue;
            }
            self.sample(clock);
            let is_one = |one: &Clock| one.compare(clock).is_ok_and(|found| found.are_one());
            let first = known
                .iter()
                .find(|(one, by)| one.is_same(by) && is_one(one));
            known.push((clock, first.map_or(clock, |&(_, by)| by)));
        }
        let courses = std::mem::take(&mut *lock(&self.courses));
        let courses: Vec<_> = courses
            .into_iter()
            .map(|(clock, course)| (clock, Arc::new(course.ended())))
            .collect();
        let with_course = |(clock, by): (&Clock, &Clock)| {
            let mut courses = courses.iter();
            let (_, course) = courses.find(|(one, _)| one.is_same(by))?;
            Some((clock.clone(), course.clone()))
        };
        Clocks(known.into_iter().filter_map(with_course).collect())
    }
}

impl Clocks {
    fn to_host(&self, clock: &Clock, time: i64) -> Option<Estimate> {
        let (_, course) = self.0.iter().find(|(one, _)| one.is_same(clock))?;
        course.to_host(time)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::atomic::AtomicI64;

    use super::*;
    use crate::base::error::Object;
    use crate::clock::{Sample, Sampler};

    /// Each sample is a quarter of a second after the one before.
    struct Stepping(AtomicI64);

    impl Sampler for Stepping {
        fn sample(&self) -> Result<Sample> {
            let device = self.0.fetch_add(250_000_000, Ordering::SeqCst);
            Ok(Sample {
                device,
                host: device + 5_000,
                deviation: 1_000,
            })
        }
    }

    #[test]
    fn early_times_of_a_trace_of_ten_minutes_are_as_exact_as_late_ones() {
        let inner = Trace::new().inner.clone();
        let clock = Clock::new(Object::new("clock", "stepping"), Stepping(0.into()));
        for _ in 0..10 * 240 {
            inner.sample(&clock);
        }
        let clocks = inner.clocks([&clock].into_iter());
        for second in [1, 60, 300, 580, 599] {
            let device = second * 1_000_000_000 + 77_000_000;
            let told = clocks.to_host(&clock, device).unwrap();
            let off = told.nanoseconds.abs_diff(device + 5_000);
            assert!(
                off <= told.error && told.error < 1_200,
                "{off} {told:?} {second}"
            );
        }
    }
}
