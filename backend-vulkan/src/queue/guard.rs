//! Locking a `VkQueue` for the application's own calls.

use std::marker::PhantomData;
use std::sync::Arc;

use ash::vk;
use syncline_core::{Error, Result};

use crate::device::driver_queue::DriverQueue;
use crate::device::open::Device;

/// A locked `VkQueue`, for the application's own `vkQueueSubmit`, `vkQueuePresentKHR` and so on.
///
/// While the guard lives, submissions through Syncline to this driver queue are held. This is also
/// true for queues of other devices that have adopted the `VkQueue`. The thread that drops the
/// guard submits them.
#[must_use = "the queue is unlocked as soon as the guard is dropped"]
pub struct QueueGuard {
    queue: Arc<DriverQueue>,
    /// Kept alive.
    device: Device,
    /// The gate knows the thread.
    _this_thread: PhantomData<*const ()>,
}

impl QueueGuard {
    /// The raw queue. Do not use it after the guard is dropped.
    #[must_use]
    pub fn raw(&self) -> vk::Queue {
        self.queue.raw()
    }

    /// The index of its family.
    #[must_use]
    pub fn family(&self) -> u32 {
        self.queue.family().index
    }

    /// Its index within the family.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.queue.index()
    }

    /// The number of submissions through Syncline that are held on the host.
    ///
    /// Counts all queues that share this driver queue. A submission that the application makes now
    /// overtakes them. To drain them, call [`Queue::settle`](syncline_core::backend::Queue::settle)
    /// before locking.
    #[must_use]
    pub fn held(&self) -> usize {
        self.queue.held()
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        // In a forked child nothing of the parent's is submitted.
        if self.device.inner().is_forked() {
            return;
        }
        self.queue.gate().unlock();
    }
}

impl std::fmt::Debug for QueueGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QueueGuard({}.{})", self.family(), self.index())
    }
}

impl Device {
    /// Locks a driver queue for the application's own calls.
    ///
    /// Blocks while another thread submits to it or holds a guard.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device has no such driver queue. [`Error::Reentrant`] if this
    /// thread has the queue locked, or is in a call of
    /// [`submit_raw`](crate::Queue::submit_raw) to it.
    pub fn lock_queue(&self, family: u32, index: u32) -> Result<QueueGuard> {
        self.guard(self.driver_queue(family, index)?)
    }

    pub(crate) fn guard(&self, queue: &Arc<DriverQueue>) -> Result<QueueGuard> {
        self.inner().require_maker()?;
        if !queue.gate().lock() {
            return Err(Error::reentrant(queue.object()));
        }
        Ok(QueueGuard {
            queue: queue.clone(),
            device: self.clone(),
            _this_thread: PhantomData,
        })
    }
}
