//! Waits for a binary semaphore that another process signals, and their release if it dies (E3).
#![allow(unsafe_code, reason = "callers vouch for waits and signals")]
#![cfg_attr(
    not(any(feature = "cuda", feature = "vulkan")),
    allow(
        dead_code,
        unreachable_code,
        unused_variables,
        reason = "no device has a binary semaphore"
    )
)]

use std::fmt;
#[cfg(feature = "vulkan")]
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use syncline_core::backend::{Device as _, Queue as _, StandbyThread};
use syncline_core::{
    Error, Fence, KeptPoint, QueueKind, Result, Timeline, WaitOnly, handle::BinaryFd,
};

#[cfg(feature = "vulkan")]
use super::parts::duplicate;
use crate::any::{Device, Queue, Recorder};
use crate::binary::BinarySemaphore;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// The waits of one device for a semaphore.
pub(crate) struct SemaphoreWaits {
    semaphore: BinarySemaphore,
    device: Device,
    /// A handle to import the semaphore into a second `VkDevice`. `None` for CUDA, which needs
    /// none.
    #[cfg_attr(not(feature = "vulkan"), allow(dead_code))]
    spare: Option<BinaryFd>,
    /// The queue that waits for the signals behind fences. Made on first use.
    consumer: Mutex<Option<Queue>>,
    /// Number of calls that are submitting a wait.
    submitting: AtomicUsize,
    submitted: Mutex<Vec<Wait>>,
    lost: OnceLock<Error>,
    /// Signals in place of the dead process. Started before the first wait.
    releasing: StandbyThread,
}

/// A wait that was submitted to a queue.
struct Wait {
    driver_queue: DriverQueue,
    /// The queue's position before the wait.
    before: KeptPoint,
    end: KeptPoint,
    /// The timeline behind the fence, if the wait is for a fence.
    consumed: Option<Timeline>,
}

/// Time at the head of its queue after which a wait counts as blocked. No API reports that.
///
/// If other work keeps the GPU busy for longer, the semaphore may be signalled already. Then it is
/// signalled again (P3).
const BLOCKED_AFTER: Duration = Duration::from_millis(200);

/// Limit for the work before a wait, and for the release of blocked queues.
///
/// Only the releasing thread waits that long.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Limit for a signal on another queue of the waiting device.
///
/// That queue may have other work, which may be waiting, too.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Family and index of a queue's `VkQueue`. `None` for CUDA, because CUDA queues share no stream.
type DriverQueue = Option<(u32, u32)>;

fn driver_queue(queue: &Queue) -> DriverQueue {
    match queue {
        #[cfg(feature = "vulkan")]
        Queue::Vulkan(queue) => Some((queue.family(), queue.index())),
        _ => None,
    }
}

impl Wait {
    fn is_over(&self) -> bool {
        !matches!(self.end.point().is_reached(), Ok(false))
    }

    /// True if the wait seems to be blocked by the semaphore alone.
    fn is_blocked(&self) -> bool {
        let _ = self.before.point().wait(RELEASE_TIMEOUT);
        let end = self.end.point().wait(BLOCKED_AFTER);
        matches!(end, Err(Error::TimedOut { .. }))
    }
}

/// Counts a call that is submitting a wait.
struct Submitting<'w>(&'w AtomicUsize);

impl<'w> Submitting<'w> {
    fn of(waits: &'w SemaphoreWaits) -> Self {
        waits.submitting.fetch_add(1, Ordering::SeqCst);
        // Either this call sees `lost`, or `signaller_lost` sees this call.
        fence(Ordering::SeqCst);
        Self(&waits.submitting)
    }
}

impl Drop for Submitting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl SemaphoreWaits {
    /// The waits of `device`. `spare` exports one more handle of the semaphore.
    ///
    /// # Errors
    /// The error of `spare`.
    pub(super) fn new(
        device: &Device,
        semaphore: &BinarySemaphore,
        spare: impl FnOnce() -> Result<BinaryFd>,
    ) -> Result<Self> {
        let spare = match device {
            #[cfg(feature = "vulkan")]
            Device::Vulkan(_) => Some(spare()?),
            _ => {
                let _ = spare;
                None
            }
        };
        Ok(Self {
            semaphore: semaphore.clone(),
            device: device.clone(),
            spare,
            consumer: Mutex::default(),
            submitting: AtomicUsize::new(0),
            submitted: Mutex::default(),
            lost: OnceLock::new(),
            releasing: StandbyThread::default(),
        })
    }

