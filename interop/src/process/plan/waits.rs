//! Waits for a binary semaphore that another process signals, and what lets them go if that one
//! dies (E3).
#![allow(unsafe_code, reason = "waits and signals where callers vouch for it")]
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

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{BinaryFd, Error, Fence, KeptPoint, QueueKind, Result, Timeline, WaitOnly};

#[cfg(feature = "vulkan")]
use super::parts::duplicate;
use crate::any::{Device, Queue, Recorder};
use crate::binary::BinarySemaphore;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// What one device waits for.
pub(crate) struct SemaphoreWaits {
    semaphore: BinarySemaphore,
    device: Device,
    /// Another handle of the semaphore, to import it into a second `VkDevice`. None for CUDA, where
    /// none is needed.
    #[cfg_attr(not(feature = "vulkan"), allow(dead_code))]
    spare: Option<BinaryFd>,
    /// Where fences have signals consumed; made when first needed.
    consumer: Mutex<Option<Queue>>,
    /// Calls that are about to submit a wait.
    submitting: AtomicUsize,
    submitted: Mutex<Vec<Wait>>,
    lost: OnceLock<Error>,
}

/// One that a queue has been given.
struct Wait {
    driver_queue: DriverQueue,
    /// What the queue had before.
    before: KeptPoint,
    end: KeptPoint,
    /// What a fence stands for.
    consumed: Option<Timeline>,
}

/// A wait at the head of its queue that takes so long is taken for one whose signal has not come:
/// no API tells. On a GPU that others keep busy for as long it may have come, and is signalled once
/// more then.
const BLOCKED_AFTER: Duration = Duration::from_millis(200);

/// How long the work before a wait may take, and a signal in the place of the dead. Nobody waits
/// for the thread that does.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a signal may take on another queue of the waiting device. That queue may have other
/// work, which waits in turn.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(1);

/// What a queue runs on: family and index of its `VkQueue`. None for CUDA, whose streams never
/// share one.
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

    /// True if nothing but the semaphore is what it waits for.
    fn is_blocked(&self) -> bool {
        let _ = self.before.point().wait(RELEASE_TIMEOUT);
        let end = self.end.point().wait(BLOCKED_AFTER);
        matches!(end, Err(Error::TimedOut { .. }))
    }
}

/// That a call is about to submit a wait.
struct Submitting<'w>(&'w AtomicUsize);

