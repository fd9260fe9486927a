//! Waits for a binary semaphore that another device signals, and their release if it is lost (E3).
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
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use syncline_core::backend::kit::{Mutex, get_or_make};
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::error::PeerLoss;
use syncline_core::internal::WeakTimeline;
use syncline_core::{
    Error, Fence, KeptPoint, QueueKind, Result, Timeline, WaitOnly, handle::BinaryFd,
};

use super::poller::{Poll, Poller};
use crate::any::{Device, Queue, Recorder};
use crate::binary::BinarySemaphore;
#[cfg(feature = "vulkan")]
use crate::duplicate::duplicate;
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
    consumer: OnceLock<Queue>,
    signaller: Option<LocalSignaller>,
    /// The loss of the signaller, once it is known.
    lost: OnceLock<Error>,
    submitted: Mutex<Vec<Wait>>,
    /// Looks for a loss while a wait is outstanding. Started before the first wait.
    poller: Poller,
}

/// The device that signals, if it is in this process, and the count of its signals.
pub(crate) struct LocalSignaller {
    device: Device,
    count: WeakTimeline,
}

impl LocalSignaller {
    pub(crate) const fn new(device: Device, count: WeakTimeline) -> Self {
        Self { device, count }
    }
}

/// A wait that was submitted to a queue.
struct Wait {
    driver_queue: DriverQueue,
    /// The queue's position before the wait.
    before: KeptPoint,
    end: KeptPoint,
    /// The timeline behind the fence, if the wait is for a fence.
    consumed: Option<Timeline>,
    /// The count of signals, which the submission keeps until the wait is over.
    count: Weak<WaitOnly>,
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

/// The failure of `count`, if its cause is the loss of the signalling process or device.
///
/// If the application fails the count for another reason, a pending signal may still come.
fn loss(count: &WaitOnly) -> Option<Error> {
    let next = count.at(count.frozen_value().saturating_add(1));
    let error = next.is_reached().err()?;
    let lost = match error.root() {
        // A peer that was given up lives, and a driver has its signal.
        Error::PeerLost { how, .. } => *how != PeerLoss::GivenUp,
        Error::DeviceLost { .. } => true,
        Error::FailedElsewhere { .. } => count.is_signaller_lost(),
        _ => false,
    };
    lost.then_some(error)
}

impl SemaphoreWaits {
    /// The waits of `device`. `spare` exports one more handle of the semaphore.
    ///
    /// # Errors
    /// The error of `spare`.
    pub(crate) fn new(
        device: &Device,
        semaphore: &BinarySemaphore,
        signaller: Option<LocalSignaller>,
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
            consumer: OnceLock::new(),
            signaller,
            lost: OnceLock::new(),
            submitted: Mutex::default(),
            poller: Poller::default(),
        })
    }

    /// Submits a wait to `queue`. Until it is over, the loss of the signaller is noticed.
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
        self.check(count)?;
        let device = &self.device;
        let consumer = self.consumer()?;
        let consumed = device.timeline(label)?;
        let point = consumed.at(1).keep();
        // SAFETY: the caller's promise.
        unsafe { self.submit(consumer, count, Some(consumed)) }?;
        Ok(Fence::foreign(device.id(), device.object(), label, point))
    }

    fn consumer(&self) -> Result<&Queue> {
        get_or_make(&self.consumer, || {
            let label = format!("{} (consumer)", self.semaphore.object().label());
            self.device.queue(QueueKind::Transfer, &label)
        })
    }

    /// # Safety
    /// Same conditions as [`SemaphoreWaits::wait_on`].
    unsafe fn submit(
        self: &Arc<Self>,
        queue: &Queue,
        count: &Arc<WaitOnly>,
        consumed: Option<Timeline>,
    ) -> Result<()> {
        self.poller.start(self.semaphore.object())?;
        self.check(count)?;
        let (waits, counts) = (self.clone(), count.clone());
        let work = move |recorder: &mut Recorder<'_>| {
            // A held submission may get here long after the call.
            waits.check(&counts)?;
            // SAFETY: the caller's promise.
            unsafe { recorder.wait_semaphore(&waits.semaphore) }?;
            recorder.keep(waits);
            // While it exists, the loss of another process is noticed.
            recorder.keep(counts);
            Ok(())
        };
        let before = queue.position().keep();
        let signal = consumed.as_ref().map(|consumed| consumed.signal_at(1));
        let end = queue.submit(&[], work, signal.as_slice())?.end().keep();
        self.remember(Wait {
            driver_queue: driver_queue(queue),
            before,
            end,
            consumed,
            count: Arc::downgrade(count),
        });
        // After the wait is remembered: a poll that sees no wait ends the polling.
        let polled: Weak<Self> = Arc::downgrade(self);
        self.poller.ask(polled);
        Ok(())
    }

    /// Adds a submitted wait, and removes those that are over.
    fn remember(&self, wait: Wait) {
        // Without the lock: checking a point may run held work of the application, which may wait
        // for this semaphore, too.
        let mut submitted = std::mem::take(&mut *self.submitted.lock());
        submitted.retain(|wait| !wait.is_over());
        submitted.push(wait);
        self.submitted.lock().append(&mut submitted);
    }

    /// # Errors
    /// The cause if the signaller is lost.
    fn check(&self, count: &WaitOnly) -> Result<()> {
        if let Some(cause) = self.lost.get() {
            return Err(cause.clone());
        }
        loss(count).map_or(Ok(()), Err)
    }

    /// Refuses new waits. The next poll releases the queues that are blocked.
    pub(crate) fn signaller_lost(&self, cause: &Error) {
        // The first cause stays.
        let _ = self.lost.set(cause.clone());
    }

    /// Checks the signaller's device, if it is in this process. Its loss fails the count.
    fn check_device(&self) {
        let Some(signaller) = &self.signaller else {
            return;
        };
        if let Err(lost @ Error::DeviceLost { .. }) = signaller.device.check() {
            self.signaller_lost(&lost);
            signaller.count.fail(lost);
        }
    }

    /// Fails the fences of `waits`, and signals in place of the lost signaller.
    ///
    /// Signals until no queue is blocked.
    fn release_queues(&self, waits: &[Wait], cause: &Error) {
        fail(waits, cause);
        let start = Instant::now();
        let (mut made_here, mut second) = (false, None);
        for attempt in 0.. {
            if start.elapsed() > RELEASE_TIMEOUT || !waits.iter().any(Wait::is_blocked) {
                return;
            }
            // Retry after a failure: the driver may still be cleaning up after the dead process. If
            // all attempts fail, the queue stays blocked. The failed count reports the cause.
            let here = attempt % 2 == 0 && !made_here;
            match here.then(|| self.other_queue(waits)).flatten() {
                Some(queue) => {
                    let made = signal(&queue, &self.semaphore, SIGNAL_TIMEOUT);
                    made_here = matches!(made, Ok(()) | Err(Error::TimedOut { .. }));
                }
                None => drop(self.signal_on_second_device(&mut second)),
            }
        }
    }

    /// A queue of this device on a `VkQueue` or stream without waits.
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

