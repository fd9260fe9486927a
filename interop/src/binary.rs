//! Binary semaphores of any backend that has them.
#![allow(
    unsafe_code,
    reason = "forwards unsafe calls to a backend with the same contract"
)]

use syncline_core::backend::Device as _;
use syncline_core::{
    Error, Fence, Result,
    error::Object,
    handle::{BinaryFd, HandleKind, Payload, Rejected, SyncFd},
};

#[cfg(all(feature = "cuda", feature = "vulkan"))]
use crate::another_backend::another_backend;
use crate::any::{Device, Recorder};
#[cfg(feature = "cuda")]
use crate::cuda;
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
    /// Makes an unsignalled binary semaphore that can be exported only as handles of `kind`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device cannot export binary semaphores as such handles. Only
    /// Vulkan devices export binary semaphores. A driver error.
    pub fn exportable_binary(&self, label: &str, kind: HandleKind) -> Result<BinarySemaphore> {
        match self {
            #[cfg(feature = "vulkan")]
            Self::Vulkan(device) => device
                .exportable_binary(label, kind)
                .map(BinarySemaphore::Vulkan),
            _ => {
                let _ = label;
                let asked = format!("make a binary semaphore for export as {kind}");
                let reason = "Vulkan devices export binary semaphores";
                Err(Error::unsupported(self.object(), asked, reason))
            }
        }
    }

    /// Makes an unsignalled binary semaphore, exportable if the device exports binary semaphores.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless this is a Vulkan device. A driver error.
    pub fn binary_semaphore(&self, label: &str) -> Result<BinarySemaphore> {
        match self {
            #[cfg(feature = "vulkan")]
            Self::Vulkan(device) => device.binary_semaphore(label).map(BinarySemaphore::Vulkan),
            _ => {
                let _ = label;
                let reason = "only Vulkan devices make binary semaphores; import one from there";
                Err(Error::unsupported(
                    self.object(),
                    "make a binary semaphore",
                    reason,
                ))
            }
        }
    }

    /// Imports the binary semaphore behind `handle`.
    ///
    /// # Errors
    /// Each error returns the handle. [`Error::CannotShare`] if the handle comes from another GPU
    /// or driver, which is checked before any driver call. [`Error::Unsupported`] if the device
    /// imports no binary semaphores. [`Error::Import`] or a driver error.
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
                    error: Error::unsupported(self.object(), "import a binary semaphore", reason),
                })
            }
        }
    }
}

impl BinarySemaphore {
    /// The semaphore as one of CUDA.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a semaphore of another backend.
    #[cfg(feature = "cuda")]
    pub fn cuda(&self) -> Result<&cuda::BinarySemaphore> {
        match self {
            Self::Cuda(semaphore) => Ok(semaphore),
            #[cfg(feature = "vulkan")]
            other => Err(another_backend(other.object(), "CUDA")),
        }
    }

    /// The semaphore as one of Vulkan.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a semaphore of another backend.
    #[cfg(feature = "vulkan")]
    pub fn vulkan(&self) -> Result<&vulkan::BinarySemaphore> {
        match self {
            Self::Vulkan(semaphore) => Ok(semaphore),
            #[cfg(feature = "cuda")]
            other => Err(another_backend(other.object(), "Vulkan")),
        }
    }
}

#[cfg(feature = "cuda")]
impl From<cuda::BinarySemaphore> for BinarySemaphore {
    fn from(semaphore: cuda::BinarySemaphore) -> Self {
        Self::Cuda(semaphore)
    }
}

#[cfg(feature = "vulkan")]
impl From<vulkan::BinarySemaphore> for BinarySemaphore {
    fn from(semaphore: vulkan::BinarySemaphore) -> Self {
        Self::Vulkan(semaphore)
    }
}

#[cfg(feature = "cuda")]
impl TryFrom<BinarySemaphore> for cuda::BinarySemaphore {
    type Error = Error;

    fn try_from(semaphore: BinarySemaphore) -> Result<Self> {
        semaphore.cuda().cloned()
    }
}

#[cfg(feature = "vulkan")]
impl TryFrom<BinarySemaphore> for vulkan::BinarySemaphore {
    type Error = Error;

    fn try_from(semaphore: BinarySemaphore) -> Result<Self> {
        semaphore.vulkan().cloned()
    }
}

impl BinarySemaphore {
    /// The label and id that errors and reports use.
    #[must_use]
    pub fn object(&self) -> &Object {
        match *self {
            #[cfg(feature = "cuda")]
            Self::Cuda(ref semaphore) => semaphore.object(),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(ref semaphore) => semaphore.object(),
        }
    }

    /// Exports a new handle of the semaphore, for another device or API.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the semaphore is not exportable. CUDA exports no semaphores. A
    /// driver error.
    pub fn export(&self) -> Result<BinaryFd> {
        match *self {
            #[cfg(feature = "cuda")]
            Self::Cuda(ref semaphore) => Err(Error::unsupported(
                semaphore.object(),
                "leave",
                "CUDA exports no semaphores; export it where it was made",
            )),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(ref semaphore) => semaphore.export(),
        }
    }

    /// The payload that the semaphore has now. The payload of a CUDA semaphore is always permanent.
    ///
    /// See `vulkan::BinarySemaphore::payload`.
    #[must_use]
    pub fn payload(&self) -> Payload {
        match *self {
            #[cfg(feature = "cuda")]
            Self::Cuda(ref semaphore) => semaphore.payload(),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(ref semaphore) => semaphore.payload(),
        }
    }

