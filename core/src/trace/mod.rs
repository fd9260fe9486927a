//! Traces: records of what became of each submission, on all traced queues, with one time axis.
//!
//! A queue without a trace reads one flag per submission. A traced queue puts two stamps of its
//! device's clock around the work. It records when the work was submitted and when it went to the
//! driver. Host signals of awaited timelines are recorded with their times, too.
//!
//! ```
//! # extern crate syncline_core as syncline;
//! use std::time::Duration;
//! use syncline::backend::{Device as _, Queue as _};
//! use syncline::trace::Trace;
//! use syncline::{QueueKind, host};
//!
//! # fn main() -> syncline::Result<()> {
//! let device = host::Device::new();
//! let queue = device.queue(QueueKind::Compute, "worker")?;
//! let trace = Trace::new();
//! trace.follow(&queue)?;
//! queue.submit(&[], |_| Ok(()), &[])?;
//! queue.idle(Duration::from_secs(5))?;
//! let recording = trace.finish(Duration::from_secs(5));
//! assert_eq!(recording.tracks[0].submissions.len(), 1);
//! # Ok(())
//! # }
//! ```

mod follower;
mod recording;

use follower::Follower;
pub use recording::{Arrow, Edge, HostSignal, Outcome, Place, Recording, Submission, Track};

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::api::Queue;
use crate::base::error::Result;
use crate::base::sync::Mutex;
use crate::clock::{Clock, Estimate, History, HostClock};
use crate::timeline::host_signals::ObserveHostSignals;
use crate::timeline::point::Point;
use crate::timeline::state::Shared;

/// Records what queues do, from [`Trace::follow`] to [`Trace::finish`].
///
/// A traced queue writes two times of its device's clock for each submission: one before its work
/// and one after it, both between its waits and its signals. That costs as much as two [clocked
/// fences](crate::backend::Device::clocked_fence). A queue without a trace reads one flag.
///
/// A trace follows only the queues that it is given, and host signals of the timelines that they
/// wait for. A queue has one trace at a time, a timeline any number. The trace keeps the devices of
/// its queues alive until it ends.
///
/// Dropping the trace ends it. The drop waits while a clock is sampled: at most 30 ms on CUDA, and
/// a quarter of a second on a Vulkan device without calibrated timestamps. Any thread may use it.
pub struct Trace {
    inner: Arc<Inner>,
    /// The thread that samples the clocks, so that each time is converted between two near samples.
    sampler: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

struct Inner {
    begun: i64,
    /// The most submissions recorded per queue, and the most host signals.
    capacity: usize,
    followers: Mutex<Vec<Arc<Follower>>>,
    timelines: Mutex<Timelines>,
    host: Mutex<(Vec<HostSignal>, u64)>,
    /// By the submission's point on its queue's position.
    labels: Mutex<HashMap<Edge, String>>,
    /// The history of each clock relative to the host's, since it was first followed.
    histories: Mutex<Vec<(Clock, History)>>,
}

/// The timelines that traced submissions wait for or signal.
#[derive(Default)]
struct Timelines {
    /// By the timeline's id.
    indices: HashMap<u64, usize>,
    names: Vec<String>,
    /// Their values when the trace first met them.
    reached: Vec<u64>,
    /// The timelines whose host signals are recorded.
    watched: Vec<Weak<Shared>>,
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

impl Trace {
    /// The number of submissions recorded per queue, and of host signals, without
    /// [`Trace::with_capacity`].
    pub const CAPACITY: usize = 100_000;
    /// The interval at which the devices' clocks are sampled.
    pub const SAMPLED_EVERY: Duration = Duration::from_millis(250);

    /// Begins a trace that follows no queue yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(Self::CAPACITY)
    }

