//! Making the binary semaphore of a plan within this process, and the access of each party.
#![allow(
    unsafe_code,
    reason = "forwards unsafe calls to a backend with the same contract"
)]
#![cfg_attr(
    not(any(feature = "cuda", feature = "vulkan")),
    allow(
        unreachable_code,
        unused_assignments,
        unused_variables,
        reason = "no device has a binary semaphore"
    )
)]

use std::sync::Arc;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{
    Error, Fence, Result, SignalOnly, WaitOnly, error::Object, handle::HandleKind, host,
};

use super::make::{Made, Timelines};
use super::mechanism::Mechanism;
use super::party::PartyId;
use super::plan::{Duty, Permission, Plan};
use super::semaphore::DeviceSemaphore;
use super::waits::LocalSignaller;
use crate::any::{Device, Queue, Recorder};
use crate::binary::BinarySemaphore;

/// The binary semaphore of a plan, with the access that the plan grants to each party.
///
/// A binary semaphore has no value, and a wait for it is valid only once its signal is pending.
/// Therefore a timeline comes with it, the *count*: the number of signals that are pending or
/// complete. The signaller of the semaphore signals the count from the host. The waiter waits for
/// the count before it waits for the semaphore. If one side fails or dies, the count fails for the
/// other side with the cause (E1, E3).
#[derive(Debug, Clone)]
pub struct MadeBinary {
    count: Made,
    semaphores: Vec<DeviceSemaphore>,
}

/// A binary semaphore that can be waited for but not signalled.
///
/// ```compile_fail,E0599
/// # use syncline::negotiate::BinaryWaitOnly;
/// fn shade(recorder: &mut syncline::Recorder<'_>, image: &BinaryWaitOnly) -> syncline::Result<()> {
///     unsafe { image.signal(recorder) }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct BinaryWaitOnly {
    semaphore: DeviceSemaphore,
    count: Arc<WaitOnly>,
}

/// A binary semaphore that can be signalled but not waited for.
///
/// ```compile_fail,E0599
/// # use syncline::negotiate::BinarySignalOnly;
/// fn draw(queue: &syncline::Queue, image: &BinarySignalOnly) -> syncline::Result<()> {
///     unsafe { image.wait_on(queue) }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct BinarySignalOnly {
    semaphore: BinarySemaphore,
    count: SignalOnly,
}

impl Plan {
    /// Makes the unsignalled binary semaphore and its count at 0, and carries out each duty.
    ///
    /// `devices` must contain the devices of the plan, in any order. Other devices in it are
    /// ignored. If an error occurs, nothing is left behind.
    ///
    /// # Errors
    /// * [`Error::Unsupported`] if a party is in another process ([`Plan::make_binary_across`]), if
    ///   its device is not in `devices`, or if the plan is for a timeline.
    /// * A driver error.
    pub fn make_binary(&self, label: &str, devices: &[Device]) -> Result<MadeBinary> {
        let any: Vec<_> = devices.iter().map(|device| device as _).collect();
        self.require_here(label, &any)?;
        self.require_binary(label)?;
        let find = |id: PartyId| {
            let mut devices = devices.iter();
            devices.find(|device| device.id().get() == id.device)
        };
        let home = self.home().id();
        let Some(maker) = find(home) else {
            return Err(self.cannot(label, "no device makes it".into()));
        };
        let made = match self.mechanism() {
            Mechanism::ExternalBinary => {
                maker.exportable_binary(label, HandleKind::BinaryOpaqueFd)?
            }
            _ => maker.binary_semaphore(label)?,
        };
        let count = host::Device::new().timeline(label)?;
        let parties = self.parties();
        let signaller = parties.iter().find_map(|party| match party.permission() {
            Permission::SignalOnly => find(party.id()),
            _ => None,
        });
        let mut semaphores = Vec::new();
        for party in parties {
            let id = party.id();
            let Some(device) = find(id) else {
                continue;
            };
            let semaphore = match self.duty_of(party) {
                Duty::Import(_) => device.import_binary(made.export()?, label)?,
                _ => made.clone(),
            };
            semaphores.push(match (party.permission(), signaller) {
                (Permission::WaitOnly, Some(signaller)) => {
                    let signaller = LocalSignaller::new(signaller.clone(), count.downgrade());
                    let spare = || made.export();
                    DeviceSemaphore::waiting(id, device, semaphore, Some(signaller), spare)?
                }
                _ => DeviceSemaphore::alone(id, semaphore),
            });
        }
        let count = Timelines::Single(count);
        Ok(MadeBinary {
            count: Made::here(self.clone(), count),
            semaphores,
        })
    }

    /// Requires a plan for a binary semaphore.
    pub(crate) fn require_binary(&self, label: &str) -> Result<()> {
        match self.is_binary() {
            true => Ok(()),
            false => Err(Error::unsupported(
                Object::new("binary semaphore", label),
                format!("be made with {}", self.mechanism()),
                "the plan is for a timeline",
            )),
        }
    }
}

