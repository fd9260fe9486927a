//! A `VkQueue` behind a lock that the application can take too.
//!
//! Many logical queues may share one `VkQueue`, and an engine that owns it submits to it by itself.
//! Vulkan wants such calls one at a time. The engine of Syncline must never block, so it only tries
//! the lock; a queue that finds it taken leaves its waker, and whoever unlocks wakes it.

use std::sync::{Arc, Mutex, Weak};

use ash::vk;
use syncline_core::backend::{Gate, InFlightBudget, SubmissionQueue, Waker};
use syncline_core::{Object, Result};

use crate::device::open::Device;
use crate::driver::error::lock;
use crate::probe::Family;
use crate::queue::submission::Submitter;

/// One `VkQueue`.
pub(crate) struct DriverQueue {
    pub(crate) raw: vk::Queue,
    pub(crate) family: Family,
    pub(crate) index: u32,
    /// See [`Enqueue::order_domain`](syncline_core::backend::Enqueue::order_domain).
    pub(crate) domain: u64,
    gate: Gate,
    queues: Mutex<Vec<Weak<SubmissionQueue<Submitter>>>>,
    /// What all of them may have in flight together.
    pub(crate) budget: Arc<InFlightBudget>,
}

/// So much may be in flight on one driver queue before further submissions are held on the host. NVIDIA's driver
/// (580.159) takes 32755 of these units for each queue and then blocks the caller until something has finished: four
/// for a submission, and one for each wait, command buffer and signal of it. The other half is for what the
/// application submits itself, and for what other drivers may count.
const UNITS: u64 = 16_384;
/// What a submission takes besides its parts.
pub(crate) const SUBMISSION: u64 = 4;

impl DriverQueue {
    pub(crate) fn new(raw: vk::Queue, family: Family, index: u32) -> Self {
        Self {
            raw,
            family,
            index,
            domain: Object::new("driver queue", "").id(),
            gate: Gate::default(),
            queues: Mutex::default(),
            budget: InFlightBudget::new(UNITS),
        }
    }

    /// Takes the lock, or leaves the waker with whoever has it.
    pub(crate) fn try_lock(&self, waker: &dyn Fn() -> Waker) -> Option<Locked<'_>> {
        self.gate.try_lock(waker).then(|| Locked(self))
    }

    /// Notes a logical queue on this driver queue.
    pub(crate) fn join(&self, engine: &Arc<SubmissionQueue<Submitter>>) {
        let mut queues = lock(&self.queues);
        queues.retain(|engine| engine.strong_count() > 0);
        queues.push(Arc::downgrade(engine));
    }

    /// How many logical queues use it.
    pub(crate) fn users(&self) -> usize {
        let queues = lock(&self.queues);
        queues
            .iter()
            .filter(|engine| engine.strong_count() > 0)
            .count()
    }

    fn held(&self) -> usize {
        // The last handle of a queue may be dropped here, which is never done under a lock.
        let queues: Vec<_> = lock(&self.queues)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        queues.iter().map(|engine| engine.held().count).sum()
    }
}

/// The lock, held by the engine for one submission.
pub(crate) struct Locked<'q>(&'q DriverQueue);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.gate.unlock();
    }
}

/// The application's hold on a `VkQueue`, for its own `vkQueueSubmit`, `vkQueuePresentKHR` and the like.
///
/// While it lives, submissions through Syncline to this driver queue are held; when it is dropped
/// they go, on the dropping thread.
#[must_use = "the queue is unlocked as soon as the guard is dropped"]
pub struct QueueGuard {
    queue: Arc<DriverQueue>,
    /// Keeps the device.
    _device: Device,
}

impl QueueGuard {
    /// The raw queue, not to be used after the guard is dropped.
    #[must_use]
    pub fn raw(&self) -> vk::Queue {
        self.queue.raw
    }

    /// Its family.
    #[must_use]
    pub fn family(&self) -> u32 {
        self.queue.family.index
    }

    /// Its index within the family.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.queue.index
    }

    /// How many submissions through Syncline are held on the host, over all queues that share this
    /// driver queue. What the application submits now overtakes them;
    /// [`Queue::settle`](syncline_core::backend::Queue::settle), before locking, drains them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.queue.held()
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        self.queue.gate.unlock();
    }
}

impl std::fmt::Debug for QueueGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QueueGuard({}.{})", self.family(), self.index())
    }
}

impl Device {
    /// Locks a driver queue for the application's own use. Blocks while another thread submits or
    /// holds a guard; never lock twice on one thread.
    ///
    /// # Errors
    /// [`Error::Unsupported`](syncline_core::Error::Unsupported) if the device has no such driver queue.
    pub fn lock_queue(&self, family: u32, index: u32) -> Result<QueueGuard> {
        Ok(self.guard(self.driver_queue(family, index)?))
    }

    pub(crate) fn guard(&self, queue: &Arc<DriverQueue>) -> QueueGuard {
        queue.gate.lock();
        QueueGuard {
            queue: queue.clone(),
            _device: self.clone(),
        }
    }
}
