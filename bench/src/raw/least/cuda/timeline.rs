//! A timeline: its claimed values, its submitted signals, and the queues that wait for more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::{Claims, lock};
use super::queue::{Queue, release};
use super::{CROWDED, Mark};
use crate::raw::cuda::Calls;
#[cfg(feature = "vulkan")]
use crate::raw::cuda::External;
use crate::side::{Outcome, Stop};

/// Submitted signals, in rising order. They complete in this order.
#[derive(Default)]
struct Ring {
    signals: VecDeque<Signal>,
    /// Queues that hold a submission until a value is pending.
    waiters: Vec<(u64, Arc<Queue>)>,
    crowded: usize,
}

struct Signal {
    value: u64,
    mark: Arc<Mark>,
    by: usize,
}

/// A timeline. A shared one has a semaphore of a [`Hand`](crate::raw::cuda::Hand), which outlives
/// it.
///
/// The floor does not destroy semaphores. An engine does so a few frames later, and no submission
/// gets slower.
pub(crate) struct Timeline {
    calls: Calls,
    pub(super) claims: Claims,
    /// The highest value known to be reached.
    reached: AtomicU64,
    /// The highest value whose signal was submitted. Written with the ring locked.
    pub(super) pending: AtomicU64,
    /// The queue that signals `pending`; 0 if it is none of these queues. Written before `pending`.
    pub(super) by: AtomicUsize,
    /// Set when a claimed value never comes (E1, E2).
    ///
    /// A submission was refused, or would have waited for another failed timeline.
    failed: AtomicBool,
    ring: Mutex<Ring>,
    #[cfg(feature = "vulkan")]
    pub(super) shared: Option<External>,
}

#[cfg(feature = "vulkan")]
// SAFETY: an imported semaphore may be used from any thread. All other fields are `Send` and `Sync`
// by themselves.
unsafe impl Send for Timeline {}
#[cfg(feature = "vulkan")]
// SAFETY: as for sending.
unsafe impl Sync for Timeline {}

/// The wait that a stream needs for a value.
pub(super) enum Found {
    /// None.
    Reached,
    Event(Arc<Mark>, usize),
    #[cfg(feature = "vulkan")]
    Shared(External),
    /// The signal is not pending.
    Missing,
    /// The value never comes.
    Failed,
}

impl Timeline {
    pub(crate) fn new(calls: &Calls) -> Arc<Self> {
        Arc::new(Self {
            calls: *calls,
            claims: Claims::default(),
            reached: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            by: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            ring: Mutex::default(),
            #[cfg(feature = "vulkan")]
            shared: None,
        })
    }

    /// A timeline that Vulkan shares.
    #[cfg(feature = "vulkan")]
    pub(crate) fn shared(calls: &Calls, semaphore: External) -> Arc<Self> {
        let mut timeline = Self::new(calls);
        if let Some(timeline) = Arc::get_mut(&mut timeline) {
            timeline.shared = Some(semaphore);
        }
        timeline
    }

    #[inline]
    pub(super) fn find(&self, value: u64) -> Found {
        if self.reached.load(Ordering::Acquire) >= value {
            return Found::Reached;
        }
        if self.has_failed() {
            return Found::Failed;
        }
        #[cfg(feature = "vulkan")]
        if let Some(semaphore) = self.shared {
            return if self.pending.load(Ordering::Acquire) >= value {
                Found::Shared(semaphore)
            } else {
                Found::Missing
            };
        }
        self.event(value)
    }

    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Fails the timeline, and wakes all queues that hold submissions for it.
    #[cold]
    pub(super) fn fail(&self, woken: &mut Vec<Arc<Queue>>) {
        let mut ring = lock(&self.ring);
        self.failed.store(true, Ordering::Release);
        woken.extend(ring.waiters.drain(..).map(|(_, queue)| queue));
    }

    /// The event of the first signal at or above `value`.
    #[inline]
    pub(super) fn event(&self, value: u64) -> Found {
        let ring = lock(&self.ring);
        let signals = &ring.signals;
        // Mostly it is the last signal.
        let at = match signals.len() {
            0 => 0,
            1 => usize::from(signals[0].value < value),
            len if signals[len - 2].value < value => {
                len - usize::from(signals[len - 1].value >= value)
            }
            _ => signals.partition_point(|signal| signal.value < value),
        };
        match signals.get(at) {
            Some(signal) => Found::Event(signal.mark.clone(), signal.by),
            // The value may have been reached in the meantime.
            None if self.reached.load(Ordering::Acquire) >= value => Found::Reached,
            None => Found::Missing,
        }
    }