impl<'w> Submitting<'w> {
    fn of(waits: &'w SemaphoreWaits) -> Self {
        waits.submitting.fetch_add(1, Ordering::SeqCst);
        // Either this finds it lost, or who loses it finds this.
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
    /// `spare` is one more handle of the semaphore.
    ///
    /// # Errors
    /// It cannot be had.
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
        })
    }

    /// Has `queue` wait, and `count` kept until it is through: from there comes word of a loss.
    ///
    /// # Errors
    /// Nobody signals any more; [`Error::WrongDevice`]; a driver error.
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

    /// A fence for the signal, which a queue of its own consumes.
    ///
    /// # Errors
    /// As [`Waits::wait_on`].
    ///
    /// # Safety
    /// As there.
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
        // Made without the lock, and dropped so, if another thread's is there first.
        let made = self.device.queue(QueueKind::Transfer, &label)?;
        let mut kept = lock(&self.consumer);
        let first = kept.get_or_insert_with(|| made.clone()).clone();
        drop(kept);
        Ok(first)
    }

    /// # Safety
    /// As [`Waits::wait_on`].
    unsafe fn submit(
        self: &Arc<Self>,
        queue: &Queue,
        count: &Arc<WaitOnly>,
        consumed: Option<Timeline>,
    ) -> Result<()> {
        let _beginning = Submitting::of(self);
        self.check()?;
        let (waits, count) = (self.clone(), count.clone());
        let work = move |recorder: &mut Recorder<'_>| {
            // Where it was held that may be long after the call.
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

    /// Keeps a wait that has been submitted, and forgets those that are over.
    fn remember(&self, wait: Wait) {
        // Looked at without the lock: whoever sees something reached may have held work of the
        // application's to do, which waits for this semaphore, too.
        let mut submitted = std::mem::take(&mut *lock(&self.submitted));
        submitted.retain(|wait| !wait.is_over());
        submitted.push(wait);
        lock(&self.submitted).append(&mut submitted);
    }

    /// # Errors
    /// Why nobody signals any more.
    fn check(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |cause| Err(cause.clone()))
    }

    /// The signalling process is dead. New waits are refused from here on, and fences for what has
    /// not come fail.
    ///
    /// A queue that stands still is released by a signal, made on a thread of its own, and again
    /// until the queue goes on.
    pub(super) fn signaller_lost(self: &Arc<Self>, cause: &Error) {
        if self.lost.set(cause.clone()).is_err() {
            return;
        }
        fence(Ordering::SeqCst);
        // Nobody begins any more.
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
        let thread = std::thread::Builder::new().name("syncline-releases".into());
        if thread.spawn(move || waits.release_queues(&why)).is_err() {
            // Whoever tells of the loss must not stand still for it: queues stay as they are.
            fail(&std::mem::take(&mut *lock(&self.submitted)), cause);
        }
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
            // What fails is tried again: the driver may be busy with the end of the dead process.
            // If nothing ever succeeds the queue stays as it is, and the failed count has told why.
            let here = attempt % 2 == 0 && !made_here;
            match here.then(|| self.another_queue(&waits)).flatten() {
                Some(queue) => {
                    let made = signal(&queue, &self.semaphore, SIGNAL_TIMEOUT);
                    made_here = matches!(made, Ok(()) | Err(Error::TimedOut { .. }));
                }
                None => drop(self.signal_on_second_device(&mut second)),
            }
        }
    }

    /// A queue of the same device on another `VkQueue` than the waiting ones; for CUDA, on another
    /// stream.
    fn another_queue(&self, waits: &[Wait]) -> Option<Queue> {
        let kinds = [QueueKind::Compute, QueueKind::Transfer, QueueKind::Graphics];
        let mut queues = kinds
            .into_iter()
            .filter_map(|kind| self.device.queue(kind, "release").ok());
        queues.find(|queue| {
            let driver_queue = driver_queue(queue);
            driver_queue.is_none() || waits.iter().all(|wait| wait.driver_queue != driver_queue)
        })
    }

    /// Signals on a second device of the same GPU, which is opened at the first call: a device may
    /// have one `VkQueue` only. To open one has been seen to take eight seconds while others used
    /// the GPU.
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

    /// A queue of a second device, with the semaphore imported there. None for CUDA.
    fn second_queue(&self) -> Result<Option<(Queue, BinarySemaphore)>> {
        #[cfg(feature = "vulkan")]
        if let (Device::Vulkan(device), Some(spare)) = (&self.device, &self.spare) {
            let second = Device::Vulkan(open_again(device)?);
            let fd = duplicate(spare.as_fd(), syncline_core::HandleKind::BinaryOpaqueFd)?;
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

/// Submits one signal, and waits at most `limit` for it.
fn signal(queue: &Queue, semaphore: &BinarySemaphore, limit: Duration) -> Result<()> {
    let signals = semaphore.clone();
    let work = move |recorder: &mut Recorder<'_>| {
        // SAFETY: a wait for it stands at the head of its queue, and has not come through for long:
        // so it is unsignalled, unless the GPU has not come to that wait. Who had a signal pending
        // is dead, and its work with it, as drivers end that before the process counts as dead.
        // Where either is not so, or an earlier attempt still stands behind other work of its
        // queue, it is signalled twice, which drivers take for once, and no queue waits for a
        // second signal: every wait begins through `submit`, which refuses it by then.
        unsafe { recorder.signal_semaphore(&signals) }
    };
    queue.submit(&[], work, &[])?;
    queue.idle(limit)
}

/// The GPU once more.
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