impl MadeBinary {
    /// The result of a plan across processes.
    pub(crate) const fn across(count: Made, semaphores: Vec<DeviceSemaphore>) -> Self {
        Self { count, semaphores }
    }

    /// The plan that was carried out.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        self.count.plan()
    }

    /// The semaphore, as a type that can wait.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the plan does not grant this to `party`, or if `party` is in
    /// another process.
    pub fn wait_only(&self, party: PartyId) -> Result<BinaryWaitOnly> {
        Ok(BinaryWaitOnly {
            count: Arc::new(self.count.wait_only(party)?),
            semaphore: self.semaphore(party)?,
        })
    }

    /// The semaphore, as a type that can signal.
    ///
    /// # Errors
    /// Same errors as [`MadeBinary::wait_only`].
    pub fn signal_only(&self, party: PartyId) -> Result<BinarySignalOnly> {
        Ok(BinarySignalOnly {
            count: self.count.signal_only(party)?,
            semaphore: self.semaphore(party)?.semaphore().clone(),
        })
    }

    fn semaphore(&self, party: PartyId) -> Result<DeviceSemaphore> {
        let mut here = self.semaphores.iter();
        here.find(|semaphore| semaphore.party() == party)
            .cloned()
            .ok_or_else(|| {
                let reason = "its device is in another process";
                self.count.refuse(party, "be used", reason)
            })
    }
}

impl BinaryWaitOnly {
    /// The label and id that errors and reports use.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.semaphore.semaphore().object()
    }

    /// The number of signals that are pending or complete.
    ///
    /// Wait for it before each wait for the semaphore.
    #[must_use]
    pub fn count(&self) -> &WaitOnly {
        &self.count
    }

    /// Submits a wait of `queue` for the pending signal, which consumes the signal.
    ///
    /// Later submissions to `queue` execute after the signal. If the signalling device is lost or
    /// its process dies before the signal completes, the engine signals in its place and the queue
    /// continues. Then the data may be incomplete, and the [count](Self::count) fails. If the
    /// signalling process lives on without its device, its application must fail the count.
    ///
    /// # Errors
    /// * [`Error::WrongDevice`] or [`Error::Unsupported`] for a queue of another device.
    /// * [`Error::DeviceLost`] if the signalling device of this process is lost.
    /// * [`Error::PeerLost`] if the signalling process is dead.
    /// * A driver error.
    ///
    /// # Safety
    /// The signal is pending, and nothing else waits for it. If the signaller counts each signal
    /// once the signal is pending, and not earlier, then the n-th signal is pending once the count
    /// is n.
    pub unsafe fn wait_on(&self, queue: &Queue) -> Result<()> {
        if let Some(waits) = self.semaphore.waits() {
            // SAFETY: this method has the same contract.
            return unsafe { waits.wait_on(queue, &self.count) };
        }
        let semaphore = self.semaphore.semaphore().clone();
        // SAFETY: this method has the same contract, and the work runs only for this wait.
        let work =
            move |recorder: &mut Recorder<'_>| unsafe { recorder.wait_semaphore(&semaphore) };
        queue.submit(&[], work, &[]).map(|_| ())
    }

    /// Makes a fence for the pending signal. See [`BinarySemaphore::pending`].
    ///
    /// If the signalling device is lost or its process dies before the signal completes, the fence
    /// fails with [`Error::DeviceLost`] or [`Error::PeerLost`].
    ///
    /// # Errors
    /// Same errors as [`BinaryWaitOnly::wait_on`].
    ///
    /// # Safety
    /// Same contract as [`BinaryWaitOnly::wait_on`].
    pub unsafe fn pending(&self, label: &str) -> Result<Fence> {
        match self.semaphore.waits() {
            // SAFETY: this method has the same contract.
            Some(waits) => unsafe { waits.pending(label, &self.count) },
            // SAFETY: this method has the same contract.
            None => unsafe { self.semaphore.semaphore().pending(label) },
        }
    }
}

impl BinarySignalOnly {
    /// The label and id that errors and reports use.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.semaphore.object()
    }

    /// The number of signals that are pending or complete.
    ///
    /// The application signals it from the host. Signal n once
    /// [`wait_submitted`](syncline_core::Submitted::wait_submitted) has returned `Ok` for the
    /// submission with the n-th signal. A submission that was skipped has signalled nothing.
    #[must_use]
    pub const fn count(&self) -> &SignalOnly {
        &self.count
    }

    /// Signals the semaphore after the work. See [`Recorder::signal_semaphore`].
    ///
    /// If the waiting process dies, nothing reports whether its wait has completed. Call
    /// [`Endpoint::check`](crate::process::Endpoint::check) to find out whether it is alive.
    ///
    /// # Errors
    /// Same errors as [`Recorder::signal_semaphore`].
    ///
    /// # Safety
    /// When the submission executes, the semaphore is unsignalled and no other signal is pending.
    /// So the wait for the previous signal must be complete.
    pub unsafe fn signal(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        // SAFETY: this method has the same contract.
        unsafe { recorder.signal_semaphore(&self.semaphore) }
    }
}
