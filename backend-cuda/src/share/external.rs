//! Imports of timeline semaphores of other APIs.
#![allow(unsafe_code, reason = "callers vouch for the values of an import")]

#[allow(unused_imports, reason = "for links, also in the facade")]
use syncline_core::Error;
use syncline_core::backend::{Attachment, Sharing};
use syncline_core::{
    Result,
    error::Object,
    handle::{CounterFd, HandleKind, Rejected, TimelineFd},
};

use crate::device::open::Device;
use crate::timeline::external::ExternalPort;
use crate::timeline::semaphore::Kind;

impl Device {
    /// Imports the timeline semaphore of `handle` as a port of this device.
    ///
    /// The handle of a binary semaphore does not compile here:
    ///
    /// ```compile_fail,E0308
    /// # use syncline_cuda::Device;
    /// # use syncline_core::handle::BinaryFd;
    /// fn take(device: &Device, handle: BinaryFd) {
    ///     let _ = unsafe { device.import_timeline(handle) };
    /// }
    /// ```
    ///
    /// # Safety
    /// All signals of this semaphore have increasing values, including signals from other processes
    /// and from work that uses the semaphore directly. One timeline ensures this for its own
    /// signals on all its devices. Two timelines over one semaphore do not know of each other. The
    /// exporter's specification requires this (Vulkan: VUID-VkSemaphoreSignalInfo-value-03258), and
    /// no driver checks it.
    ///
    /// # Errors
    /// [`Error::CannotShare`] if the handle comes from another GPU, and [`Error::Unsupported`] if
    /// the device imports no timelines. Both are checked before any driver call. A driver error.
    /// Each error returns the handle, still open.
    pub unsafe fn import_timeline(
        &self,
        handle: TimelineFd,
    ) -> Result<Attachment, Rejected<TimelineFd>> {
        let port = self.import_port(handle)?;
        Ok(Attachment::imported(self.id(), port).watched_by(self.watched()))
    }

    /// Imports a timeline at `initial` that only this device signals.
    ///
    /// Otherwise the same as [`Device::import_timeline`].
    ///
    /// The exporter is in another process, and only waits. The timeline has its home here. The
    /// events behind its signals tell the host which value is reached, and signals of the host go
    /// through a stream.
    ///
    /// # Safety
    /// Same as [`Device::import_timeline`]. The semaphore stands at `initial`, and only the
    /// returned attachment signals it.
    ///
    /// # Errors
    /// Same errors as [`Device::import_timeline`].
    pub unsafe fn import_timeline_to_signal(
        &self,
        handle: TimelineFd,
        initial: u64,
    ) -> Result<Attachment, Rejected<TimelineFd>> {
        let port = self.import_port(handle)?.signalling_alone(initial);
        Ok(Attachment::new(self.id(), initial, port).watched_by(self.watched()))
    }

    fn import_port(&self, handle: TimelineFd) -> Result<ExternalPort, Rejected<TimelineFd>> {
        let kind = HandleKind::TimelineOpaqueFd;
        if let Err(error) = self.require(handle.origin(), kind, "a timeline semaphore") {
            return Err(Rejected { handle, error });
        }
        let semaphore = self.import_semaphore(handle, Kind::Timeline)?;
        Ok(ExternalPort::new(
            semaphore,
            self.object(),
            self.plain_events(),
        ))
    }
}

// SAFETY: the device exports no counter. Its `Info` is what the driver tells.
unsafe impl Sharing for Device {
    fn name(&self) -> &Object {
        self.object()
    }

    unsafe fn import_timeline(
        &self,
        handle: TimelineFd,
    ) -> Result<Attachment, Rejected<TimelineFd>> {
        // SAFETY: this method has the same contract.
        unsafe { self.import_timeline(handle) }
    }

    fn import_counter(&self, handle: CounterFd) -> Result<Attachment, Rejected<CounterFd>> {
        self.import_counter(handle)
    }
}

#[cfg(test)]
mod tests;