    /// Adds the submitted signal of `value`, which completes with `mark`.
    #[inline]
    pub(super) fn submitted(
        &self,
        value: u64,
        mark: Arc<Mark>,
        by: usize,
        woken: &mut Vec<Arc<Queue>>,
    ) {
        let mut ring = lock(&self.ring);
        ring.signals.push_back(Signal { value, mark, by });
        self.now_pending(&mut ring, value, by, woken);
        let crowded = ring.signals.len() >= ring.crowded.max(CROWDED);
        drop(ring);
        if crowded {
            self.trim();
        }
    }

    #[inline]
    fn now_pending(&self, ring: &mut Ring, value: u64, by: usize, woken: &mut Vec<Arc<Queue>>) {
        self.by.store(by, Ordering::Relaxed);
        self.pending.store(value, Ordering::Release);
        if !ring.waiters.is_empty() {
            let ready = ring.waiters.extract_if(.., |(wanted, _)| *wanted <= value);
            woken.extend(ready.map(|(_, queue)| queue));
        }
    }

    /// Drops the older half of the ring if it is complete.
    #[cold]
    fn trim(&self) {
        let middle = {
            let ring = lock(&self.ring);
            let middle = ring.signals.get(ring.signals.len() / 2);
            middle.map(|signal| (signal.value, signal.mark.clone()))
        };
        // An error of the driver is left to the threads that wait for the value.
        if let Some((value, mark)) = middle
            && self.calls.ask(mark.event) == Ok(true)
        {
            self.advance(value);
        }
        let mut ring = lock(&self.ring);
        ring.crowded = 2 * ring.signals.len();
    }

    /// Notes that all values up to `value` are reached.
    fn advance(&self, value: u64) {
        let mut ring = lock(&self.ring);
        let reached = self.reached.load(Ordering::Relaxed).max(value);
        self.reached.store(reached, Ordering::Release);
        let through = ring
            .signals
            .partition_point(|signal| signal.value <= reached);
        ring.signals.drain(..through);
    }

    /// Spins until `value` is reached.
    ///
    /// # Errors
    /// Errors of the driver, a failed timeline, and the time-out.
    pub(crate) fn wait(&self, value: u64, timeout: Duration) -> Outcome<()> {
        let start = Instant::now();
        // The event of the value, once it is submitted.
        let mut mark: Option<Arc<Mark>> = None;
        loop {
            if self.has_failed() {
                return Err(Stop::Failed("the timeline has failed".into()));
            }
            if let Some(mark) = &mark {
                if self.calls.ask(mark.event)? {
                    self.advance(value);
                    return Ok(());
                }
                std::hint::spin_loop();
            } else {
                match self.event(value) {
                    Found::Reached => return Ok(()),
                    Found::Event(found, _) => {
                        mark = Some(found);
                        continue;
                    }
                    // The value is not submitted yet.
                    _ => std::thread::yield_now(),
                }
            }
            if start.elapsed() > timeout {
                return Err(Stop::Failed("timed out".into()));
            }
        }
    }

    /// Signals `value` from the host, while no other signal is outstanding.
    ///
    /// # Errors
    /// A value that cannot be claimed. Errors of the driver for submissions that this releases.
    pub(crate) fn signal(&self, value: u64) -> Outcome<()> {
        let before = self.reached.load(Ordering::Acquire);
        self.claims.claim_above(before, value)?;
        let mut woken = Vec::new();
        {
            let mut ring = lock(&self.ring);
            self.reached.store(value, Ordering::Release);
            self.now_pending(&mut ring, value, 0, &mut woken);
        }
        release(woken)
    }

    /// Claims `value` of a shared timeline for a signal that was submitted elsewhere.
    #[cfg(feature = "vulkan")]
    pub(crate) fn promise(&self, value: u64) -> Outcome<()> {
        let before = self.pending.load(Ordering::Acquire);
        self.claims.claim_above(before, value)?;
        let mut woken = Vec::new();
        self.now_pending(&mut lock(&self.ring), value, 0, &mut woken);
        release(woken)
    }

    /// Wakes `queue` when `value` is pending or has failed. Returns false if that is already so.
    pub(super) fn register(&self, value: u64, queue: &Arc<Queue>) -> bool {
        let mut ring = lock(&self.ring);
        let missing = self.pending.load(Ordering::Acquire) < value && !self.has_failed();
        if missing {
            ring.waiters.push((value, queue.clone()));
        }
        missing
    }
}
