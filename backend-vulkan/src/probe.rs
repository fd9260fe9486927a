//! Lists the physical devices of an instance, and opens them.
#![allow(unsafe_code, reason = "asks the driver")]

use ash::vk;
use syncline_core::backend;
use syncline_core::{Error, Result, info::Info};

use crate::device::open::Device;
use crate::device::physical::PhysicalDevice;
use crate::driver::error::{call_failed, unavailable};
use crate::driver::instance::Instance;

/// A physical device that can be opened, or the reason why it cannot.
#[derive(Clone)]
pub struct Candidate {
    /// The identity and capabilities of the device.
    pub info: Info,
    /// The reason why it cannot be used, if there is one.
    pub rejected: Option<Error>,
    instance: Instance,
    device: PhysicalDevice,
}

impl Candidate {
    pub(crate) fn new(instance: &Instance, physical: vk::PhysicalDevice) -> Self {
        // SAFETY: `physical` was just listed by this instance.
        let device =
            unsafe { PhysicalDevice::probe(instance.entry(), instance.raw(), physical, None) };
        Self {
            info: device.info().clone(),
            rejected: usable(&device).err(),
            instance: instance.clone(),
            device,
        }
    }

    /// Opens a `VkDevice` with queues of every family.
    ///
    /// # Errors
    /// The error in [`Candidate::rejected`], or a driver error. [`Error::MadeBeforeFork`] for a GPU
    /// in a forked child, if the parent has listed Vulkan devices or opened one.
    pub fn open(&self) -> Result<Device> {
        // The application may have changed the public fields. The device is opened with the
        // driver's answers.
        self.instance.require_maker()?;
        usable(&self.device)?;
        Device::open_probed(&self.instance, self.device.clone())
    }

    /// The raw handle, valid while the instance lives.
    #[must_use]
    pub const fn physical(&self) -> vk::PhysicalDevice {
        self.device.raw()
    }
}

/// Refuses a device that lacks something, or that this process cannot open.
fn usable(device: &PhysicalDevice) -> Result<()> {
    device.usable()?;
    if device.info().software {
        return Ok(());
    }
    Instance::require_no_older()
}

impl backend::Candidate for Candidate {
    type Device = Device;

    fn info(&self) -> &Info {
        &self.info
    }

    fn rejected(&self) -> Option<&Error> {
        self.rejected.as_ref()
    }

    fn open(&self) -> Result<Device> {
        self.open()
    }
}

impl Device {
    /// Makes an instance and opens the physical device with the number `index`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no loader, or if the device cannot be used.
    /// [`Error::NoSuchDevice`] if there are fewer devices. A driver error.
    pub fn open(index: usize) -> Result<Self> {
        let devices = Instance::load()?.devices()?;
        match devices.get(index) {
            Some(device) => device.open(),
            None => {
                let infos = devices.iter().map(|device| &device.info);
                Err(Error::no_device_among(&format!("vulkan {index}"), infos))
            }
        }
    }
}

impl Instance {
    /// Every physical device, including those that cannot be used, with the reason. May be empty.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the devices cannot be listed. [`Error::MadeBeforeFork`] in a
    /// forked child.
    pub fn devices(&self) -> Result<Vec<Candidate>> {
        self.require_maker()?;
        // SAFETY: the instance is valid.
        let physical = unsafe { self.raw().enumerate_physical_devices() }.map_err(|code| {
            unavailable(format!(
                "listing the devices failed: {}",
                call_failed("vkEnumeratePhysicalDevices", code)
            ))
        })?;
        Ok(physical
            .into_iter()
            .map(|physical| Candidate::new(self, physical))
            .collect())
    }

    /// Opens the first device that can be used.
    ///
    /// # Errors
    /// [`Error::Unavailable`], with the name of every device and the reason why it cannot be used.
    /// [`Error::MadeBeforeFork`] if a GPU comes before the first such device. Same errors as
    /// [`Candidate::open`].
    pub fn open_first(&self) -> Result<Device> {
        let mut reasons = Vec::new();
        for candidate in self.devices()? {
            match &candidate.rejected {
                None => return candidate.open(),
                Some(forked @ Error::MadeBeforeFork { .. }) => return Err(forked.clone()),
                Some(Error::Unavailable { reason, .. }) => reasons.push(reason.clone()),
                Some(other) => reasons.push(other.to_string()),
            }
        }
        Err(unavailable(if reasons.is_empty() {
            "the loader works, but no driver offers a device".to_owned()
        } else {
            format!("no device can be used: {}", reasons.join("; "))
        }))
    }
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate")
            .field("name", &self.info.name)
            .field("rejected", &self.rejected)
            .finish_non_exhaustive()
    }
}
