//! A payload that this device uses: its page, and the driver's semaphore that follows the page.
#![allow(unsafe_code, reason = "calls the driver")]

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ash::vk;
use syncline_software_payload as software;

use crate::device::{Device, Driver};
use crate::queue::QueueState;
use crate::table::lock;

/// The longest sleep of a thread before it reads a page again.
///
/// A process that is killed between a store and the wake-up call wakes no thread.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A payload in use.
///
/// Several semaphores can have one page, also of one device. Each has its own `Payload`.
pub(crate) struct Payload {
    pub(crate) page: software::Semaphore,
    /// The descriptor to export, if the semaphore was made for export.
    pub(crate) file: Mutex<Option<OwnedFd>>,
    driver: Arc<Driver>,
    follower: Mutex<Follower>,
    /// The thread that follows the page, once it is needed.
    watcher: Mutex<Option<JoinHandle<()>>>,
    ends: AtomicBool,
    /// The value that only this process has reached. It is 0 without a planted bug.
    here: AtomicU64,
    /// The last batch that waits for the follower: its queue, and its number there.
    waited_by: Mutex<Option<(Arc<QueueState>, u64)>>,
}

/// The timeline semaphore of the driver that queues wait for.
struct Follower {
    /// Null after the end.
    semaphore: vk::Semaphore,
    /// Its last signalled value.
    value: u64,
}

impl Payload {
    pub(crate) fn new(
        page: software::Semaphore,
        driver: Arc<Driver>,
    ) -> Result<Arc<Self>, vk::Result> {
        let value = page.value();
        let semaphore = driver.timeline(value)?;
        Ok(Arc::new(Self {
            page,
            file: Mutex::default(),
            driver,
            follower: Mutex::new(Follower { semaphore, value }),
            watcher: Mutex::new(None),
            ends: AtomicBool::new(false),
            here: AtomicU64::new(0),
            waited_by: Mutex::new(None),
        }))
    }

    /// Returns the value for this process, which is the page's.
    pub(crate) fn value(&self) -> u64 {
        self.page.value().max(self.here.load(Ordering::Acquire))
    }

    /// Does the same as [`Payload::reach`] for this process only. Only a planted bug calls it.
    pub(crate) fn reach_here(&self, value: u64) {
        self.here.fetch_max(value, Ordering::AcqRel);
        self.follow();
    }

    /// Signals the follower to the value of the page, unless it has that value.
    ///
    /// Never to a lower one: lavapipe would lose its device.
    fn follow(&self) -> u64 {
        let mut follower = lock(&self.follower);
        let value = self.value();
        if value > follower.value && follower.semaphore != vk::Semaphore::null() {
            let info = vk::SemaphoreSignalInfo::default()
                .semaphore(follower.semaphore)
                .value(value);
            // SAFETY: a live timeline semaphore, which only this function signals, under the lock.
            let signalled =
                unsafe { (self.driver.signal_semaphore)(self.driver.device, &raw const info) };
            if signalled == vk::Result::SUCCESS {
                follower.value = value;
            }
        }
        follower.value
    }

    /// A signal operation has executed: stores its value, and wakes all waiters.
    pub(crate) fn reach(&self, value: u64) {
        // The page first. A queue that continues because of the follower may show its own signal
        // to the host, which then has to find this one.
        self.page.reach(value);
        self.follow();
    }

    /// True if an earlier signal than number `value` of a binary semaphore has not been made.
    pub(crate) fn misses_signals_before(&self, value: u64) -> bool {
        self.page.kind() == software::Kind::Binary && self.value().saturating_add(1) < value
    }

    /// Returns the semaphore that a queue waits for instead of the page.
    ///
    /// The follower reaches `value` after the page does.
    pub(crate) fn follower_for(self: &Arc<Self>, value: u64) -> Result<vk::Semaphore, vk::Result> {
        if self.follow() < value {
            let mut watcher = lock(&self.watcher);
            if watcher.is_none() {
                let payload = self.clone();
                let thread = std::thread::Builder::new().name("syncline-payload".into());
                let started = thread.spawn(move || payload.watch());
                *watcher = Some(started.map_err(|_| vk::Result::ERROR_OUT_OF_HOST_MEMORY)?);
            }
        }
        Ok(lock(&self.follower).semaphore)
    }

    /// Notes that a batch waits for the follower.
    pub(crate) fn note_wait(&self, queue: Arc<QueueState>, number: u64) {
        *lock(&self.waited_by) = Some((queue, number));
    }

    fn watch(&self) {
        loop {
            let seen = self.page.news();
            if self.ends.load(Ordering::Acquire) {
                return;
            }
            self.follow();
            self.page.sleep(seen, Some(LOOK_AGAIN));
        }
    }

    /// Returns `SUCCESS`, or the error of the device.
    pub(crate) fn device_status(&self) -> vk::Result {
        let follower = lock(&self.follower);
        if follower.semaphore == vk::Semaphore::null() {
            return vk::Result::SUCCESS;
        }
        // SAFETY: a live timeline semaphore, because the lock is held.
        match unsafe { self.driver.value(follower.semaphore) } {
            Ok(_) => vk::Result::SUCCESS,
            Err(code) => code,
        }
    }

    /// Waits on the host until the page has reached `value`.
    pub(crate) fn wait(
        &self,
        device: &Device,
        value: u64,
        deadline: Option<Instant>,
    ) -> vk::Result {
        loop {
            let seen = self.page.news();
            device.catch_up();
            if self.value() >= value {
                return vk::Result::SUCCESS;
            }
            let lost = self.device_status();
            if lost != vk::Result::SUCCESS {
                return lost;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return vk::Result::TIMEOUT;
            }
            let sleep = left.map_or(LOOK_AGAIN, |left| left.min(LOOK_AGAIN));
            self.page.sleep(seen, Some(sleep));
        }
    }

    /// Closes the descriptor and ends the thread.
    ///
    /// Destroys the follower if no queue can be using it.
    pub(crate) fn end(&self, unused: bool) {
        drop(lock(&self.file).take());
        self.ends.store(true, Ordering::Release);
        let watcher = lock(&self.watcher).take();
        if let Some(watcher) = watcher {
            // Sleepers of other processes read the page once more, without a change.
            self.page.wake();
            let _ = watcher.join();
        }
        let mut follower = lock(&self.follower);
        let semaphore = std::mem::take(&mut follower.semaphore);
        drop(follower);
        let waited_by = lock(&self.waited_by).take();
        if !unused || semaphore == vk::Semaphore::null() {
            return;
        }
        match waited_by {
            Some((queue, number)) => queue.destroy_behind(number, semaphore),
            // SAFETY: of this device. No queue has used it, the thread has ended, and other threads
            // find null from here on.
            None => unsafe { self.driver.destroy(semaphore) },
        }
    }
}
