//! The signals of one queue: those of the driver, and the shared ones that they represent.
#![allow(unsafe_code, reason = "calls the driver")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use ash::vk;

use crate::bug::Bug;
use crate::device::Driver;
use crate::payload::Payload;
use crate::table::lock;

/// The longest wait of the driver, in nanoseconds. After it the thread checks for the device's end.
const ROUND: u64 = 20_000_000;

/// The batches of one queue that wait for shared semaphores or signal them.
pub(crate) struct QueueState {
    driver: Arc<Driver>,
    /// The count of batches with shared semaphores, as a timeline semaphore of the driver.
    ///
    /// Only this queue signals it.
    pub(crate) count: vk::Semaphore,
    /// The last number given to a batch. Locked while a submission is made.
    numbers: Mutex<u64>,
    pending: Mutex<Pending>,
    news: Condvar,
    /// The number of batches in `pending`.
    behind: AtomicUsize,
    ends: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Batches that have been submitted, and may have been executed.
#[derive(Default)]
struct Pending {
    batches: VecDeque<Batch>,
    /// The last batch that is known to have been executed.
    executed: u64,
    /// Followers to destroy, each with the number of the last batch that has waited for it.
    late: Vec<(u64, vk::Semaphore)>,
    /// The signals that [`Bug::LosesLastValue`] delays.
    kept_back: Vec<(Arc<Payload>, u64)>,
}

/// One batch of a submission.
#[derive(Default)]
pub(crate) struct Batch {
    /// The value to which it signals the count.
    pub(crate) number: u64,
    /// The payloads that it signals, with their values.
    pub(crate) signals: Vec<(Arc<Payload>, u64)>,
    /// Temporary payloads that it waits for. No semaphore has them any more.
    pub(crate) spent: Vec<Arc<Payload>>,
}

impl QueueState {
    pub(crate) fn start(driver: Arc<Driver>) -> Result<Arc<Self>, vk::Result> {
        let state = Arc::new(Self {
            count: driver.timeline(0)?,
            driver,
            numbers: Mutex::new(0),
            pending: Mutex::default(),
            news: Condvar::new(),
            behind: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            thread: Mutex::new(None),
        });
        let runs = state.clone();
        let thread = std::thread::Builder::new().name("syncline-queue".into());
        match thread.spawn(move || runs.run()) {
            Ok(thread) => *lock(&state.thread) = Some(thread),
            Err(_) => {
                // SAFETY: just made, and nothing uses it.
                unsafe { state.driver.destroy(state.count) };
                return Err(vk::Result::ERROR_OUT_OF_HOST_MEMORY);
            }
        }
        Ok(state)
    }

    /// Locks the numbers of this queue while a submission is made.
    pub(crate) fn numbers(&self) -> MutexGuard<'_, u64> {
        lock(&self.numbers)
    }

    /// Adds batches that are about to be submitted.
    ///
    /// The driver must not have them yet, because another thread may notice their effects before
    /// `vkQueueSubmit` returns.
    pub(crate) fn push(&self, batches: Vec<Batch>) {
        let mut pending = lock(&self.pending);
        self.behind.fetch_add(batches.len(), Ordering::AcqRel);
        pending.batches.extend(batches);
        drop(pending);
        self.news.notify_one();
    }

    /// Removes the batches above `number`, which the driver has refused.
    pub(crate) fn refused(&self, number: u64) {
        let mut pending = lock(&self.pending);
        let kept = pending
            .batches
            .iter()
            .filter(|batch| batch.number <= number);
        let kept = kept.count();
        let given_back = pending.batches.len() - kept;
        pending.batches.truncate(kept);
        self.behind.fetch_sub(given_back, Ordering::AcqRel);
    }

