//! The signals of one queue: what it signals in the driver, and what that stands for.
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

/// How long a wait of the driver lasts at most, in nanoseconds. The thread then looks whether its
/// device ends.
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
    /// How many batches are in `pending`.
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
    /// What [`Bug::LosesLastValue`] keeps back.
    kept_back: Vec<(Arc<Payload>, u64)>,
}

/// One batch of a submission.
#[derive(Default)]
pub(crate) struct Batch {
    /// The count that it signals.
    pub(crate) number: u64,
    /// What it signals, and to which values.
    pub(crate) signals: Vec<(Arc<Payload>, u64)>,
    /// Temporary payloads that it waits for, which no semaphore has any more.
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

    /// Holds the numbers of this queue for as long as a submission is made.
    pub(crate) fn numbers(&self) -> MutexGuard<'_, u64> {
        lock(&self.numbers)
    }

    /// Takes batches that are about to be submitted. Before the driver has them, because another
    /// thread may see their effects before `vkQueueSubmit` returns.
    pub(crate) fn push(&self, batches: Vec<Batch>) {
        let mut pending = lock(&self.pending);
        self.behind.fetch_add(batches.len(), Ordering::AcqRel);
        pending.batches.extend(batches);
        drop(pending);
        self.news.notify_one();
    }

    /// Gives back the batches above `number`, which the driver has refused.
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
            // The device is lost. What it has not signalled never comes.
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
                payload.reach(value);
            }
            spent.extend(batch.spent);
            // After the stores: a thread that finds nothing behind reads the pages without the
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

    /// Destroys a follower once a batch behind `number` has been executed. That one was the last to
    /// wait for it, and the application takes it for complete.
    ///
    /// Lavapipe's thread signals what a batch signals, and only then lets go of what the batch has
    /// waited for. In Mesa 22.3.6 that is a use after free, if the semaphore is destroyed in
    /// between.
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

    /// Stores the signals of the batches up to `number`, which the driver is just completing.
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
                // The device is lost: its signals never come.
                _ => return,
            }
        }
    }

    /// The number of the batch that is executed next. `None` at the end.
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

    /// Ends the thread. False if a batch has not been executed, so that it may still use
    /// semaphores.
    pub(crate) fn stop(&self) -> bool {
        self.catch_up();
        {
            // With the lock, or the thread could miss the news.
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

    /// Destroys what the layer has made, behind [`QueueState::stop`]. `unused`: no queue can be
    /// using it.
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