    /// Begins a trace that records up to `capacity` submissions per queue and as many host signals.
    ///
    /// Later ones are counted and not recorded. A recorded submission takes about 300 bytes. Memory
    /// is allocated as submissions come. The trace also grows by 100 bytes per second and clock, to
    /// convert early times as exactly as late ones.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let inner = Arc::new(Inner {
            begun: HostClock::Monotonic.now(),
            capacity,
            followers: Mutex::default(),
            timelines: Mutex::default(),
            host: Mutex::default(),
            labels: Mutex::default(),
            histories: Mutex::default(),
        });
        let ended = Arc::new(AtomicBool::new(false));
        let (sampled, until) = (Arc::downgrade(&inner), ended.clone());
        let sampler = thread::Builder::new()
            .name("syncline-trace".into())
            .spawn(move || keep_sampling(&sampled, &until));
        Self {
            inner,
            // Without the thread, conversions of a long trace are less exact and state a larger
            // error.
            sampler: sampler.ok().map(|thread| (ended, thread)),
        }
    }

    /// Records the submissions of `queue` from now on.
    ///
    /// Makes its device's [clock](crate::backend::Device::clock) if there is none yet, so call this
    /// at set-up, and samples it once. Without a clock or without times of the queue only host
    /// times are recorded, and [`Track::untimed`] says why.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if another trace follows the queue, or its
    /// backend cannot be traced.
    pub fn follow<Q: Queue>(&self, queue: &Q) -> Result<()> {
        let inner = &self.inner;
        let follower = queue
            .traceable()?
            .follow(|queue| Follower::new(inner, queue))?;
        inner.followers.lock().push(follower.clone());
        if let Some(clock) = follower.clock() {
            // Conversions begin with this sample. If it fails, later samples are tried, and the
            // track reports it.
            inner.sample(clock);
        }
        Ok(())
    }

    /// Labels the submission that ends at `end` ([`Submitted::end`](crate::Submitted::end)).
    ///
    /// A later label replaces it.
    ///
    /// Does nothing if `end` is not a position of a traced queue, or if its submission was not
    /// recorded.
    pub fn label(&self, end: Point<'_>, label: &str) {
        let Some(of) = end.of else { return };
        let known = self
            .inner
            .timelines
            .lock()
            .indices
            .get(&of.object().id())
            .copied();
        let Some(timeline) = known else { return };
        let value = end.value;
        let noted = self
            .inner
            .followers
            .lock()
            .iter()
            .any(|follower| follower.has_noted(timeline, value));
        if noted {
            self.inner
                .labels
                .lock()
                .insert(Edge { timeline, value }, label.into());
        }
    }

    /// Ends the trace and returns what was recorded.
    ///
    /// Blocks for up to `patience` until submissions have finished, and while the clocks are
    /// sampled once more. Submissions that have not finished by then are recorded as they are.
    #[must_use]
    pub fn finish(mut self, patience: Duration) -> Recording {
        let until = Instant::now().checked_add(patience);
        self.end();
        let ended = HostClock::Monotonic.now();
        let followers = std::mem::take(&mut *self.inner.followers.lock());
        for follower in &followers {
            let left = until.map_or(patience, |until| {
                until.saturating_duration_since(Instant::now())
            });
            follower.wait(left);
        }
        let clocks = self
            .inner
            .clocks(followers.iter().filter_map(|one| one.clock()));
        let mut labels = std::mem::take(&mut *self.inner.labels.lock());
        let mut tracks: Vec<_> = followers
            .iter()
            .map(|follower| follower.track(&mut labels, |clock, time| clocks.to_host(clock, time)))
            .collect();
        tracks.sort_by(|one, other| {
            let key = |track: &Track| (track.backend.to_string(), track.device.clone());
            key(one).cmp(&key(other))
        });
        let (mut host_signals, host_lost) = std::mem::take(&mut *self.inner.host.lock());
        host_signals.sort_by_key(|signal| signal.at);
        let timelines = std::mem::take(&mut *self.inner.timelines.lock());
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
        // Without the lock: this may drop objects of the application.
        let followers = self.inner.followers.lock().clone();
        for follower in &followers {
            follower.stop();
        }
        for timeline in std::mem::take(&mut self.inner.timelines.lock().watched) {
            if let Some(timeline) = timeline.upgrade() {
                let inner: Arc<dyn ObserveHostSignals> = self.inner.clone();
                timeline.host_signals().remove(&inner);
            }
        }
        if let Some((ended, thread)) = self.sampler.take() {
            ended.store(true, Ordering::Release);
            thread.thread().unpark();
            // A panic of the thread has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.end();
        // On this thread, because these may be the last references to devices.
        let followers = std::mem::take(&mut *self.inner.followers.lock());
        drop(followers);
        let histories = std::mem::take(&mut *self.inner.histories.lock());
        drop(histories);
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} queues)", self.inner.followers.lock().len())
    }
}

