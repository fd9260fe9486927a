//! The port of a Vulkan device: a timeline semaphore.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ash::vk;
use syncline_core::backend::{self, Attachment, ByEngine, Recovered, SharedPort};
use syncline_core::{Error, Result, Timeline, error::Object};

use crate::device::inner::Inner;
use crate::device::open::Device;
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
    fn on_spare(&self) -> Result<&SpareSemaphore> {
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
        let imported = SpareSemaphore::import(&self.device.spare()?, self.export()?)?;
        Ok(self.on_spare.get_or_init(|| imported))
    }

    /// Same as [`Semaphore::value`], with an error for the value that a lost device may show.
    fn known_value(&self) -> Result<u64> {
        let call = "vkGetSemaphoreCounterValue";
        match self.value()? {
            u64::MAX => {
                let lost = vk::Result::ERROR_DEVICE_LOST;
                Err(self.device.failed(&self.object, call, lost))
            }
            value => Ok(value),
        }
    }

    /// The attachment of a timeline with its home on this device. The semaphore has the value
    /// `initial`.
    pub(crate) fn attach(self: Arc<Self>, initial: u64) -> Attachment {
        let device = self.device.clone();
        device.watched(Attachment::new(device.id(), initial, Port(self)))
    }

    /// The attachment of an imported semaphore, which other timelines or processes may signal too.
    pub(crate) fn attach_imported(self: Arc<Self>) -> Attachment {
        let device = self.device.clone();
        device
            .watched(Attachment::imported(device.id(), Port(self)))
            .signalled_elsewhere(true)
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        let used = self.used.load(Ordering::Relaxed);
        if self.owned && !self.device.deferred_destroy().defer(used, self.raw) {
            // SAFETY: created on this device, or adopted with the right to destroy it, and
            // destroyed only here or by `DeferredDestroy`. No submission in flight uses the
            // semaphore, because each keeps an `Arc` of it until it has finished.
            unsafe { self.device.raw().destroy_semaphore(self.raw, None) };
        }
    }
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

/// The port of a timeline on a Vulkan device.
pub(crate) struct Port(Arc<Semaphore>);

impl Port {
    /// The semaphore, if it belongs to `device`. Vulkan accepts no object of another `VkDevice`.
    #[inline]
    pub(crate) fn on(&self, device: &Inner) -> Option<&Arc<Semaphore>> {
        std::ptr::eq(&*self.0.device, device).then_some(&self.0)
    }
}

impl backend::Port for Port {
    fn poll(&self) -> Result<Option<u64>> {
        self.0.value().map(Some)
    }

    fn shared(&self) -> Option<&dyn SharedPort> {
        Some(self)
    }

    /// Calls `vkSignalSemaphore`.
    ///
    /// The engine has checked that the value increases. Drivers do not check it.
    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
        let semaphore = &*self.0;
        by.check(self, &semaphore.object)?;
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(semaphore.raw)
            .value(value);
        // SAFETY: a live timeline semaphore. This engine signals one value at a time, in order. If
        // several processes have the semaphore, only one of them signals. After that process has
        // died, the surviving processes signal in turns of 12 ms, each a higher value than before.
        // In three cases across processes, the semaphore may reach `value` before this call. These
        // cases cannot be detected here:
        // * A surviving process is stopped for longer than one turn between reading the value and
        //   this call.
        // * A process does not keep to the turns.
        // * A device still executes work of the dead process.
        unsafe { semaphore.device.raw().signal_semaphore(&info) }.map_err(|code| {
            semaphore
                .device
                .failed(&semaphore.object, "vkSignalSemaphore", code)
        })
    }
}

impl SharedPort for Port {
    /// Signals the semaphore, through a second `VkDevice` if this device is lost.
    ///
    /// Calls on a lost device fail, or they succeed without an effect.
    fn recover(&self, after: u64, value: u64, by: ByEngine<'_>) -> Result<Recovered> {
        let semaphore = &*self.0;
        by.check(self, &semaphore.object)?;
        let signal = |value| backend::Port::signal(self, value, by);
        match recover(|| semaphore.known_value(), after, value, signal) {
            Ok(Recovered::Elsewhere) | Err(Error::DeviceLost { .. }) => {
                let spare = semaphore.on_spare()?;
                recover(|| spare.value(), after, value, |value| spare.signal(value))
            }
            recovered => recovered,
        }
    }
}

/// Signals `value`, unless the counter has reached it. The counter must be at `after` or above.
///
/// Returns [`Recovered::NotYet`] if the counter is lower, and [`Recovered::Elsewhere`] if the
/// counter does not show the signal. The counter of a working device shows the signal at once.
fn recover(
    read: impl Fn() -> Result<u64>,
    after: u64,
    value: u64,
    signal: impl FnOnce(u64) -> Result<()>,
) -> Result<Recovered> {
    let reached = read()?;
    if reached < after {
        return Ok(Recovered::NotYet);
    }
    // A pending signal may have completed meanwhile.
    if reached < value {
        signal(value)?;
        if read()? < value {
            return Ok(Recovered::Elsewhere);
        }
    }
    Ok(Recovered::Signalled)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::cell::Cell;

    use rstest::rstest;
    use syncline_core::backend::{Device as _, Queue as _};
    use syncline_core::{Error, QueueKind};

    use super::*;
    use crate::driver::instance::Instance;

    /// E3. A lost device may answer success to a signal that it does not make.
    #[rstest]
    #[case::too_early(1, true, Recovered::NotYet, 1)]
    #[case::of_a_working_device(2, true, Recovered::Signalled, 5)]
    #[case::of_a_lost_device(2, false, Recovered::Elsewhere, 2)]
    #[case::made_already(7, false, Recovered::Signalled, 7)]
    fn a_signal_counts_once_the_counter_shows_it(
        #[case] before: u64,
        #[case] works: bool,
        #[case] expected: Recovered,
        #[case] after: u64,
    ) {
        let counter = Cell::new(before);
        let signal = |value| {
            if works {
                counter.set(value);
            }
            Ok(())
        };
        let recovered = recover(|| Ok(counter.get()), 2, 5, signal).unwrap();
        assert_eq!((recovered, counter.get()), (expected, after));
    }

    /// A semaphore of another `VkDevice` is not passed to the driver, whatever device its
    /// attachment names.
    #[test]
    fn a_semaphore_of_another_device_is_refused() {
        let Ok(instance) = Instance::load() else {
            return println!("skipped: there is no Vulkan driver");
        };
        for candidate in instance.devices().unwrap() {
            let (Ok(ours), Ok(theirs)) = (candidate.open(), candidate.open()) else {
                continue;
            };
            let none = vk::ExternalSemaphoreHandleTypeFlags::empty();
            let semaphore = Semaphore::new(theirs.inner(), 0, none).unwrap();
            let port = Attachment::new(ours.id(), 0, Port(semaphore));
            let timeline = Timeline::new("line", 0, |_| Ok([port].into_iter().collect())).unwrap();
            let queue = ours.queue(QueueKind::Compute, "ours").unwrap();
            let refused = |asked: &str, error: Error| {
                assert!(
                    matches!(error, Error::Unsupported { .. }),
                    "{asked}: {error}"
                );
            };
            timeline.signal(1).unwrap();
            refused("semaphore", ours.semaphore(timeline.at(1)).unwrap_err());
            refused("semaphore_of", ours.semaphore_of(&timeline).unwrap_err());
            let signals = [timeline.signal_at(2)];
            refused(
                "submit",
                queue.submit(&[], |_| Ok(()), &signals).unwrap_err(),
            );
        }
    }
}
