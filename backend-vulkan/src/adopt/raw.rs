//! Adopts devices and semaphores of the application, and gives out raw handles.
#![allow(unsafe_code, reason = "raw handles are trusted")]

use std::any::Any;
use std::sync::Arc;

use ash::vk;
use syncline_core::backend::Attachment;
use syncline_core::{Error, Point, Result, Timeline, error::Object};

use crate::device::inner::Inner;
use crate::device::native::Native;
use crate::device::open::Device;
use crate::device::physical::{Enabled, PhysicalDevice};
use crate::timeline::port::Port;
use crate::timeline::semaphore::Semaphore;

/// A `VkDevice` of the application, for [`Device::adopt`].
///
/// [`Offer`](crate::Offer) lists what to create it with. [`AdoptInfo::from_handles`] makes one of
/// raw handles.
#[derive(Clone)]
pub struct AdoptInfo {
    /// The loader.
    pub entry: ash::Entry,
    /// The instance, created for Vulkan 1.2 or later.
    pub instance: ash::Instance,
    /// The physical device.
    pub physical: vk::PhysicalDevice,
    /// The device, created with the feature `timelineSemaphore`.
    pub device: ash::Device,
    /// The queues to use: family, index within the family, and handle.
    ///
    /// May be empty for an application that makes all submissions itself. Timelines, semaphores and
    /// memory need no queue, and Syncline then uses no `VkQueue`.
    pub queues: Vec<(u32, u32, vk::Queue)>,
    /// Kept as long as anything made from the adopted device.
    ///
    /// With `None`, the application cannot know when it may destroy the device. So it must never
    /// destroy the device.
    ///
    /// The owner may be dropped on a thread of this library. If the process exits during that drop,
    /// the exit waits for it, for at most two seconds. An owner that is still kept when the exit
    /// begins is not dropped.
    pub owner: Option<Arc<dyn Any + Send + Sync>>,
    /// The extensions and features that the device was created with.
    ///
    /// Vulkan cannot report these, so the flags are trusted. A wrong flag is undefined behaviour.
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
    /// Adopts a `VkDevice` of the application.
    ///
    /// The application still owns the instance, the device and the queues. Syncline destroys none
    /// of them.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the device is older than Vulkan 1.2 or has no timeline semaphores,
    /// or a driver error.
    ///
    /// # Safety
    /// * The handles belong together, the queues are queues of the device, and everything marked as
    ///   enabled is enabled.
    /// * The handles outlive the adopted device and everything made from it, or `owner` ensures
    ///   that.
    /// * Some calls require external synchronization of a queue: `vkQueueSubmit`,
    ///   `vkQueuePresentKHR`, `vkQueueWaitIdle`, and `vkDeviceWaitIdle` for all queues. The
    ///   application makes them only while it holds that queue's [`QueueGuard`](crate::QueueGuard).
    ///   The rule ends when the adopted device and everything made from it are gone, which the drop
    ///   of `owner` shows.
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
        physical.usable()?;
        let object = Object::new("device", &physical.info().marked_name());
        let native = Native::adopted(
            info.entry,
            info.instance,
            info.physical,
            info.device,
            info.owner,
        );
        Inner::new(native, physical, object, &info.queues).map(Self::of)
    }

    /// Adopts a timeline semaphore of the application or of another library. Returns its port and
    /// its value.
    ///
    /// Start the timeline at that value. Signal operations of others may be pending. Then call
    /// [`Timeline::signalled_by_others`] with the highest value that they signal.
    ///
    /// ```no_run
    /// # #![allow(unsafe_code)]
    /// # use syncline_core::{Result, Timeline};
    /// # use syncline_vulkan::{Device, ash::vk};
    /// fn timeline_of(device: &Device, semaphore: vk::Semaphore, upto: u64) -> Result<Timeline> {
    ///     // SAFETY: a timeline semaphore of this device, which others signal up to `upto`.
    ///     let (port, value) = unsafe { device.adopt_semaphore(semaphore, false) }?;
    ///     let line = Timeline::new("frame", value, |_| Ok([port].into_iter().collect()))?;
    ///     line.signalled_by_others(upto)?;
    ///     Ok(line)
    /// }
    /// ```
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Safety
    /// `semaphore` is a timeline semaphore of this device. If `owned`, nothing else destroys it,
    /// not even after an error. If not, the semaphore outlives the timeline, its points, and every
    /// submission that uses it. It also lives until its counter has the values that accepted
    /// submissions were to signal, because Syncline signals them if a submission is skipped (E2).
    ///
    /// From now on the semaphore is signalled only in these ways. Each of them orders the signals,
    /// so that the counter only grows:
    /// * through the timeline made of it,
    /// * under that timeline's claims,
    /// * by others, to values that [`Timeline::signalled_by_others`] notes before the next signal
    ///   of the timeline is submitted or claimed. Their first signal after one of the timeline
    ///   waits for that one.
    pub unsafe fn adopt_semaphore(
        &self,
        semaphore: vk::Semaphore,
        owned: bool,
    ) -> Result<(Attachment, u64)> {
        self.inner().require_maker()?;
        // SAFETY: the caller guarantees it.
        let semaphore = unsafe { Semaphore::adopt(self.inner(), semaphore, owned) };
        let value = semaphore.value()?;
        Ok((semaphore.attach(value).signalled_elsewhere(true), value))
    }

    /// The raw semaphore to wait for `point` in a submission that the application makes itself.
    ///
    /// Wait for the semaphore to reach the point's value. Keep the point until that submission has
    /// finished.
    ///
    /// # Errors
    /// [`Error::NotPending`] while the signal is still held, because a raw wait could block the
    /// queue that must execute first. [`Error::Unsupported`] if the timeline has no port on this
    /// device, or the point is empty. The timeline's failure.
    pub fn semaphore(&self, point: Point<'_>) -> Result<vk::Semaphore> {
        point.require_pending()?;
        let port = point.port::<Port>(self.id());
        match port.and_then(|port| port.on(self.inner())) {
            Some(semaphore) => Ok(semaphore.raw()),
            None if point.keep().is_empty() => {
                let reason = "it has no timeline and is always reached: leave out this wait";
                let asked = "give a semaphore of an empty point";
                Err(Error::unsupported(self.object(), asked, reason))
            }
            None => Err(self.no_port(&format!("{point:?}"))),
        }
    }

    /// The raw semaphore of a timeline, for a submission that the application makes itself.
    ///
    /// The submission signals it under a [`Claim`](syncline_core::Claim). Keep the timeline until
    /// that submission has finished.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the timeline has no port on this device.
    pub fn semaphore_of(&self, timeline: &Timeline) -> Result<vk::Semaphore> {
        let port = timeline.port::<Port>(self.id());
        match port.and_then(|port| port.on(self.inner())) {
            Some(semaphore) => Ok(semaphore.raw()),
            None => Err(self.no_port(&timeline.object().to_string())),
        }
    }

    fn no_port(&self, name: &str) -> Error {
        let reason =
            "it has no port on this device. Make it from a link whose first device is this one";
        Error::unsupported(self.object(), format!("give a semaphore of {name}"), reason)
    }
}