    /// Submits a wait to `queue`, which keeps `count` until the wait is over.
    ///
    /// While `count` exists, the loss of the signaller is noticed.
    ///
    /// # Errors
    /// The cause if the signaller is lost. [`Error::WrongDevice`]. [`Error::Native`] if the system
    /// has no thread. A driver error.
    ///
    /// # Safety
    /// A signal is pending, and nothing else waits for it.
    pub(crate) unsafe fn wait_on(
        self: &Arc<Self>,
        queue: &Queue,
        count: &Arc<WaitOnly>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.submit(queue, count, None) }
    }

    /// A fence for the pending signal. A separate queue waits for the signal.
    ///
    /// # Errors
    /// Same errors as [`SemaphoreWaits::wait_on`].
    ///
    /// # Safety
    /// Same conditions as [`SemaphoreWaits::wait_on`].
    pub(crate) unsafe fn pending(
        self: &Arc<Self>,
        label: &str,
        count: &Arc<WaitOnly>,
    ) -> Result<Fence> {
        self.check()?;
        let device = &self.device;
        let consumer = self.consumer()?;
        let consumed = device.timeline(label)?;
        let point = consumed.at(1).keep();
        // SAFETY: the caller's promise.
        unsafe { self.submit(&consumer, count, Some(consumed)) }?;
        Ok(Fence::foreign(device.id(), device.object(), label, point))
    }

    fn consumer(&self) -> Result<Queue> {
        let known = lock(&self.consumer).clone();
        if let Some(queue) = known {
            return Ok(queue);
        }
        let label = format!("{} (consumer)", self.semaphore.object().label());
        // Made without the lock. Dropped if another thread was faster.
        let made = self.device.queue(QueueKind::Transfer, &label)?;
        let mut kept = lock(&self.consumer);
        let first = kept.get_or_insert_with(|| made.clone()).clone();
        drop(kept);
        Ok(first)
    }

    /// # Safety
    /// Same conditions as [`SemaphoreWaits::wait_on`].
    unsafe fn submit(
        self: &Arc<Self>,
        queue: &Queue,
        count: &Arc<WaitOnly>,
        consumed: Option<Timeline>,
    ) -> Result<()> {
        let object = self.semaphore.object();
        self.releasing.start("syncline-releases", object)?;
        let _submitting = Submitting::of(self);
        self.check()?;
        let (waits, count) = (self.clone(), count.clone());
        let work = move |recorder: &mut Recorder<'_>| {
            // A held submission may get here long after the call.
            waits.check()?;
            recorder.keep(count);
            // SAFETY: the caller's promise.
            unsafe { recorder.wait_semaphore(&waits.semaphore) }
        };
        let before = queue.position().keep();
        let signal = consumed.as_ref().map(|consumed| consumed.signal_at(1));
        let end = queue.submit(&[], work, signal.as_slice())?.end().keep();
        self.remember(Wait {
            driver_queue: driver_queue(queue),
            before,
            end,
            consumed,
        });
        Ok(())
    }

    /// Adds a submitted wait, and removes those that are over.
    fn remember(&self, wait: Wait) {
        // Without the lock: checking a point may run held work of the application, which may wait
        // for this semaphore, too.
        let mut submitted = std::mem::take(&mut *lock(&self.submitted));
        submitted.retain(|wait| !wait.is_over());
        submitted.push(wait);
        lock(&self.submitted).append(&mut submitted);
    }

    /// # Errors
    /// The cause if the signaller is lost.
    fn check(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |cause| Err(cause.clone()))
    }

    /// Refuses new waits and fails the fences, because the signalling process is dead.
    ///
    /// If a queue is blocked, a thread signals in place of the dead process, until no queue is
    /// blocked.
    pub(super) fn signaller_lost(self: &Arc<Self>, cause: &Error) {
        if self.lost.set(cause.clone()).is_err() {
            return;
        }
        fence(Ordering::SeqCst);
        // No call can begin a wait from now on.
        let is_still = self.submitting.load(Ordering::SeqCst) == 0;
        if is_still {
            let mut submitted = std::mem::take(&mut *lock(&self.submitted));
            submitted.retain(|wait| !wait.is_over());
            if submitted.is_empty() {
                return;
            }
            lock(&self.submitted).append(&mut submitted);
        }
        let (waits, why) = (self.clone(), cause.clone());
        // Each call that submits a wait has started it before.
        self.releasing.run(move || waits.release_queues(&why));
    }

    fn release_queues(&self, cause: &Error) {
        while self.submitting.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let waits = std::mem::take(&mut *lock(&self.submitted));
        fail(&waits, cause);
        let start = Instant::now();
        let (mut made_here, mut second) = (false, None);
        for attempt in 0.. {
            if start.elapsed() > RELEASE_TIMEOUT || !waits.iter().any(Wait::is_blocked) {
                return;
            }
            // Retry after a failure: the driver may still be cleaning up after the dead process. If
            // all attempts fail, the queue stays blocked. The failed count reports the cause.
            let here = attempt % 2 == 0 && !made_here;
            match here.then(|| self.other_queue(&waits)).flatten() {
                Some(queue) => {
                    let made = signal(&queue, &self.semaphore, SIGNAL_TIMEOUT);
                    made_here = matches!(made, Ok(()) | Err(Error::TimedOut { .. }));
                }
                None => drop(self.signal_on_second_device(&mut second)),
            }
        }
    }

    /// A queue of this device with another `VkQueue` than the waiting ones. For CUDA, another
    /// stream.
    fn other_queue(&self, waits: &[Wait]) -> Option<Queue> {
        let kinds = [QueueKind::Compute, QueueKind::Transfer, QueueKind::Graphics];
        let mut queues = kinds
            .into_iter()
            .filter_map(|kind| self.device.queue(kind, "release").ok());
        queues.find(|queue| {
            let driver_queue = driver_queue(queue);
            driver_queue.is_none() || waits.iter().all(|wait| wait.driver_queue != driver_queue)
        })
    }

    /// Signals on a second device of the same GPU, because a device may have only one `VkQueue`.
    ///
    /// The first call opens the second device. That took eight seconds in one case while other
    /// processes used the GPU.
    fn signal_on_second_device(&self, second: &mut Option<(Queue, BinarySemaphore)>) -> Result<()> {
        if second.is_none() {
            *second = self.second_queue()?;
        }
        match &*second {
            Some((queue, semaphore)) => signal(queue, semaphore, RELEASE_TIMEOUT),
            None => signal(
                &self.device.queue(QueueKind::Compute, "release")?,
                &self.semaphore,
                RELEASE_TIMEOUT,
            ),
        }
    }

    /// A queue of a second device that has imported the semaphore. `None` for CUDA.
    fn second_queue(&self) -> Result<Option<(Queue, BinarySemaphore)>> {
        #[cfg(feature = "vulkan")]
        if let (Device::Vulkan(device), Some(spare)) = (&self.device, &self.spare) {
            let second = Device::Vulkan(open_again(device)?);
            let fd = duplicate(
                spare.as_fd(),
                syncline_core::handle::HandleKind::BinaryOpaqueFd,
            )?;
            // SAFETY: another handle of the same semaphore.
            let handle = unsafe { BinaryFd::from_fd(fd, spare.origin().clone()) };
            let semaphore = second.import_binary(handle, self.semaphore.object().label())?;
            return Ok(Some((
                second.queue(QueueKind::Compute, "release")?,
                semaphore,
            )));
        }
        Ok(None)
    }
}

