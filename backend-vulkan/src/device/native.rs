//! The raw handles under a device, and their ownership.
#![allow(unsafe_code, reason = "destroys the device")]

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

use ash::vk;
use syncline_core::backend::kit::TeardownGuard;
use syncline_core::internal::{DriverCalls, DroppedByMaker, MakerProcess};

use crate::driver::instance::Instance;

/// The raw handles under a device. Destroys the `VkDevice` when dropped, if this crate made it.
pub(crate) struct Native {
    entry: ash::Entry,
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    device: ash::Device,
    ownership: Ownership,
    maker: MakerProcess,
}

enum Ownership {
    /// The device is destroyed here. The instance is destroyed with its last handle.
    Ours(Instance),
    /// The application destroys the device. The owner, if there is one, is dropped here.
    Theirs(Option<DroppedByMaker<Arc<dyn Any + Send + Sync>>>),
}

impl Native {
    /// A device that this crate has created.
    pub(crate) fn opened(
        instance: &Instance,
        physical: vk::PhysicalDevice,
        device: ash::Device,
    ) -> Self {
        TeardownGuard::register();
        Self {
            entry: instance.entry().clone(),
            instance: instance.raw().clone(),
            physical,
            device,
            ownership: Ownership::Ours(instance.clone()),
            maker: MakerProcess::this(),
        }
    }

    /// A device of the application, with the object that keeps it alive.
    pub(crate) fn adopted(
        entry: ash::Entry,
        instance: ash::Instance,
        physical: vk::PhysicalDevice,
        device: ash::Device,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        // The application may destroy its instance before a thread of the engine has ended.
        Instance::keep_drivers_loaded();
        TeardownGuard::register();
        Self {
            entry,
            instance,
            physical,
            device,
            ownership: Ownership::Theirs(owner.map(DroppedByMaker::new)),
            maker: MakerProcess::this(),
        }
    }

    /// See [`Instance::note_semaphore`]. Nothing is reported for a device of the application.
    pub(crate) fn note_semaphore(&self, semaphore: vk::Semaphore, is_shared: bool) {
        if let Ownership::Ours(instance) = &self.ownership {
            instance.note_semaphore(semaphore, is_shared);
        }
    }

    /// True if this keeps the device alive, so that the application cannot destroy it earlier.
    pub(crate) const fn is_kept(&self) -> bool {
        !matches!(self.ownership, Ownership::Theirs(None))
    }

    /// The loader's functions.
    pub(crate) const fn entry(&self) -> &ash::Entry {
        &self.entry
    }

    /// The instance's functions and its raw handle.
    pub(crate) const fn instance(&self) -> &ash::Instance {
        &self.instance
    }

    /// The physical device.
    pub(crate) const fn physical(&self) -> vk::PhysicalDevice {
        self.physical
    }

    /// The process that opened or adopted the device.
    #[inline]
    pub(crate) const fn maker(&self) -> MakerProcess {
        self.maker
    }

    /// The functions that destroy objects of the device.
    ///
    /// Every drop that destroys an object gets its functions here. `None` in a forked child: it has
    /// descriptors of its parent's driver, so a call there may change the parent's objects (P3).
    /// `None` also once the process exits (D1).
    pub(crate) fn for_destroy(&self) -> Option<ForDestroy<'_>> {
        let _calls = self.maker.for_destroy()?;
        Some(ForDestroy {
            device: &self.device,
            _calls,
        })
    }

    /// The device's functions and its raw handle.
    #[inline]
    pub(crate) const fn device(&self) -> &ash::Device {
        &self.device
    }
}

/// The functions of a device while an exit waits for the drop that uses them.
pub(crate) struct ForDestroy<'d> {
    device: &'d ash::Device,
    _calls: DriverCalls,
}

impl Deref for ForDestroy<'_> {
    type Target = ash::Device;

    fn deref(&self) -> &ash::Device {
        self.device
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        if !self.maker.is_this() {
            return;
        }
        match &mut self.ownership {
            Ownership::Ours(_) => {
                if let Some(_going) = TeardownGuard::begin() {
                    // SAFETY: this crate made the device. Everything made from the device kept it
                    // and is gone. No queue executes work any more.
                    unsafe { self.device.destroy_device(None) };
                }
            }
            Ownership::Theirs(owner) => {
                if let Some(owner) = owner.take() {
                    TeardownGuard::register();
                    TeardownGuard::drop_owner(owner);
                }
            }
        }
    }
}
