//! A binary semaphore that two processes have.
#![cfg_attr(
    not(any(feature = "cuda", feature = "vulkan")),
    allow(dead_code, reason = "no device has a binary semaphore")
)]

use std::time::Duration;

use std::sync::Arc;

#[cfg(doc)]
use syncline_core::Error;
use syncline_core::{BinaryFd, Result};

use super::Execution;
use super::waits::SemaphoreWaits;
use crate::any::Device;
use crate::binary::BinarySemaphore;
use crate::negotiate::{MadeBinary, Needs, PartyId, Plan};
use crate::process::Endpoint;

/// The semaphore as one device of this process has it.
#[derive(Debug, Clone)]
pub(crate) struct DeviceSemaphore {
    party: PartyId,
    semaphore: BinarySemaphore,
    /// If another process signals it.
    waits: Option<Arc<SemaphoreWaits>>,
}

impl DeviceSemaphore {
    /// Where nobody else has it.
    pub(crate) const fn alone(party: PartyId, semaphore: BinarySemaphore) -> Self {
        Self {
            party,
            semaphore,
            waits: None,
        }
    }

    /// With one more handle of it, if that can be had.
    ///
    /// # Errors
    /// It cannot.
    pub(super) fn new(
        execution: &Execution<'_>,
        party: PartyId,
        semaphore: BinarySemaphore,
        spare: impl FnOnce() -> Result<BinaryFd>,
    ) -> Result<Self> {
        let mut own = execution.own();
        let waits = own.any(|own| own.id() == party && own.needs().contains(Needs::WAIT));
        let waits = match execution.device(party) {
            Some(device) if waits && execution.signaller() != execution.here => {
                Some(Arc::new(SemaphoreWaits::new(device, &semaphore, spare)?))
            }
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
    /// As [`Plan::make_binary`], for a plan whose parties are in two processes: each of them calls this, with its own device. The count of signals is a timeline as
    /// [`Plan::make_across`] makes them: if the process that signals dies, it fails with [`Error::PeerLost`], nobody begins to wait
    /// for the semaphore any more, and a queue that does is let go by a signal in the place of the dead.
    ///
    /// # Errors
    /// As [`Plan::make_across`]; [`Error::Unsupported`] for a plan for a timeline.
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
            return Err(execution.cannot("nobody else takes part: Plan::make_binary is for that"));
        }
        let (count, semaphores) = execution.make(0)?;
        Ok(MadeBinary::across(count, semaphores))
    }
}