impl Poll for SemaphoreWaits {
    fn poll(&self) -> bool {
        let mut waits = std::mem::take(&mut *self.submitted.lock());
        waits.retain(|wait| !wait.is_over());
        if waits.is_empty() {
            return false;
        }
        self.check_device();
        let mut counts = waits.iter().filter_map(|wait| wait.count.upgrade());
        let lost = self.lost.get().cloned();
        match lost.or_else(|| loss(&*counts.next()?)) {
            Some(cause) => self.release_queues(&waits, &cause),
            None => self.submitted.lock().append(&mut waits),
        }
        true
    }
}

/// Fails the fences of `waits`.
fn fail(waits: &[Wait], cause: &Error) {
    for consumed in waits.iter().filter_map(|wait| wait.consumed.as_ref()) {
        consumed.fail(cause.clone());
    }
}

/// Submits one signal and waits at most `limit` for it.
fn signal(queue: &Queue, semaphore: &BinarySemaphore, limit: Duration) -> Result<()> {
    let signals = semaphore.clone();
    let work = move |recorder: &mut Recorder<'_>| {
        // SAFETY: a wait for the semaphore has been at the head of its queue for long without
        // completing. So the semaphore is unsignalled, unless the GPU has not got to that wait. The
        // signaller is lost: a lost device executes nothing more, and drivers end the work of a
        // process before it counts as dead. If either assumption is wrong, or if an earlier
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
        None => Err(Error::unavailable(
            info.backend,
            format!("{} is not listed any more", of.object()),
        )),
    }
}

impl fmt::Debug for SemaphoreWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SemaphoreWaits({})", self.semaphore.object())
    }
}
