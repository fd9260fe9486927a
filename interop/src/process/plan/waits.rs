//! Waits for a binary semaphore that another process signals, and what lets them go if that one dies (E3).
#![allow(unsafe_code, reason = "signals in the place of the dead")]
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
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{BinaryFd, Error, Fence, QueueKind, Result};

use crate::any::{Device, Recorder};
use crate::binary::BinarySemaphore;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// What one device waits for.
pub(crate) struct Waits {
    semaphore: BinarySemaphore,
    device: Device,
    /// For a second device of the GPU, where the first may have no other queue than that which waits: Vulkan's.
    #[cfg_attr(not(feature = "vulkan"), allow(dead_code))]
    spare: Mutex<Option<BinaryFd>>,
    /// Submissions that wait and have not finished, as far as is known.
    submissions: AtomicUsize,
    fences: Mutex<Vec<Fence>>,
    lost: OnceLock<Error>,
}

/// That a submission waits, for as long as it keeps this.
pub(crate) struct Outstanding(Arc<Waits>);

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.submissions.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How long a signal in the place of the dead may take. Nobody waits for this thread.
const PATIENCE: Duration = Duration::from_secs(5);

impl Waits {
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
            spare: Mutex::new(spare),
            submissions: AtomicUsize::new(0),
            fences: Mutex::default(),
            lost: OnceLock::new(),
        })
    }

    /// A submission is about to wait.
    ///
    /// # Errors
    /// Nobody signals any more.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<Outstanding> {
        self.submissions.fetch_add(1, Ordering::SeqCst);
        let outstanding = Outstanding(self.clone());
        // Either this finds it lost, or who loses it finds this.
        fence(Ordering::SeqCst);
        self.check().map(|()| outstanding)
    }

    /// `fence` is for such a wait.
    pub(crate) fn note(&self, fence: &Fence) {
        let mut fences = self.fences();
        fences.retain(|fence| !matches!(fence.is_complete(), Ok(true)));
        fences.push(fence.clone());
    }

    /// # Errors
    /// Why nobody signals any more.
    pub(crate) fn check(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |cause| Err(cause.clone()))
    }

    fn fences(&self) -> MutexGuard<'_, Vec<Fence>> {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_outstanding(&self) -> bool {
        let waiting = |fence: &Fence| !matches!(fence.is_complete(), Ok(true));
        self.submissions.load(Ordering::SeqCst) > 0 || self.fences().iter().any(waiting)
    }

    /// Whoever signals is dead: nobody begins to wait from here on, and a queue that does is let go by one signal, made on a thread of its own.
    pub(super) fn lose(self: &Arc<Self>, cause: Error) {
        if self.lost.set(cause).is_err() {
            return;
        }
        fence(Ordering::SeqCst);
        if !self.is_outstanding() {
            return;
        }
        let waits = self.clone();
        let release = move || {
            // Who cannot signal either leaves the queue as it is.
            let _ = waits.release();
        };
        let thread = std::thread::Builder::new().name("syncline release".into());
        if thread.spawn(release.clone()).is_err() {
            release();
        }
    }

    /// By a queue that cannot be the one that waits.
    fn release(&self) -> Result<()> {
        match &self.device {
            #[cfg(feature = "vulkan")]
            Device::Vulkan(device) => {
                let spare = self
                    .spare
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                let Some(handle) = spare else {
                    return Ok(());
                };
                let twin = Device::Vulkan(twin(device)?);
                let semaphore = twin.import_binary(handle, self.semaphore.object().label())?;
                signal(&twin, &semaphore)
            }
            device => signal(device, &self.semaphore),
        }
    }
}

/// One signal, by a queue of its own.
fn signal(device: &Device, semaphore: &BinarySemaphore) -> Result<()> {
    let queue = device.queue(QueueKind::Compute, "release")?;
    let signals = semaphore.clone();
    let work = move |recorder: &mut Recorder<'_>| {
        // SAFETY: who signalled is dead, and its last signal has not come, as far as is known. Where it did come between, a second one tells nobody anything new.
        unsafe { recorder.signal_semaphore(&signals) }
    };
    queue.submit(&[], work, &[])?;
    queue.idle(PATIENCE)
}

/// The GPU once more.
#[cfg(feature = "vulkan")]
fn twin(of: &vulkan::Device) -> Result<vulkan::Device> {
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

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waits({})", self.semaphore.object())
    }
}
