//! Fences for objects of other APIs, on any device.
#![allow(unsafe_code, reason = "passes a caller's promise on to a backend")]

use std::os::fd::OwnedFd;

use syncline_core::backend::Device as _;
use syncline_core::{BinaryFd, Error, Fence, Object, Rejected, Result};

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
    /// A fence that is complete once `descriptor` can be read; see [`host::Device::import_descriptor`](crate::host::Device::import_descriptor).
    /// A host device takes it. Queues of every device can wait for the fence.
    ///
    /// # Errors
    /// As there, and [`Error::Unsupported`] on any other device; the descriptor comes back.
    pub fn import_descriptor(
        &self,
        descriptor: Option<OwnedFd>,
        label: &str,
    ) -> Result<Fence, Rejected<Option<OwnedFd>>> {
        match self {
            Self::Host(device) => device
                .import_descriptor(descriptor, label)
                .map_err(|rejected| Rejected {
                    handle: Some(rejected.handle),
                    error: rejected.error,
                }),
            #[allow(unreachable_patterns, reason = "reachable with another backend")]
            _ => Err(Rejected {
                handle: descriptor,
                error: unsupported(
                    self.object(),
                    "import a descriptor",
                    "a host device does, and queues of every device wait for the fence",
                ),
            }),
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

fn unsupported(object: &Object, asked: &str, reason: &str) -> Error {
    Error::Unsupported {
        object: object.clone(),
        asked: asked.into(),
        reason: reason.into(),
    }
}
