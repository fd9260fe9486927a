//! A trace, from its begin to its end.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::clocks::Histories;
use super::follower::Follower;
use super::recording::{Edge, Recording, Track};
use super::timelines::Timelines;
use crate::api::Queue;
use crate::base::error::Result;
use crate::base::exiting::DriverCalls;
use crate::base::process::DroppedByMaker;
use crate::base::sync::Mutex;
use crate::clock::HostClock;
use crate::timeline::point::Point;

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
    inner: DroppedByMaker<Arc<Inner>>,
    /// The thread that samples the clocks, so that each time is converted between two near samples.
    sampler: DroppedByMaker<Option<(Arc<AtomicBool>, JoinHandle<()>)>>,
}

struct Inner {
    begun: i64,
    /// The most submissions recorded per queue.
    capacity: usize,
    followers: Mutex<Vec<Arc<Follower>>>,
    timelines: Arc<Timelines>,
    /// By the submission's point on its queue's position.
    labels: Mutex<HashMap<Edge, String>>,
    histories: Histories,
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
            timelines: Arc::new(Timelines::new(capacity)),
            labels: Mutex::default(),
            histories: Histories::default(),
        });
        let ended = Arc::new(AtomicBool::new(false));
        let (sampled, until) = (Arc::downgrade(&inner), ended.clone());
        let sampler = thread::Builder::new()
            .name("syncline-trace".into())
            .spawn(move || keep_sampling(&sampled, &until));
        Self {
            inner: DroppedByMaker::new(inner),
            // Without the thread, conversions of a long trace are less exact and state a larger
            // error.
            sampler: DroppedByMaker::new(sampler.ok().map(|thread| (ended, thread))),
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
            .follow(|queue| Follower::new(&inner.timelines, inner.capacity, queue))?;
        inner.followers.lock().push(follower.clone());
        if let Some(clock) = follower.clock() {
            // Conversions begin with this sample. If it fails, later samples are tried, and the
            // track reports it.
            inner.histories.sample(clock);
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
        let Some(timeline) = self.inner.timelines.index(of) else {
            return;
        };
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
            .histories
            .finish(followers.iter().filter_map(|one| one.clock()));
        let mut labels = std::mem::take(&mut *self.inner.labels.lock());
        let mut tracks: Vec<_> = followers
            .iter()
            .map(|follower| follower.track(&mut labels, |clock, time| clocks.to_host(clock, time)))
            .collect();
        tracks.sort_by(|one, other| {
            let key = |track: &Track| (track.backend.to_string(), track.device.clone());
            key(one).cmp(&key(other))
        });
        let mut recording = Recording {
            begun: self.inner.begun,
            ended,
            tracks,
            ..Recording::default()
        };
        self.inner.timelines.take(&mut recording);
        recording
    }

    fn end(&mut self) {
        // Without the lock: this may drop objects of the application.
        let followers = self.inner.followers.lock().clone();
        for follower in &followers {
            follower.stop();
        }
        self.inner.timelines.stop();
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
        // In a forked child there is no such thread, and another thread may have held a lock.
        if !self.inner.maker().is_this() {
            return;
        }
        self.end();
        // On this thread, because these may be the last references to devices.
        let followers = std::mem::take(&mut *self.inner.followers.lock());
        drop(followers);
        self.inner.histories.clear();
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} queues)", self.inner.followers.lock().len())
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
                let Some(_calls) = DriverCalls::begin() else {
                    continue;
                };
                inner.histories.sample(clock);
            }
        }
    }
}
