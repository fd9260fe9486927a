//! A binary semaphore that two processes have.
#![cfg_attr(
    not(any(feature = "cuda", feature = "vulkan")),
    allow(dead_code, reason = "no device has a binary semaphore")
)]

use std::sync::Arc;

#[cfg(doc)]
use syncline_core::Error;
use syncline_core::{Result, handle::BinaryFd};

use super::execution::Execution;
use super::waits::{LocalSignaller, SemaphoreWaits};
use crate::any::Device;
use crate::binary::BinarySemaphore;
use crate::negotiate::{Needs, PartyId};

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

    /// A semaphore that `device` waits for and another device of this process signals.
    ///
    /// # Errors
    /// The error of `spare`, which exports one more handle of it.
    pub(crate) fn waiting(
        party: PartyId,
        device: &Device,
        semaphore: BinarySemaphore,
        signaller: LocalSignaller,
        spare: impl FnOnce() -> Result<BinaryFd>,
    ) -> Result<Self> {
        let waits = SemaphoreWaits::new(device, &semaphore, Some(signaller), spare)?;
        Ok(Self {
            party,
            semaphore,
            waits: Some(Arc::new(waits)),
        })
    }

    /// A semaphore of several processes. `spare` exports one more handle of it.
    ///
    /// # Errors
    /// The error of `spare`.
    pub(super) fn new(
        execution: &Execution<'_>,
        party: PartyId,
        semaphore: BinarySemaphore,
        spare: impl FnOnce() -> Result<BinaryFd>,
    ) -> Result<Self> {
        let mut own = execution.own();
        let waits = own.any(|own| own.id() == party && own.needs().contains(Needs::WAIT));
        let waits = match execution.device(party) {
            Some(device) if waits && execution.signaller() != execution.here() => Some(Arc::new(
                SemaphoreWaits::new(device, &semaphore, None, spare)?,
            )),
            _ => None,
        };
        Ok(Self {
            party,
            semaphore,
            waits,
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
