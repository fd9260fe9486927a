//! Timelines of other APIs, imported.
#![allow(unsafe_code, reason = "callers vouch for the values of an import")]

use std::convert::Infallible;

use syncline_core::backend::Attachment;
use syncline_core::{HandleKind, Rejected, Result, TimelineFd, WindowsHandle};

use crate::device::open::Device;
use crate::timeline::external::ExternalPort;
use crate::timeline::semaphore::Kind;

impl Device {
    /// This device's part in a timeline whose semaphore `handle` carries.
    ///
    /// A binary semaphore's does not come in here:
    ///
    /// ```compile_fail,E0308
    /// # use syncline_cuda::Device;
    /// # use syncline_core::BinaryFd;
    /// fn take(device: &Device, handle: BinaryFd) {
    ///     let _ = unsafe { device.import_timeline(handle) };
    /// }
    /// ```
    ///
    /// # Safety
    /// The signals of this counter have ever greater values, from this process, from other processes and from work that uses the
    /// semaphore itself. One timeline sees to that for its signals, on whichever of its devices. Two timelines over one counter know nothing
    /// of each other. The exporter's specification asks for it (Vulkan: VUID-VkSemaphoreSignalInfo-value-03258), and no driver checks it.
    ///
    /// # Errors
    /// [`Error::CannotShare`] if it comes from another GPU, and [`Error::Unsupported`] if the device takes no
    /// timelines, before any driver is asked; a driver error. The handle comes back with it, still open.
    pub unsafe fn import_timeline(
        &self,
        handle: TimelineFd,
    ) -> Result<Attachment, Rejected<TimelineFd>> {
        let port = self.import_port(handle)?;
        Ok(Attachment::imported(self.id(), port))
    }

    /// As [`Device::import_timeline`], for a timeline at `initial` that nobody but this device signals: the exporter is in another process, and waits. The
    /// timeline has its home here then. The events behind its signals tell the host how far it is, and what the host signals goes through a stream.
    ///
    /// # Safety
    /// As there. It stands at `initial`, and nothing but the returned attachment signals it.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn import_timeline_to_signal(
        &self,
        handle: TimelineFd,
        initial: u64,
    ) -> Result<Attachment, Rejected<TimelineFd>> {
        let port = self
            .import_port(handle)?
            .signalling_alone(initial, self.plain_events());
        Ok(Attachment::new(self.id(), initial, port).watched_by(self.watched()))
    }

    fn import_port(&self, handle: TimelineFd) -> Result<ExternalPort, Rejected<TimelineFd>> {
        let kind = HandleKind::TimelineOpaqueFd;
        if let Err(error) = self.require(handle.origin(), kind, "a timeline semaphore") {
            return Err(Rejected { handle, error });
        }
        let semaphore = self.import_semaphore(handle, Kind::Timeline)?;
        Ok(ExternalPort::new(semaphore, self.object()))
    }

    /// Refuses a handle of Windows, whatever it holds: on this platform the driver knows none.
    ///
    /// # Errors
    /// Always: the handle, and [`Error::Unsupported`] with the reason. The driver is not asked.
    pub fn import_windows<H: WindowsHandle>(&self, handle: H) -> Result<Infallible, Rejected<H>> {
        handle.refuse(self.object())
    }
}

#[cfg(test)]
mod tests;
