//! Timeline semaphores of a device.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ash::vk;
use syncline_core::{Error, Result, error::Object};

use crate::device::inner::Inner;
use crate::device::spare::SpareSemaphore;

/// A timeline `VkSemaphore`.
///
/// Everything that uses the semaphore keeps an `Arc` of it, including submissions in flight.
pub(crate) struct Semaphore {
    /// The same payload on a second `VkDevice`, imported once this device is lost.
    ///
    /// The first field, so that it is dropped before `device`, which holds the instance of both
    /// devices.
    on_spare: OnceLock<SpareSemaphore>,
    device: Arc<Inner>,
    raw: vk::Semaphore,
    object: Object,
    /// False if the application destroys it.
    owned: bool,
    is_exportable: bool,
    /// The last submission that used it, as counted by
    /// [`DeferredDestroy`](crate::device::deferred_destroy::DeferredDestroy).
    used: AtomicU64,
}

impl Semaphore {
    /// Creates a timeline semaphore, which can be exported as the handle types `exports`.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn new(
        device: &Arc<Inner>,
        initial: u64,
        exports: vk::ExternalSemaphoreHandleTypeFlags,
    ) -> Result<Arc<Self>> {
        let raw = device.timeline_semaphore(initial, exports)?;
        // SAFETY: just created as a timeline semaphore on this device, and nothing else has the
        // handle.
        let semaphore = unsafe { Self::with(device, raw, true, !exports.is_empty()) };
        Ok(Arc::new(semaphore))
    }

    /// # Safety
    /// `raw` is a timeline semaphore of `device`. If `owned`, nothing else destroys it. If not, it
    /// outlives the returned value.
    pub(crate) unsafe fn adopt(device: &Arc<Inner>, raw: vk::Semaphore, owned: bool) -> Arc<Self> {
        // SAFETY: the caller's promise.
        Arc::new(unsafe { Self::with(device, raw, owned, false) })
    }

    /// # Safety
    /// Same as [`Semaphore::adopt`].
    unsafe fn with(
        device: &Arc<Inner>,
        raw: vk::Semaphore,
        owned: bool,
        is_exportable: bool,
    ) -> Self {
        Self {
            device: device.clone(),
            raw,
            object: Object::new("semaphore", ""),
            owned,
            is_exportable,
            on_spare: OnceLock::new(),
            used: AtomicU64::new(0),
        }
    }

    /// Notes that `submission`, which the driver has just taken, uses the semaphore.
    pub(crate) fn note_use(&self, submission: u64) {
        self.used.fetch_max(submission, Ordering::Relaxed);
    }

    pub(crate) const fn raw(&self) -> vk::Semaphore {
        self.raw
    }

    #[inline]
    pub(crate) const fn device(&self) -> &Arc<Inner> {
        &self.device
    }

    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }

    /// Reads the counter with `vkGetSemaphoreCounterValue`.
    #[inline]
    pub(crate) fn value(&self) -> Result<u64> {
        // SAFETY: a timeline semaphore of this device, which lives as long as `self`.
        let value = unsafe { self.device.raw().get_semaphore_counter_value(self.raw) };
        value.map_err(|code| {
            self.device
                .failed(&self.object, "vkGetSemaphoreCounterValue", code)
        })
    }

    /// Exports a new handle with `vkGetSemaphoreFdKHR`.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn export(&self) -> Result<OwnedFd> {
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(self.raw)
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        let functions = self.device.external().semaphores("export a timeline")?;
        // SAFETY: a live timeline semaphore, made for handles of this type.
        let fd = unsafe { functions.get_semaphore_fd(&info) };
        self.device.own_fd(&self.object, "vkGetSemaphoreFdKHR", fd)
    }

    /// The same payload on a second `VkDevice`. Called once this device is lost.
    pub(crate) fn on_spare(&self) -> Result<&SpareSemaphore> {
        if let Some(spare) = self.on_spare.get() {
            return Ok(spare);
        }
        if !self.is_exportable {
            return Err(Error::unsupported(
                &self.object,
                "be signalled although its device is lost",
                "it cannot be exported to another device",
            ));
        }
        let imported = SpareSemaphore::import(&self.device.spare()?, &self.export()?)?;
        self.device.native().note_semaphore(imported.raw(), true);
        Ok(self.on_spare.get_or_init(|| imported))
    }

    /// Same as [`Semaphore::value`], with an error for the value that a lost device may show.
    pub(crate) fn known_value(&self) -> Result<u64> {
        let call = "vkGetSemaphoreCounterValue";
        match self.value()? {
            u64::MAX => {
                let lost = vk::Result::ERROR_DEVICE_LOST;
                Err(self.device.failed(&self.object, call, lost))
            }
            value => Ok(value),
        }
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        let Some(device) = self.device.for_destroy() else {
            return;
        };
        let used = self.used.load(Ordering::Relaxed);
        if self.owned && !self.device.deferred_destroy().defer(used, self.raw) {
            // SAFETY: created on this device, or adopted with the right to destroy it, and
            // destroyed only here or by `DeferredDestroy`. No submission in flight uses the
            // semaphore, because each keeps an `Arc` of it until it has finished.
            unsafe { device.destroy_semaphore(self.raw, None) };
        }
    }
}