impl Inner {
    /// The index of a timeline. If it is `awaited`, its host signals are recorded from now on.
    fn timeline(self: &Arc<Self>, of: &Arc<Shared>, awaited: bool) -> usize {
        // Before its value is read, so that each signal is either noted or part of the value.
        let observer: Arc<dyn ObserveHostSignals> = self.clone();
        let taken = awaited && of.host_signals().add(&observer);
        let mut timelines = self.timelines.lock();
        let id = of.object().id();
        let index = match timelines.indices.get(&id) {
            Some(&index) => index,
            None => {
                let index = timelines.names.len();
                timelines.names.push(of.object().label().to_owned());
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
    /// Removes the signal that was noted with the same arguments and then refused.
    fn forget(&self, timeline: &Shared, value: u64, at: i64) {
        let timelines = self.timelines.lock();
        let Some(&timeline) = timelines.indices.get(&timeline.object().id()) else {
            return;
        };
        drop(timelines);
        let signal = Edge { timeline, value };
        let mut host = self.host.lock();
        let same = |one: &HostSignal| one.signal == signal && one.at == at;
        match host.0.iter().rposition(same) {
            Some(index) => drop(host.0.remove(index)),
            None => host.1 = host.1.saturating_sub(1),
        }
    }

    /// Notes a host signal of `value`.
    fn note(&self, timeline: &Shared, value: u64, at: i64) {
        let index = self
            .timelines
            .lock()
            .indices
            .get(&timeline.object().id())
            .copied();
        let Some(timeline) = index else { return };
        let thread = thread::current();
        let thread = match thread.name() {
            Some(name) => name.to_owned(),
            None => format!("{:?}", thread.id()),
        };
        let mut host = self.host.lock();
        if host.0.len() < self.capacity {
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
        let followers = inner.followers.lock().clone();
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

/// The traced clocks, each with the history that converts its times.
struct Clocks(Vec<(Clock, Arc<History>)>);

impl Inner {
    /// Samples a clock for conversions. A clock that is silent is sampled again next time.
    fn sample(&self, clock: &Clock) {
        let _ = clock.sample();
        let mut histories = self.histories.lock();
        let known = histories.iter().position(|(one, _)| one.is_same(clock));
        let at = known.unwrap_or_else(|| {
            histories.push((clock.clone(), History::default()));
            histories.len() - 1
        });
        if let Some((clock, history)) = histories.get_mut(at) {
            // Under the lock, so in the order of the samples.
            history.update(clock.map());
        }
    }

    /// Samples each clock for the last time, and chooses the history that converts its times.
    ///
    /// Clocks that are found to be one are converted by the first of them, so that differences of
    /// their times stay exact. After the last sample every recorded time lies between two samples.
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
        let histories = std::mem::take(&mut *self.histories.lock());
        let histories: Vec<_> = histories
            .into_iter()
            .map(|(clock, history)| (clock, Arc::new(history.finish())))
            .collect();
        let with_history = |(clock, by): (&Clock, &Clock)| {
            let mut histories = histories.iter();
            let (_, history) = histories.find(|(one, _)| one.is_same(by))?;
            Some((clock.clone(), history.clone()))
        };
        Clocks(known.into_iter().filter_map(with_history).collect())
    }
}

impl Clocks {
    fn to_host(&self, clock: &Clock, time: i64) -> Option<Estimate> {
        let (_, history) = self.0.iter().find(|(one, _)| one.is_same(clock))?;
        history.to_host(time)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::atomic::AtomicI64;

    use super::*;
    use crate::base::error::Object;
    use crate::clock::{Sample, Sampler};

    /// A clock whose samples are a quarter of a second apart.
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
            let found = clocks.to_host(&clock, device).unwrap();
            let off = found.nanoseconds.abs_diff(device + 5_000);
            assert!(
                off <= found.error && found.error < 1_200,
                "{off} {found:?} {second}"
            );
        }
    }
}