/// Fails the fences of `waits`.
fn fail(waits: &[Wait], cause: &Error) {
    for consumed in waits.iter().filter_map(|wait| wait.consumed.as_ref()) {
        consumed.fail(cause.clone());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Submits one signal and waits at most `limit` for it.
fn signal(queue: &Queue, semaphore: &BinarySemaphore, limit: Duration) -> Result<()> {
    let signals = semaphore.clone();
    let work = move |recorder: &mut Recorder<'_>| {
        // SAFETY: a wait for the semaphore has been at the head of its queue for long without
        // completing. So the semaphore is unsignalled, unless the GPU has not got to that wait. The
        // process with the pending signal is dead, and so is its work, because drivers end the work
        // before the process counts as dead. If either assumption is wrong, or if an earlier
        // attempt is still behind other work of its queue, the semaphore is signalled twice.
        // Drivers treat that as one signal. No queue waits for a second signal: every wait begins
        // in `submit`, which refuses it by then.
        unsafe { recorder.signal_semaphore(&signals) }
    };
    queue.submit(&[], work, &[])?;
    queue.idle(limit)
}

/// Opens the GPU of `of` once more.
#[cfg(feature = "vulkan")]
fn open_again(of: &vulkan::Device) -> Result<vulkan::Device> {
    let info = of.info();
    let instance = vulkan::Instance::load()?;
    let same = |candidate: &vulkan::Candidate| {
        candidate.info.same_gpu(info) && candidate.info.driver_uuid == info.driver_uuid
    };
    match instance.devices()?.into_iter().find(same) {
        Some(candidate) => candidate.open(),
        None => Err(Error::Unavailable {
            backend: info.backend,
            reason: format!("{} is not listed any more", of.object()),
        }),
    }
}

impl fmt::Debug for SemaphoreWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SemaphoreWaits({})", self.semaphore.object())
    }
}
