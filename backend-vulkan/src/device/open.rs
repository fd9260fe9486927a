//! A `VkDevice`, and opening it.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::Arc;

use ash::vk;
use syncline_core::{
    Error, Result,
    error::Object,
    info::{DeviceId, Info},
};

use crate::device::driver_queue::DriverQueue;
use crate::device::inner::Inner;
use crate::device::native::Native;
use crate::device::physical::{Enabled, PhysicalDevice};
use crate::driver::instance::Instance;

/// A `VkDevice`, opened here or adopted from an application. Cheap to clone.
///
/// Everything made from a device keeps the device alive.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

impl Device {
    /// Creates a `VkDevice` of `physical`, which was probed with this instance.
    pub(crate) fn open_probed(instance: &Instance, physical: PhysicalDevice) -> Result<Self> {
        let object = Object::new("device", &physical.info().marked_name());
        // SAFETY: the physical device is of this instance.
        let (raw, queues) = unsafe { physical.create_device(instance, &object)? };
        let native = Native::opened(instance, physical.raw(), raw);
        Inner::new(native, physical, object, &queues).map(Self::of)
    }

    pub(crate) const fn of(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// The state that everything made from the device keeps.
    #[inline]
    pub(crate) const fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.0.id()
    }

    pub(crate) fn object(&self) -> &Object {
        self.0.object()
    }

    pub(crate) fn info(&self) -> &Info {
        self.0.info()
    }

    /// The error for a failed import: [`Error::DeviceLost`], else [`Error::Import`].
    pub(crate) fn import_error(
        &self,
        call: &'static str,
        code: vk::Result,
        what: &dyn Fn() -> String,
    ) -> Error {
        match self.0.failed(self.object(), call, code) {
            lost @ Error::DeviceLost { .. } => lost,
            refused => Error::import(self.object(), what(), refused.to_string()),
        }
    }

    /// The loader's functions.
    #[must_use]
    pub fn entry(&self) -> &ash::Entry {
        self.inner().native().entry()
    }

    /// The instance's functions and its raw handle.
    #[must_use]
    pub fn instance(&self) -> &ash::Instance {
        self.inner().native().instance()
    }

    /// The physical device.
    #[must_use]
    pub fn physical(&self) -> vk::PhysicalDevice {
        self.inner().native().physical()
    }

    /// The device's functions and its raw handle, valid while a handle of this device lives.
    ///
    /// A device of Vulkan 1.3 that Syncline has opened has the feature `synchronization2`, which
    /// `vkQueueSubmit2` and `vkCmdPipelineBarrier2` need.
    #[must_use]
    pub fn raw(&self) -> &ash::Device {
        self.inner().raw()
    }

    /// The extensions and features that the device was made with.
    #[must_use]
    pub fn enabled(&self) -> Enabled {
        self.inner().enabled()
    }

    /// The driver queue with this index in its family.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device was not made with it.
    pub(crate) fn driver_queue(&self, family: u32, index: u32) -> Result<&Arc<DriverQueue>> {
        self.inner()
            .queues()
            .iter()
            .find(|queue| (queue.family().index, queue.index()) == (family, index))
            .ok_or_else(|| self.no_queue(&format!("use queue {index} of family {family}")))
    }

    /// The error for a queue that the device does not have.
    pub(crate) fn no_queue(&self, asked: &str) -> Error {
        let have: Vec<String> = self
            .inner()
            .queues()
            .iter()
            .map(|queue| format!("{}.{}", queue.family().index, queue.index()))
            .collect();
        let reason = if have.is_empty() {
            "it was adopted without queues".to_owned()
        } else {
            format!("its queues, by family and index, are {}", have.join(", "))
        };
        Error::unsupported(self.object(), asked, reason)
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (Vulkan)", self.0.object())
    }
}
