//! A timeline: what is claimed of it, what is with the driver, and who waits for more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::{Claims, lock};
use super::queue::{Queue, release};
use super::{CROWDED, Mark};
use crate::lab::{Outcome, Stop};
use crate::raw::cuda::Calls;
#[cfg(feature = "vulkan")]
use crate::raw::cuda::External;

/// Signals that are with the driver, in rising order, in which they complete.
#[derive(Default)]
struct Ring {
    signals: VecDeque<Signal>,
    /// Queues that hold something until a value is pending.
    waiters: Vec<(u64, Arc<Queue>)>,
    crowded: usize,
}

struct Signal {
    value: u64,
    mark: Arc<Mark>,
    by: usize,
}

/// A timeline. A semaphore that Vulkan shares belongs to the [`Hand`](crate::raw::cuda::Hand) that
/// imported it, and outlives this: an engine destroys semaphores a few frames later, which costs a
/// submission nothing.
pub(crate) struct Timeline {
    calls: Calls,
    pub(super) claims: Claims,
    /// The highest value known to be reached.
    reached: AtomicU64,
    /// The highest value whose signal is with the driver. Written with the ring locked.
    pub(super) pending: AtomicU64,
    /// The queue that signals that; 0 if none of these does. Written before `pending`.
    pub(super) by: AtomicUsize,
    /// A submission that has claimed a value was refused, or would have waited for another failed
    /// timeline: the value never comes (E1, E2).
    failed: AtomicBool,
    ring: Mutex<Ring>,
    #[cfg(feature = "vulkan")]
    pub(super) shared: Option<External>,
}

#[cfg(feature = "vulkan")]
// SAFETY: an imported semaphore may be used from any thread; everything else is of any thread by
// itself.
unsafe impl Send for Timeline {}
#[cfg(feature = "vulkan")]
// SAFETY: as for sending.
unsafe impl Sync for Timeline {}

/// What a stream has to wait for.
pub(super) enum Found {
    /// Nothing.
    Reached,
    Event(Arc<Mark>, usize),
    #[cfg(feature = "vulkan")]
    Shared(External),
    /// Its signal is not pending.
    Missing,
    /// It never comes.
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

    /// One that Vulkan shares.
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

    /// It gets no further. Whoever waits for it to be pending is told.
    #[cold]
    pub(super) fn fail(&self, woken: &mut Vec<Arc<Queue>>) {
        let mut ring = lock(&self.ring);
        self.failed.store(true, Ordering::Release);
        woken.extend(ring.waiters.drain(..).map(|(_, queue)| queue));
    }

    /// The event of the first signal at or past `value`.
    #[inline]
    pub(super) fn event(&self, value: u64) -> Found {
        let ring = lock(&self.ring);
        let signals = &ring.signals;
        // Mostly it is the last.
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
            // It may have come meanwhile.
            None if self.reached.load(Ordering::Acquire) >= value => Found::Reached,
            None => Found::Missing,
        }
    }

    /// `value` is with the driver, and reached with `mark`.
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

    /// Drops the older half, if it is complete.
    #[cold]
    fn trim(&self) {
        let middle = {
            let ring = lock(&self.ring);
            let middle = ring.signals.get(ring.signals.len() / 2);
            middle.map(|signal| (signal.value, signal.mark.clone()))
        };
        // Whoever waits for it is told what the driver says.
        if let Some((value, mark)) = middle
            && self.calls.ask(mark.event) == Ok(true)
        {
            self.advance(value);
        }
        let mut ring = lock(&self.ring);
        ring.crowded = 2 * ring.signals.len();
    }

    /// Everything up to `value` is reached.
    fn advance(&self, value: u64) {
        let mut ring = lock(&self.ring);
        let reached = self.reached.load(Ordering::Relaxed).max(value);
        self.reached.store(reached, Ordering::Release);
        let through = ring
            .signals
            .partition_point(|signal| signal.value <= reached);
        ring.signals.drain(..through);
    }

    /// Blocks until `value` is reached, and looks all the time.
    ///
    /// # Errors
    /// What the driver says; a failed timeline; the end of the time.
    pub(crate) fn wait(&self, value: u64, timeout: Duration) -> Outcome<()> {
        let start = Instant::now();
        // The event of the value, once it is with the driver.
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
                    // Nobody has submitted it yet.
                    _ => std::thread::yield_now(),
                }
            }
            if start.elapsed() > timeout {
                return Err(Stop::Failed("timed out".into()));
            }
        }
    }

    /// The host signals `value`. Nothing else may be outstanding.
    ///
    /// # Errors
    /// A value that cannot be claimed; what the driver says of what this releases.
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

    /// Somebody else signals `value` of a shared timeline, and has submitted that already.
    #[cfg(feature = "vulkan")]
    pub(crate) fn promise(&self, value: u64) -> Outcome<()> {
        let before = self.pending.load(Ordering::Acquire);
        self.claims.claim_above(before, value)?;
        let mut woken = Vec::new();
        self.now_pending(&mut lock(&self.ring), value, 0, &mut woken);
        release(woken)
    }

    /// Has `queue` woken when `value` is pending, or never will be; false if one of them is so
    /// already.
    pub(super) fn register(&self, value: u64, queue: &Arc<Queue>) -> bool {
        let mut ring = lock(&self.ring);
        let missing = self.pending.load(Ordering::Acquire) < value && !self.has_failed();
        if missing {
            ring.waiters.push((value, queue.clone()));
        }
        missing
    }
}
