//! A binary semaphore that two processes have.
#![cfg_attr(
    not(any(feature = "cuda", feature = "vulkan")),
    allow(dead_code, reason = "no device has a binary semaphore")
)]

use std::time::Duration;

use std::sync::Arc;

#[cfg(doc)]
use syncline_core::Error;
use syncline_core::{Result, handle::BinaryFd};

use super::Execution;
use super::waits::{LocalSignaller, SemaphoreWaits};
use crate::any::Device;
use crate::binary::BinarySemaphore;
use crate::negotiate::{MadeBinary, Needs, PartyId, Plan};
use crate::process::Endpoint;

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
            Some(device) if waits && execution.signaller() != execution.here => Some(Arc::new(
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

impl Plan {
    /// Makes the binary semaphore of a plan whose parties are in two processes.
    ///
    /// Each process calls this with its own device. [`Plan::make_across`] makes the count of
    /// signals. If the signalling process dies, the count fails with [`Error::PeerLost`] and later
    /// waits for the semaphore are refused. If a queue is already waiting, this process signals in
    /// place of the dead process (P3).
    ///
    /// # Errors
    /// Same errors as [`Plan::make_across`]. [`Error::Unsupported`] for a plan for a timeline.
    pub fn make_binary_across(
        &self,
        label: &str,
        devices: &[Device],
        peers: &[&Endpoint],
        timeout: Duration,
    ) -> Result<MadeBinary> {
        let execution = Execution::new(self, self.kind(), label, devices, peers, timeout)?;
        self.require_binary(label)?;
        if !self.crosses_processes() {
            return Err(execution.cannot("all parties are in this process: call Plan::make_binary"));
        }
        let (count, semaphores) = execution.make(0)?;
        Ok(MadeBinary::across(count, semaphores))
    }
}
