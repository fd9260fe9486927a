//! Imported binary semaphores, and fences for their signals.
#![allow(
    unsafe_code,
    reason = "waits for what only the caller knows to be coming"
)]

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;
use syncline_core::backend::kit::get_or_make;
use syncline_core::{
    Error, Fence, Result,
    error::Object,
    handle::{BinaryFd, HandleKind, Payload, Rejected, SyncFd},
};

use crate::device::limits::SYNC_FILES_LIMIT;
use crate::device::open::Device;
use crate::queue::queue_stream::EXTERNAL;
use crate::queue::recorder::Recorder;
use crate::queue::submission::Queue;
use crate::timeline::semaphore::{Kind, Semaphore, signal_binary, wait_binary};

/// A binary semaphore of another API, on which this device waits and signals. Cheap to clone.
#[derive(Clone)]
pub struct BinarySemaphore(Arc<Inner>);

struct Inner {
    object: Object,
    semaphore: Arc<Semaphore>,
    device: Device,
    /// The queue that consumes signals for fences, created for the first of them.
    queue: OnceLock<Queue>,
}

impl Device {
    /// Imports the binary semaphore of `handle`.
    ///
    /// The handle of a timeline does not compile here:
    ///
    /// ```compile_fail,E0308
    /// # use syncline_cuda::Device;
    /// # use syncline_core::handle::TimelineFd;
    /// fn take(device: &Device, handle: TimelineFd) {
    ///     let _ = device.import_binary(handle, "");
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::CannotShare`] if the handle comes from another GPU, and [`Error::Unsupported`] if
    /// the device imports no binary semaphores. Both are checked before any driver call. A driver
    /// error. Each error returns the handle, still open.
    pub fn import_binary(
        &self,
        handle: BinaryFd,
        label: &str,
    ) -> Result<BinarySemaphore, Rejected<BinaryFd>> {
        let kind = HandleKind::BinaryOpaqueFd;
        if let Err(error) = self.require(handle.origin(), kind, "a binary semaphore") {
            return Err(Rejected { handle, error });
        }
        let semaphore = self.import_semaphore(handle, Kind::Binary)?;
        Ok(BinarySemaphore(Arc::new(Inner {
            object: Object::new("binary semaphore", label),
            semaphore: Arc::new(semaphore),
            device: self.clone(),
            queue: OnceLock::new(),
        })))
    }
}

impl BinarySemaphore {
    /// The name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// The raw semaphore, for work that the application submits itself.
    #[must_use]
    pub fn raw(&self) -> sys::CUexternalSemaphore {
        self.0.semaphore.raw()
    }

    /// Always [`Payload::Permanent`].
    #[must_use]
    pub const fn payload(&self) -> Payload {
        Payload::Permanent
    }

    /// Rejects a temporary payload, because CUDA imports semaphores permanently.
    ///
    /// # Errors
    /// Always returns the handle and [`Error::Unsupported`] with the reason, without a driver call.
    pub fn import_temporary(&self, handle: BinaryFd) -> Result<Infallible, Rejected<BinaryFd>> {
        let reason = "CUDA imports semaphores for good; import it as a semaphore of its own, or temporarily into one of Vulkan's";
        let error = self.refusal("import a temporary payload", reason);
        Err(Rejected { handle, error })
    }

    /// Rejects a sync file, because CUDA does not import any.
    ///
    /// # Errors
    /// Always returns the handle and [`Error::Unsupported`] with the reason, without a driver call.
    pub fn import_sync_fd(&self, handle: SyncFd) -> Result<Infallible, Rejected<SyncFd>> {
        let required =
            self.0
                .device
                .require_kind(HandleKind::SyncFd, SYNC_FILES_LIMIT, "a sync file");
        let error = match required {
            Err(error) => error,
            // No driver offers it.
            Ok(()) => self.refusal("import a sync file", "CUDA has no call for it"),
        };
        Err(Rejected { handle, error })
    }

    fn refusal(&self, asked: &str, reason: &str) -> Error {
        Error::unsupported(self.object(), asked, reason)
    }

    /// Creates a fence for the pending signal operation of the semaphore.
    ///
    /// The device consumes the signal once, on a separate stream. The fence is complete afterwards.
    /// Any number of queues of any device, and the host, can wait for the fence. Call this again
    /// for the next signal, once that is pending.
    ///
    /// # Errors
    /// A driver error. The signal is not consumed then.
    ///
    /// # Safety
    /// A signal operation of the semaphore is pending: a driver has its submission, which waits for
    /// nothing that only the host can still provide. Nothing else waits for that signal. A signal
    /// that never comes blocks the stream forever.
    pub unsafe fn pending(&self, label: &str) -> Result<Fence> {
        let device = &self.0.device;
        let queue = self.consumer()?;
        let consumed = device.event_timeline(label)?;
        let semaphore = self.0.semaphore.clone();
        let work = move |recorder: &mut Recorder<'_>| {
            let (stream, _bound) = recorder.bound_stream()?;
            wait_binary(stream, &semaphore)?;
            recorder.count(EXTERNAL);
            recorder.keep(semaphore);
            Ok(())
        };
        queue
            .submissions()
            .submit(&[], work, &[consumed.signal_at(1)])?;
        let point = consumed.at(1).keep();
        Ok(Fence::foreign(device.id(), device.object(), label, point))
    }

    fn consumer(&self) -> Result<&Queue> {
        get_or_make(&self.0.queue, || {
            let label = format!("{} (consumer)", self.object().label());
            Queue::on_own_stream(&self.0.device, &label)
        })
    }

    fn require_device(&self, recorder: &Recorder<'_>) -> Result<()> {
        let owner = &self.0.device;
        if owner.id() == recorder.device().id() {
            return Ok(());
        }
        Err(Error::wrong_device(
            &self.0.object,
            owner.object(),
            recorder.queue_object(),
        ))
    }
}

impl Recorder<'_> {
    /// Waits for the pending signal of a binary semaphore, and consumes it.
    ///
    /// Commands recorded after this execute after the signal. The submission keeps the semaphore.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or a driver error.
    ///
    /// # Safety
    /// Same as [`BinarySemaphore::pending`].
    pub unsafe fn wait_semaphore(&mut self, semaphore: &BinarySemaphore) -> Result<()> {
        semaphore.require_device(self)?;
        let (stream, _bound) = self.bound_stream()?;
        wait_binary(stream, &semaphore.0.semaphore)?;
        self.count(EXTERNAL);
        self.keep(semaphore.0.semaphore.clone());
        Ok(())
    }

    /// Signals a binary semaphore after the work recorded so far. The submission keeps it.
    ///
    /// A [skipped](syncline_core::Submitted::end) submission does not signal it. Check
    /// [`wait_submitted`](syncline_core::Submitted::wait_submitted) before anything waits for the
    /// semaphore.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or a driver error.
    ///
    /// # Safety
    /// The semaphore is unsignalled, without a pending signal operation, when the stream executes
    /// this.
    pub unsafe fn signal_semaphore(&mut self, semaphore: &BinarySemaphore) -> Result<()> {
        semaphore.require_device(self)?;
        let (stream, _bound) = self.bound_stream()?;
        signal_binary(stream, &semaphore.0.semaphore)?;
        self.count(EXTERNAL);
        self.keep(semaphore.0.semaphore.clone());
        Ok(())
    }
}

impl std::fmt::Debug for BinarySemaphore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.0.object, f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::os::fd::{AsFd, AsRawFd};

    use syncline_core::handle::{Origin, TimelineFd};

    use super::*;
    use crate::driver::emulated::{device, external_calls, timeline_fd};

    fn binary_fd(device: &Device) -> BinaryFd {
        let fd = TimelineFd::into_fd(timeline_fd(device.info()));
        // SAFETY: the emulated driver does not use the descriptor.
        unsafe { BinaryFd::from_fd(fd, Origin::of(device.info())) }
    }

    fn is_unsupported(error: &Error, object: &Object) {
        assert!(
            matches!(error, Error::Unsupported { object: named, reason, .. }
                if named == object && reason.len() > 8),
            "{error}"
        );
    }

    #[test]
    fn rejected_handles_come_back_and_change_nothing() {
        let device = device();
        let semaphore = device.import_binary(binary_fd(&device), "theirs").unwrap();
        let temporary = binary_fd(&device);
        let number = temporary.as_fd().as_raw_fd();
        let Err(Rejected { handle, error }) = semaphore.import_temporary(temporary);
        is_unsupported(&error, semaphore.object());
        assert_eq!(handle.as_fd().as_raw_fd(), number);
        let Err(Rejected { handle, error }) = semaphore.import_sync_fd(SyncFd::signalled());
        is_unsupported(&error, device.object());
        assert!(error.to_string().contains("sync file"), "{error}");
        assert!(handle.fd().is_none());
        assert_eq!(semaphore.payload(), Payload::Permanent);
        assert!(external_calls().is_empty());
    }
}