    /// True if there are batches whose signals are not in the pages yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Acquire) > 0
    }

    /// Stores the signals of the batches that have been executed.
    pub(crate) fn catch_up(&self) {
        // SAFETY: lives until the end of the device.
        let Ok(executed) = (unsafe { self.driver.value(self.count) }) else {
            // The device is lost. Outstanding signals never come.
            return;
        };
        let mut spent = Vec::new();
        let mut pending = lock(&self.pending);
        loop {
            let next = pending.batches.front();
            if next.is_none_or(|batch| batch.number > executed) {
                break;
            }
            let Some(batch) = pending.batches.pop_front() else {
                break;
            };
            let mut signals = batch.signals;
            if Bug::LosesLastValue.is_planted() {
                for (payload, value) in &signals {
                    payload.reach_here(*value);
                }
                std::mem::swap(&mut signals, &mut pending.kept_back);
            }
            for (payload, value) in signals {
                if Bug::SignalsInTurn.is_planted() && payload.misses_signals_before(value) {
                    continue;
                }
                payload.reach(value);
            }
            spent.extend(batch.spent);
            // After the stores: a thread that finds no such batches reads the pages without the
            // lock.
            self.behind.fetch_sub(1, Ordering::AcqRel);
        }
        pending.executed = pending.executed.max(executed);
        let late = pending
            .late
            .extract_if(.., |(number, _)| *number < executed);
        let late: Vec<_> = late.collect();
        drop(pending);
        for (_, semaphore) in late {
            // SAFETY: the queue has begun a later batch.
            unsafe { self.driver.destroy(semaphore) };
        }
        for payload in spent {
            payload.end(true);
        }
    }

    /// Destroys a follower once a batch after `number` has been executed.
    ///
    /// `number` was the last batch that waited for it, and the application considers it complete.
    ///
    /// Lavapipe's thread makes the signals of a batch, and only then releases the semaphores that
    /// the batch has waited for. In Mesa 22.3.6 that is a use after free, if the semaphore is
    /// destroyed in between.
    pub(crate) fn destroy_behind(&self, number: u64, semaphore: vk::Semaphore) {
        let mut pending = lock(&self.pending);
        if pending.executed <= number {
            pending.late.push((number, semaphore));
            return;
        }
        drop(pending);
        // SAFETY: the queue has begun a later batch, and no other waits for the semaphore.
        unsafe { self.driver.destroy(semaphore) };
    }

    /// Stores the signals of the batches up to `number`, which the driver is completing.
    pub(crate) fn complete(&self, number: u64) {
        let none = vk::SemaphoreWaitFlags::empty();
        // SAFETY: lives until the end of the device. An error is the loss of the device.
        let _ = unsafe { self.driver.wait(&[self.count], &[number], none, u64::MAX) };
        self.catch_up();
    }

    fn run(&self) {
        while let Some(number) = self.next() {
            // SAFETY: lives until the end of the device, which waits for this thread.
            let waited = unsafe {
                let none = vk::SemaphoreWaitFlags::empty();
                self.driver.wait(&[self.count], &[number], none, ROUND)
            };
            match waited {
                vk::Result::SUCCESS => self.catch_up(),
                vk::Result::TIMEOUT => {}
                // The device is lost, so its signals never come.
                _ => return,
            }
        }
    }

    /// Returns the number of the batch that is executed next, or `None` at the end.
    fn next(&self) -> Option<u64> {
        let mut pending = lock(&self.pending);
        loop {
            if self.ends.load(Ordering::Acquire) {
                return None;
            }
            if let Some(batch) = pending.batches.front() {
                return Some(batch.number);
            }
            pending = self
                .news
                .wait(pending)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the thread. Returns false if an unexecuted batch may still use semaphores.
    pub(crate) fn stop(&self) -> bool {
        self.catch_up();
        {
            // With the lock, because the thread could miss the wake-up otherwise.
            let _pending = lock(&self.pending);
            self.ends.store(true, Ordering::Release);
        }
        self.news.notify_all();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        lock(&self.pending).batches.is_empty()
    }

    /// Destroys the layer's objects after [`QueueState::stop`].
    ///
    /// `unused` means that no queue can be using them.
    pub(crate) fn end(&self, unused: bool) {
        let pending = std::mem::take(&mut *lock(&self.pending));
        for payload in pending.batches.into_iter().flat_map(|batch| batch.spent) {
            payload.end(unused);
        }
        if !unused {
            return;
        }
        let late = std::mem::take(&mut lock(&self.pending).late);
        for (_, semaphore) in pending.late.into_iter().chain(late) {
            // SAFETY: of this device, which is idle.
            unsafe { self.driver.destroy(semaphore) };
        }
        // SAFETY: of this device. All batches that signal it have been executed.
        unsafe { self.driver.destroy(self.count) };
    }
}
