//! A `VkQueue` behind a gate that the application can lock too.
//!
//! Several logical queues may share one `VkQueue`. An application that owns the `VkQueue` submits
//! to it too. Vulkan requires such calls to be externally synchronized. The engine must never
//! block, so it only tries the gate. A logical queue that finds the gate locked leaves its waker
//! there, and the unlocking thread wakes that queue.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use ash::vk;
use syncline_core::backend::kit::{Gate, Mutex};
use syncline_core::backend::{Enqueue, InFlightBudget, SubmissionQueue, Waker};
use syncline_core::error::Object;
use syncline_core::internal::MakerProcess;

use crate::device::physical::Family;

/// The in-flight budget of one driver queue, in units. Further submissions are held on the host.
///
/// NVIDIA's driver (580.159) accepts 32,755 units for each queue. Then it blocks the calling thread
/// until some work has finished. It counts [`SUBMISSION`] units for a submission, and one for each
/// wait, command buffer and signal of it. The other half is for the application's own submissions,
/// and for drivers that count differently.
const UNITS: u64 = 16_384;

/// The most units of one submission.
///
/// [`UNITS`] and one such submission stay below what NVIDIA's driver accepts.
pub(crate) const MAX_SUBMISSION: u64 = 16_000;

/// Units of a submission, without its waits, command buffers and signals.
pub(crate) const SUBMISSION: u64 = 4;

/// All driver queues in use in the process, because two devices may adopt one `VkQueue`.
///
/// No driver call and no code of the application runs while this is locked.
static IN_USE: Mutex<BTreeMap<vk::Queue, Weak<DriverQueue>>> = Mutex::new(BTreeMap::new());

/// One `VkQueue`.
pub(crate) struct DriverQueue {
    object: Object,
    raw: vk::Queue,
    family: Family,
    index: u32,
    gate: Gate,
    /// The logical queues that use this driver queue.
    queues: Mutex<Vec<Weak<dyn LogicalQueue>>>,
    /// The budget of what its logical queues have in flight together.
    budget: Arc<InFlightBudget>,
    maker: MakerProcess,
}

/// The part of a logical queue that a driver queue uses.
trait LogicalQueue: Send + Sync {
    /// The number of held submissions.
    fn held(&self) -> usize;
}

impl<E: Enqueue> LogicalQueue for SubmissionQueue<E> {
    fn held(&self) -> usize {
        Self::held(self).count
    }
}

impl DriverQueue {
    /// The driver queue of this handle, which all devices that have adopted the handle share.
    pub(crate) fn of(raw: vk::Queue, family: Family, index: u32) -> Arc<Self> {
        let new = Arc::new(Self {
            object: Object::new("driver queue", &format!("{}.{index}", family.index)),
            raw,
            family,
            index,
            gate: Gate::default(),
            queues: Mutex::default(),
            budget: InFlightBudget::new(UNITS),
            maker: MakerProcess::this(),
        });
        let mut in_use = IN_USE.lock();
        let earlier = in_use.get(&raw).and_then(Weak::upgrade);
        if earlier.is_none() {
            in_use.insert(raw, Arc::downgrade(&new));
        }
        // Unlock first, because dropping a driver queue takes the lock.
        drop(in_use);
        earlier.unwrap_or(new)
    }

    #[inline]
    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }

    /// The raw handle, for a thread that holds the gate.
    #[inline]
    pub(crate) const fn raw(&self) -> vk::Queue {
        self.raw
    }

    #[inline]
    pub(crate) const fn family(&self) -> Family {
        self.family
    }

    /// The index within the family.
    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    /// See [`Enqueue::order_domain`].
    #[inline]
    pub(crate) fn domain(&self) -> u64 {
        self.object.id()
    }

    /// The budget of what its logical queues have in flight together.
    #[inline]
    pub(crate) const fn budget(&self) -> &Arc<InFlightBudget> {
        &self.budget
    }

    /// Locks the gate, or leaves the waker there if it is locked.
    pub(crate) fn try_lock(&self, waker: &dyn Fn() -> Waker) -> Option<Locked<'_>> {
        self.gate.try_lock(waker).then(|| Locked(self))
    }

    /// The gate, to lock it for the application.
    pub(crate) const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Adds a logical queue that uses this driver queue.
    pub(crate) fn join<E: Enqueue>(&self, engine: &Arc<SubmissionQueue<E>>) {
        let engine: Arc<dyn LogicalQueue> = engine.clone();
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(&engine));
    }

    /// The number of logical queues that use this driver queue.
    pub(crate) fn users(&self) -> usize {
        let queues = self.queues.lock();
        queues
            .iter()
            .filter(|queue| queue.strong_count() > 0)
            .count()
    }

    /// The number of held submissions of all its logical queues.
    pub(crate) fn held(&self) -> usize {
        // The last handle of a queue must not be dropped under the lock. So the upgraded handles
        // are dropped after the unlock.
        let queues: Vec<_> = self
            .queues
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        queues.iter().map(|queue| queue.held()).sum()
    }
}

impl Drop for DriverQueue {
    fn drop(&mut self) {
        // In a forked child, a thread of the parent may have held the lock.
        if !self.maker.is_this() {
            return;
        }
        let mut in_use = IN_USE.lock();
        // The driver may have given the handle to a new queue.
        let own = in_use
            .get(&self.raw)
            .is_some_and(|entry| std::ptr::eq(entry.as_ptr(), self));
        if own {
            in_use.remove(&self.raw);
        }
    }
}

/// The gate, locked by the engine for one submission.
pub(crate) struct Locked<'q>(&'q DriverQueue);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.gate.unlock();
    }
}
