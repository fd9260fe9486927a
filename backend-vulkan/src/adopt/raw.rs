//! Adopting what an engine already made, and raw handles out.
#![allow(unsafe_code, reason = "raw handles are trusted")]

use std::any::Any;
use std::sync::Arc;

use ash::vk;
use syncline_core::backend::Attachment;
use syncline_core::{Object, Point, Result, Timeline};

use crate::device::native::Native;
use crate::device::open::Device;
use crate::device::physical::{Enabled, PhysicalDevice};
use crate::driver::error::unsupported;
use crate::timeline::port::{Port, Semaphore};

/// A `VkDevice` that an engine already has, for [`Device::adopt`]. [`Offer`](crate::Offer) tells what to make one with,
/// and [`AdoptInfo::from_handles`] begins with bare handles.
#[derive(Clone)]
pub struct AdoptInfo {
    /// The loader.
    pub entry: ash::Entry,
    /// The instance, made for Vulkan 1.2 or later.
    pub instance: ash::Instance,
    /// The physical device.
    pub physical: vk::PhysicalDevice,
    /// The device, made with the feature `timelineSemaphore`.
    pub device: ash::Device,
    /// The queues to use: family, index within the family, and handle. None at all is fine for an application that submits
    /// by itself: timelines, semaphores and memory need no queue, and Syncline never touches a `VkQueue` then.
    pub queues: Vec<(u32, u32, vk::Queue)>,
    /// Kept alive for as long as anything made from the adopted device; `None`: the caller sees to it. The last of these may
    /// go on a thread of this library. An exit of the process waits while the owner is dropped, for two seconds at most;
    /// once it has begun the owner is not dropped any more.
    pub owner: Option<Arc<dyn Any + Send + Sync>>,
    /// What the device was made with.
    pub enabled: Enabled,
}

impl std::fmt::Debug for AdoptInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdoptInfo")
            .field("physical", &self.physical)
            .field("device", &self.device.handle())
            .field("queues", &self.queues)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Uses a `VkDevice` that an engine already made. Instance, device and queues stay the engine's:
    /// nothing of them is ever destroyed here.
    ///
    /// # Errors
    /// [`Error::Unavailable`](syncline_core::Error::Unavailable) if the device is older than Vulkan 1.2
    /// or has no timeline semaphores; a driver error.
    ///
    /// # Safety
    /// * The handles belong together, the queues were got from the device, and everything said to be
    ///   enabled is.
    /// * They outlive the adopted device and everything made from it, or `owner` sees to that.
    /// * From now on the engine makes calls that need a queue to itself (`vkQueueSubmit`,
    ///   `vkQueuePresentKHR`, `vkQueueWaitIdle`; `vkDeviceWaitIdle` for all of them) only while it holds
    ///   that queue's [`QueueGuard`](crate::QueueGuard).
    pub unsafe fn adopt(info: AdoptInfo) -> Result<Self> {
        // SAFETY: the caller guarantees it.
        let physical = unsafe {
            PhysicalDevice::probe(
                &info.entry,
                &info.instance,
                info.physical,
                Some(info.enabled),
            )
        };
        if let Some(reason) = physical.rejected {
            return Err(reason);
        }
        let object = Object::new("device", &physical.info.marked_name());
        let native = Native::adopted(
            info.entry,
            info.instance,
            info.physical,
            info.device,
            info.owner,
        );
        Self::assemble(native, physical, object, &info.queues)
    }

    /// A port over an existing timeline semaphore, and the value it has, to start a timeline from.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Safety
    /// `semaphore` is a timeline semaphore of this device, with no signal outstanding, and from now on
    /// signalled only through the timeline made of it (or under its claims). If `owned`, nobody else
    /// destroys it, not even after an error; else it outlives the timeline, its points, and every
    /// submission that uses it.
    pub unsafe fn adopt_semaphore(
        &self,
        semaphore: vk::Semaphore,
        owned: bool,
    ) -> Result<(Attachment, u64)> {
        // SAFETY: the caller guarantees it.
        let semaphore = unsafe { Semaphore::adopt(&self.0, semaphore, owned) };
        let value = semaphore.value()?;
        Ok((semaphore.attach(value), value))
    }

    /// The semaphore to wait for `point` with, in a submission that the application makes itself: wait
    /// for it to reach the point's value. Keep the point until that submission has finished.
    ///
    /// # Errors
    /// [`Error::NotPending`](syncline_core::Error::NotPending) while the signal is still held, as a
    /// raw wait for it could block the very queue that would release it;
    /// [`Error::Unsupported`](syncline_core::Error::Unsupported) if the timeline has no port on this
    /// device, or the point is empty; the timeline's failure.
    pub fn semaphore(&self, point: Point<'_>) -> Result<vk::Semaphore> {
        point.require_pending()?;
        let port = point.port::<Port>(self.id());
        match port.and_then(|port| port.on(&self.0)) {
            Some(semaphore) => Ok(semaphore.raw()),
            None => Err(self.no_port(&format!("{point:?}"))),
        }
    }

    /// The semaphore of a timeline, for a submission that the application makes itself under a
    /// [`Claim`](syncline_core::Claim). Keep the timeline until that submission has finished.
    ///
    /// # Errors
    /// [`Error::Unsupported`](syncline_core::Error::Unsupported) if the timeline has no port on this device.
    pub fn semaphore_of(&self, timeline: &Timeline) -> Result<vk::Semaphore> {
        let port = timeline.port::<Port>(self.id());
        match port.and_then(|port| port.on(&self.0)) {
            Some(semaphore) => Ok(semaphore.raw()),
            None => Err(self.no_port(&timeline.object().to_string())),
        }
    }

    fn no_port(&self, what: &str) -> syncline_core::Error {
        let reason = "it has no port on this device";
        unsupported(self.object(), format!("give a semaphore of {what}"), reason)
    }
}
