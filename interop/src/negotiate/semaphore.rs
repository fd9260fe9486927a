//! A binary semaphore as one device of this process has it.
#![cfg_attr(
    not(any(feature = "cuda", feature = "vulkan")),
    allow(dead_code, reason = "no device has a binary semaphore")
)]

use std::sync::Arc;

#[cfg(doc)]
use syncline_core::Error;
use syncline_core::{Result, handle::BinaryFd};

use super::party::PartyId;
use super::waits::{LocalSignaller, SemaphoreWaits};
use crate::any::Device;
use crate::binary::BinarySemaphore;

/// A binary semaphore of one device of this process.
#[derive(Debug, Clone)]
pub(crate) struct DeviceSemaphore {
    party: PartyId,
    semaphore: BinarySemaphore,
    /// `Some` if another device signals it.
    waits: Option<Arc<SemaphoreWaits>>,
}

impl DeviceSemaphore {
    /// A semaphore that only this process has.
    pub(crate) const fn alone(party: PartyId, semaphore: BinarySemaphore) -> Self {
        Self {
            party,
            semaphore,
            waits: None,
        }
    }

    /// A semaphore that `device` waits for and another device signals.
    ///
    /// `signaller` is that device, if it is in this process.
    ///
    /// # Errors
    /// The error of `spare`, which exports one more handle of it.
    pub(crate) fn waiting(
        party: PartyId,
        device: &Device,
        semaphore: BinarySemaphore,
        signaller: Option<LocalSignaller>,
        spare: impl FnOnce() -> Result<BinaryFd>,
    ) -> Result<Self> {
        let waits = SemaphoreWaits::new(device, &semaphore, signaller, spare)?;
        Ok(Self {
            party,
            semaphore,
            waits: Some(Arc::new(waits)),
        })
    }

    pub(crate) const fn party(&self) -> PartyId {
        self.party
    }

    pub(crate) const fn semaphore(&self) -> &BinarySemaphore {
        &self.semaphore
    }

    pub(crate) const fn waits(&self) -> Option<&Arc<SemaphoreWaits>> {
        self.waits.as_ref()
    }
}
