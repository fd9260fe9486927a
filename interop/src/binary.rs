//! Binary semaphores, on any device that has them.
#![allow(unsafe_code, reason = "passes a caller's promise on to a backend")]

#[cfg(doc)]
use syncline_core::Error;
use syncline_core::backend::Device as _;
use syncline_core::{BinaryFd, Fence, HandleKind, Object, Payload, Rejected, Result, SyncFd};

use crate::any::{Device, Recorder};
#[cfg(feature = "cuda")]
use crate::cuda;
use crate::foreign::unsupported;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// A binary semaphore as one device sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BinarySemaphore {
    /// Imported by CUDA.
    #[cfg(feature = "cuda")]
    Cuda(cuda::BinarySemaphore),
    /// A `VkSemaphore`.
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::BinarySemaphore),
}

impl Device {
    /// A fresh binary semaphore that can be exported as handles of this kind, and of no other.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reason, if the device exports no binary semaphores as such handles: only Vulkan's do, and none as those of
    /// Windows; a driver error.
    pub fn exportable_binary(&self, label: &str, kind: HandleKind) -> Result<BinarySemaphore> {
        match self {
            #[cfg(feature = "vulkan")]
            Self::Vulkan(device) => device
                .exportable_binary(label, kind)
                .map(BinarySemaphore::Vulkan),
            _ => {
                let _ = label;
                let asked = format!("make a binary semaphore for export as {kind}");
                let reason = kind.no_platform();
                let reason =
                    reason.unwrap_or_else(|| "Vulkan devices export binary semaphores".into());
                Err(unsupported(self.object(), &asked, &reason))
            }
        }
    }

    /// A fresh binary semaphore, which can be exported where the device exports such.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on devices that make none: only Vulkan's do; a driver error.
    pub fn binary_semaphore(&self, label: &str) -> Result<BinarySemaphore> {
        match self {
            #[cfg(feature = "vulkan")]
            Self::Vulkan(device) => device.binary_semaphore(label).map(BinarySemaphore::Vulkan),
            _ => {
                let _ = label;
                let reason = "Vulkan devices make them, and export them to others";
                Err(unsupported(
                    self.object(),
                    "make a binary semaphore",
                    reason,
                ))
            }
        }
    }

    /// The binary semaphore that `handle` carries.
    ///
    /// # Errors
    /// The handle, and: [`Error::CannotShare`] if it comes from another GPU or driver, before this one's is
    /// asked; [`Error::Unsupported`] if the device imports none; [`Error::Import`] or a driver error.
    pub fn import_binary(
        &self,
        handle: BinaryFd,
        label: &str,
    ) -> Result<BinarySemaphore, Rejected<BinaryFd>> {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => device
                .import_binary(handle, label)
                .map(BinarySemaphore::Cuda),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(device) => device
                .import_binary(handle, label)
                .map(BinarySemaphore::Vulkan),
            Self::Host(_) => {
                let _ = label;
                let reason = "worker threads wait for no driver's handles";
                Err(Rejected {
                    handle,
                    error: unsupported(self.object(), "import a binary semaphore", reason),
                })
            }
        }
    }
}