    /// Imports the payload behind `handle` temporarily, for one wait.
    ///
    /// See `vulkan::BinarySemaphore::import_temporary`.
    ///
    /// # Errors
    /// Same errors as there. [`Error::Unsupported`] for a CUDA semaphore, because CUDA imports
    /// payloads permanently. Each error returns the handle.
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

    /// Imports the signal of a sync file as a temporary payload, for one wait.
    ///
    /// See `vulkan::BinarySemaphore::import_sync_fd`.
    ///
    /// # Errors
    /// Same errors as there. [`Error::Unsupported`] for a CUDA semaphore, because CUDA has no sync
    /// files. Each error returns the handle.
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

    /// Moves the pending or completed signal of the semaphore into a sync file.
    ///
    /// The export consumes the signal, as a wait does. See
    /// `vulkan::BinarySemaphore::export_sync_fd`.
    ///
    /// # Errors
    /// Same errors as there. [`Error::Unsupported`] for a CUDA semaphore, because CUDA exports
    /// nothing.
    ///
    /// # Safety
    /// A signal of the semaphore is pending or complete, and nothing else waits for that signal.
    pub unsafe fn export_sync_fd(&self) -> Result<SyncFd> {
        match *self {
            #[cfg(feature = "cuda")]
            Self::Cuda(ref semaphore) => Err(Error::unsupported(
                semaphore.object(),
                "leave as a sync file",
                "CUDA exports no semaphores; export it where it was made",
            )),
            #[cfg(feature = "vulkan")]
            // SAFETY: this method has the same contract.
            Self::Vulkan(ref semaphore) => unsafe { semaphore.export_sync_fd() },
        }
    }

    /// Makes a fence for the pending signal. The device consumes that signal once.
    ///
    /// The host and any number of queues of any device can wait for the fence. Call this again for
    /// each later signal once it is pending.
    ///
    /// # Errors
    /// A driver error. Then the signal is not consumed.
    ///
    /// # Safety
    /// A signal of the semaphore is pending, and nothing else waits for that signal. Pending means
    /// that its submission is with a driver and needs no further action of the host.
    pub unsafe fn pending(&self, label: &str) -> Result<Fence> {
        let _ = label;
        match *self {
            #[cfg(feature = "cuda")]
            // SAFETY: this method has the same contract.
            Self::Cuda(ref semaphore) => unsafe { semaphore.pending(label) },
            #[cfg(feature = "vulkan")]
            // SAFETY: this method has the same contract.
            Self::Vulkan(ref semaphore) => unsafe { semaphore.pending(label) },
        }
    }
}

impl Recorder<'_> {
    /// Waits for the pending signal of a binary semaphore and consumes the signal.
    ///
    /// All work that is recorded after this call executes after the signal. Work recorded before
    /// may wait too. The submission keeps the semaphore alive.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a semaphore of another device. [`Error::Unsupported`] for a
    /// semaphore of another backend. A driver error.
    ///
    /// # Safety
    /// Same contract as [`BinarySemaphore::pending`].
    pub unsafe fn wait_semaphore(&mut self, semaphore: &BinarySemaphore) -> Result<()> {
        match (self, semaphore) {
            #[cfg(feature = "cuda")]
            (Recorder::Cuda(recorder), BinarySemaphore::Cuda(semaphore)) => {
                // SAFETY: this method has the same contract.
                unsafe { recorder.wait_semaphore(semaphore) }
            }
            #[cfg(feature = "vulkan")]
            (Recorder::Vulkan(recorder), BinarySemaphore::Vulkan(semaphore)) => {
                // SAFETY: this method has the same contract.
                unsafe { recorder.wait_semaphore(semaphore) }
            }
            (_, semaphore) => Err(Error::unsupported(
                semaphore.object(),
                "be waited for by this queue",
                "it is a semaphore of another backend; export it and import it there",
            )),
        }
    }

    /// Signals a binary semaphore after the work of the submission.
    ///
    /// The submission keeps the semaphore alive. A submission that is
    /// [skipped](syncline_core::Submitted::end) does not signal the semaphore. Therefore call
    /// [`wait_submitted`](syncline_core::Submitted::wait_submitted) before anything waits for it.
    ///
    /// # Errors
    /// Same errors as [`Recorder::wait_semaphore`].
    ///
    /// # Safety
    /// When the submission executes, the semaphore is unsignalled and no other signal is pending.
    pub unsafe fn signal_semaphore(&mut self, semaphore: &BinarySemaphore) -> Result<()> {
        match (self, semaphore) {
            #[cfg(feature = "cuda")]
            (Recorder::Cuda(recorder), BinarySemaphore::Cuda(semaphore)) => {
                // SAFETY: this method has the same contract.
                unsafe { recorder.signal_semaphore(semaphore) }
            }
            #[cfg(feature = "vulkan")]
            (Recorder::Vulkan(recorder), BinarySemaphore::Vulkan(semaphore)) => {
                // SAFETY: this method has the same contract.
                unsafe { recorder.signal_semaphore(semaphore) }
            }
            (_, semaphore) => Err(Error::unsupported(
                semaphore.object(),
                "be signalled by this queue",
                "it is a semaphore of another backend; export it and import it there",
            )),
        }
    }
}
