//! Choosing the driver queue of a new queue.

use std::sync::Arc;

#[allow(unused_imports, reason = "for links, also in the facade")]
use syncline_core::Error;
use syncline_core::{QueueKind, Result};

use crate::device::driver_queue::DriverQueue;
use crate::device::open::Device;
use crate::queue::submission::Queue;

impl Device {
    /// A queue on the least used driver queue of a queue family.
    ///
    /// `family` is the index of the family in the driver's numbering.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device has no queue of that family; a driver error.
    pub fn queue_of_family(&self, family: u32, label: &str) -> Result<Queue> {
        Queue::new(self, self.least_used(family)?, label)
    }

    fn least_used(&self, family: u32) -> Result<&Arc<DriverQueue>> {
        let of_family = self
            .inner()
            .queues()
            .iter()
            .filter(|queue| queue.family().index == family);
        let least_used = of_family.min_by_key(|queue| queue.users());
        least_used.ok_or_else(|| self.no_queue(&format!("run a queue of family {family}")))
    }

    /// A queue on the driver queue with this index in its family.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device was not made with that driver queue; a driver error.
    pub fn queue_on(&self, family: u32, index: u32, label: &str) -> Result<Queue> {
        Queue::new(self, self.driver_queue(family, index)?, label)
    }

    /// A queue of the least capable family that can run `kind`.
    pub(crate) fn queue_of_kind(&self, kind: QueueKind, label: &str) -> Result<Queue> {
        Queue::new(self, self.driver_queue_of_kind(kind)?, label)
    }

    /// The least used driver queue of the least capable family that can run `kind`.
    ///
    /// On NVIDIA, transfer-only queues need no context switch of the GPU.
    pub(crate) fn driver_queue_of_kind(&self, kind: QueueKind) -> Result<&Arc<DriverQueue>> {
        let preference: &[QueueKind] = match kind {
            QueueKind::Transfer => &[QueueKind::Transfer, QueueKind::Compute, QueueKind::Graphics],
            QueueKind::Compute => &[QueueKind::Compute, QueueKind::Graphics],
            _ => &[kind],
        };
        let family = preference
            .iter()
            .find_map(|&kind| {
                self.inner()
                    .queues()
                    .iter()
                    .find(|queue| queue.family().kind == kind)
            })
            .map(|queue| queue.family().index)
            .ok_or_else(|| self.no_queue(&format!("run {kind} work")))?;
        self.least_used(family)
    }
}
