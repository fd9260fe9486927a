//! What other APIs made, on any device: descriptors as fences, and handles that none takes here.

use std::convert::Infallible;
use std::os::fd::OwnedFd;

use syncline_core::backend::Device as _;
use syncline_core::{Error, Fence, Object, Rejected, Result, SyncFd, WindowsHandle};

use crate::any::Device;

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

    /// A fence for the signal that a sync file stands for; see [`host::Device::import_sync_fd`](crate::host::Device::import_sync_fd).
    /// A host device takes it. Queues of every device can wait for the fence.
    ///
    /// # Errors
    /// The handle, and: as there; [`Error::Unsupported`] on any other device.
    pub fn import_sync_fd(&self, handle: SyncFd, label: &str) -> Result<Fence, Rejected<SyncFd>> {
        match self {
            Self::Host(device) => device.import_sync_fd(handle, label),
            #[allow(unreachable_patterns, reason = "reachable with another backend")]
            _ => Err(Rejected {
                handle,
                error: unsupported(
                    self.object(),
                    "make a fence of a sync file",
                    "a host device does, and queues of every device wait for the fence",
                ),
            }),
        }
    }

    /// Refuses a handle of Windows, whatever it holds, as every device does on this platform.
    ///
    /// # Errors
    /// Always: the handle, and [`Error::Unsupported`] with the reason. No driver is asked.
    pub fn import_windows<H: WindowsHandle>(&self, handle: H) -> Result<Infallible, Rejected<H>> {
        match self {
            Self::Host(device) => device.import_windows(handle),
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => device.import_windows(handle),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(device) => device.import_windows(handle),
        }
    }
}

pub(crate) fn unsupported(object: &Object, asked: &str, reason: &str) -> Error {
    Error::Unsupported {
        object: object.clone(),
        asked: asked.into(),
        reason: reason.into(),
    }
}