impl BinarySemaphore {
    /// Its name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        match *self {
            #[cfg(feature = "cuda")]
            Self::Cuda(ref semaphore) => semaphore.object(),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(ref semaphore) => semaphore.object(),
        }
    }

    /// A new handle of it, for another device or API.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it cannot leave: CUDA exports nothing; a driver error.
    pub fn export(&self) -> Result<BinaryFd> {
        match *self {
            #[cfg(feature = "cuda")]
            Self::Cuda(ref semaphore) => Err(unsupported(
                semaphore.object(),
                "leave",
                "CUDA exports no semaphores; export it where it was made",
            )),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(ref semaphore) => semaphore.export(),
        }
    }

    /// Which payload it has; see `vulkan::BinarySemaphore::payload`. CUDA's is always permanent.
    #[must_use]
    pub fn payload(&self) -> Payload {
        match *self {
            #[cfg(feature = "cuda")]
            Self::Cuda(ref semaphore) => semaphore.payload(),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(ref semaphore) => semaphore.payload(),
        }
    }

    /// Replaces the payload for one wait by the one behind a handle; see `vulkan::BinarySemaphore::import_temporary`.
    ///
    /// # Errors
    /// The handle, and: as there; [`Error::Unsupported`] for a semaphore of CUDA, which imports for good.
    pub fn import_temporary(&self, handle: BinaryFd) -> Result<(), Rejected<BinaryFd>> {
        let _ = &handle;
        match *self {
            #[cfg(feature = "cuda")]
            Self::Cuda(ref semaphore) => semaphore
                .import_temporary(handle)
                .map(|never| match never {}),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(ref semaphore) => semaphore.import_temporary(handle),
        }
    }

    /// Replaces the payload for one wait by the signal that a sync file holds; see `vulkan::BinarySemaphore::import_sync_fd`.
    ///
    /// # Errors
    /// The handle, and: as there; [`Error::Unsupported`] for a semaphore of CUDA, which knows no sync files.
    pub fn import_sync_fd(&self, handle: SyncFd) -> Result<(), Rejected<SyncFd>> {
        let _ = &handle;
        match *self {
            #[cfg(feature = "cuda")]
            Self::Cuda(ref semaphore) => {
                semaphore.import_sync_fd(handle).map(|never| match never {})
            }
            #[cfg(feature = "vulkan")]
            Self::Vulkan(ref semaphore) => semaphore.import_sync_fd(handle),
        }
    }

    /// A sync file for the signal that is pending now, or has been made, which the semaphore loses by it; see
    /// `vulkan::BinarySemaphore::export_sync_fd`.
    ///
    /// # Errors
    /// As there, and [`Error::Unsupported`] if it cannot leave: CUDA exports nothing.
    ///
    /// # Safety
    /// A signal of the semaphore is pending, or has been made, and nothing else waits for it.
    pub unsafe fn export_sync_fd(&self) -> Result<SyncFd> {
        match *self {
            #[cfg(feature = "cuda")]
            Self::Cuda(ref semaphore) => Err(unsupported(
                semaphore.object(),
                "leave as a sync file",
                "CUDA exports no semaphores; export it where it was made",
            )),
            #[cfg(feature = "vulkan")]
            // SAFETY: the caller's promise.
            Self::Vulkan(ref semaphore) => unsafe { semaphore.export_sync_fd() },
        }
    }

    /// A fence for the signal that is pending now, which the device consumes, once. Any number of queues of
    /// any device, and the host, can wait for the fence. For the next signal call this again, once that one
    /// is pending.
    ///
    /// # Errors
    /// A driver error; the signal is not consumed then.
    ///
    /// # Safety
    /// A signal of the semaphore is pending (its submission is with a driver, and waits for nothing that
    /// only the host can still provide), and nothing else waits for that signal.
    pub unsafe fn pending(&self, label: &str) -> Result<Fence> {
        let _ = label;
        match *self {
            #[cfg(feature = "cuda")]
            // SAFETY: the caller's promise.
            Self::Cuda(ref semaphore) => unsafe { semaphore.pending(label) },
            #[cfg(feature = "vulkan")]
            // SAFETY: the caller's promise.
            Self::Vulkan(ref semaphore) => unsafe { semaphore.pending(label) },
        }
    }
}

impl Recorder<'_> {
    /// Waits for the pending signal of a binary semaphore, and consumes it: at least what is recorded after this comes
    /// behind the signal. Keeps the semaphore.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a semaphore of another device; [`Error::Unsupported`] for one of another
    /// backend; a driver error.
    ///
    /// # Safety
    /// As [`BinarySemaphore::pending`].
    pub unsafe fn wait_semaphore(&mut self, semaphore: &BinarySemaphore) -> Result<()> {
        match (self, semaphore) {
            #[cfg(feature = "cuda")]
            (Recorder::Cuda(recorder), BinarySemaphore::Cuda(semaphore)) => {
                // SAFETY: the caller's promise.
                unsafe { recorder.wait_semaphore(semaphore) }
            }
            #[cfg(feature = "vulkan")]
            (Recorder::Vulkan(recorder), BinarySemaphore::Vulkan(semaphore)) => {
                // SAFETY: the caller's promise.
                unsafe { recorder.wait_semaphore(semaphore) }
            }
            (_, semaphore) => Err(unsupported(
                semaphore.object(),
                "be waited for by this queue",
                "it is a semaphore of another backend; export it and import it there",
            )),
        }
    }

    /// Also signals a binary semaphore, after the work, and keeps it.
    ///
    /// A submission that is [skipped](syncline_core::Submitted::end) does not signal it: ask
    /// [`wait_submitted`](syncline_core::Submitted::wait_submitted) before anything waits for it.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a semaphore of another device; [`Error::Unsupported`] for one of another
    /// backend; a driver error.
    ///
    /// # Safety
    /// The semaphore is unsignalled, with no signal pending, once the submission runs.
    pub unsafe fn signal_semaphore(&mut self, semaphore: &BinarySemaphore) -> Result<()> {
        match (self, semaphore) {
            #[cfg(feature = "cuda")]
            (Recorder::Cuda(recorder), BinarySemaphore::Cuda(semaphore)) => {
                // SAFETY: the caller's promise.
                unsafe { recorder.signal_semaphore(semaphore) }
            }
            #[cfg(feature = "vulkan")]
            (Recorder::Vulkan(recorder), BinarySemaphore::Vulkan(semaphore)) => {
                // SAFETY: the caller's promise.
                unsafe { recorder.signal_semaphore(semaphore) }
            }
            (_, semaphore) => Err(unsupported(
                semaphore.object(),
                "be signalled by this queue",
                "it is a semaphore of another backend; export it and import it there",
            )),
        }
    }
}
