//! Imports of objects of other APIs: descriptors as fences.

use std::os::fd::OwnedFd;

use syncline_core::backend::Device as _;
use syncline_core::{
    Error, Fence, Result,
    handle::{Rejected, SyncFd},
};

use crate::any::Device;

impl Device {
    /// Makes a fence that is complete once `descriptor` is readable. Only host devices do this.
    ///
    /// Queues of every device can wait for the fence. See
    /// [`host::Device::import_descriptor`](crate::host::Device::import_descriptor).
    ///
    /// # Errors
    /// Same errors as there. [`Error::Unsupported`] on any other device. Each error returns the
    /// descriptor.
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
                error: Error::unsupported(self.object(), "import a descriptor", IMPORT_ON_HOST),
            }),
        }
    }

    /// Makes a fence for the signal behind a sync file. Only host devices do this.
    ///
    /// Queues of every device can wait for the fence. See
    /// [`host::Device::import_sync_fd`](crate::host::Device::import_sync_fd).
    ///
    /// # Errors
    /// Same errors as there. [`Error::Unsupported`] on any other device. Each error returns the
    /// handle.
    pub fn import_sync_fd(&self, handle: SyncFd, label: &str) -> Result<Fence, Rejected<SyncFd>> {
        match self {
            Self::Host(device) => device.import_sync_fd(handle, label),
            #[allow(unreachable_patterns, reason = "reachable with another backend")]
            _ => Err(Rejected {
                handle,
                error: Error::unsupported(
                    self.object(),
                    "make a fence of a sync file",
                    IMPORT_ON_HOST,
                ),
            }),
        }
    }
}

const IMPORT_ON_HOST: &str =
    "only host devices do; import it there, and queues of every device can wait for the fence";
