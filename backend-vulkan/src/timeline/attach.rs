//! Attaches timeline semaphores to timelines. Their device watches them.

use std::sync::Arc;

use ash::vk;
use syncline_core::backend::Attachment;
use syncline_core::{Result, Timeline};

use crate::device::inner::Inner;
use crate::device::open::Device;
use crate::timeline::port::Port;
use crate::timeline::semaphore::Semaphore;

impl Semaphore {
    /// The attachment of a timeline with its home on this device.
    ///
    /// The semaphore has the value `initial`.
    pub(crate) fn attach(self: Arc<Self>, initial: u64) -> Attachment {
        let device = self.device().clone();
        let attachment = Attachment::new(device.id(), initial, Port::new(self));
        watched(device, attachment)
    }

    /// The attachment of an imported semaphore, which other timelines or processes may signal too.
    pub(crate) fn attach_imported(self: Arc<Self>) -> Attachment {
        let device = self.device().clone();
        let attachment = Attachment::imported(device.id(), Port::new(self));
        watched(device, attachment).signalled_elsewhere(true)
    }
}

/// Makes `device` watch `attachment`, and sets the limits of its semaphores.
fn watched(device: Arc<Inner>, attachment: Attachment) -> Attachment {
    let limit = device.info().capabilities.max_value_difference;
    attachment
        .watched_by(device)
        .with_max_value_difference(limit)
}

impl Device {
    /// Creates a timeline at 0 with its home on this device.
    pub(crate) fn new_timeline(&self, label: &str) -> Result<Timeline> {
        let no_handle = vk::ExternalSemaphoreHandleTypeFlags::empty();
        Timeline::new(label, 0, |initial| {
            let port = Semaphore::new(self.inner(), initial, no_handle)?.attach(initial);
            Ok([port].into_iter().collect())
        })
    }
}
