//! A plan for a binary semaphore carried out within this process, and what each party may do with it.
#![allow(unsafe_code, reason = "passes a caller's promise on to a backend")]
#![cfg_attr(
    not(any(feature = "cuda", feature = "vulkan")),
    allow(
        unreachable_code,
        unused_variables,
        reason = "no device has a binary semaphore"
    )
)]

use std::sync::Arc;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, Fence, HandleKind, Object, Result, SignalOnly, WaitOnly, host};

use super::make::find;
use super::{Duty, Lines, Made, Mechanism, PartyId, Plan};
use crate::any::{Device, Queue, Recorder};
use crate::binary::BinarySemaphore;
use crate::process::End;

/// What a plan for a binary semaphore has come to: the semaphore as each device of this process has it, and for each party as much of it as the plan grants.
///
/// A binary semaphore carries no value, and may be waited for only once its signal is pending. So a timeline goes with it, the *count*, which says how many
/// signals are: whoever signals the semaphore signals the count from the host, and whoever waits for the semaphore waits for the count first. As with every
/// timeline, what ends one side fails it for the other, with the cause (E1, E3).
#[derive(Debug, Clone)]
pub struct MadeBinary {
    count: Made,
    ends: Vec<End>,
}

/// A binary semaphore that may be waited for, and not signalled.
///
/// ```compile_fail,E0599
/// # use syncline::negotiate::BinaryWaitOnly;
/// fn shade(recorder: &mut syncline::Recorder<'_>, image: &BinaryWaitOnly) -> syncline::Result<()> {
///     unsafe { image.signal(recorder) }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct BinaryWaitOnly {
    end: End,
    count: Arc<WaitOnly>,
}

/// A binary semaphore that may be signalled, and not waited for.
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
    /// Makes the binary semaphore, unsignalled, with everything that each party's device has to do for it, and the count of its signals, at 0.
    ///
    /// `devices` are the devices of the plan, in any order; others among them are left alone. Makes everything or nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if a party lives in another process ([`Plan::make_binary_across`] is for that), its device is not among `devices`, or the
    /// plan is for a timeline; a driver error.
    pub fn make_binary(&self, label: &str, devices: &[Device]) -> Result<MadeBinary> {
        let devices: Vec<&Device> = devices.iter().collect();
        self.require_here(label, &devices)?;
        self.require_binary(label)?;
        let home = self.home().id();
        let Some(maker) = find(&devices, home) else {
            return Err(self.cannot(label, "no device makes it".into()));
        };
        let made = match self.mechanism() {
            Mechanism::ExternalBinary => {
                maker.exportable_binary(label, HandleKind::BinaryOpaqueFd)?
            }
            _ => maker.binary_semaphore(label)?,
        };
        let mut ends = Vec::new();
        for part in self.parts() {
            let id = part.party.id();
            if let (Duty::Import(_), Some(importer)) = (part.duty, find(&devices, id)) {
                let imported = importer.import_binary(made.export()?, label)?;
                ends.push(End::alone(id, imported));
            }
        }
        ends.push(End::alone(home, made));
        let count = Lines::One(host::Device::new().timeline(label)?);
        Ok(MadeBinary {
            count: Made::here(self.clone(), count),
            ends,
        })
    }

    /// Refuses what needs a plan for a binary semaphore.
    pub(crate) fn require_binary(&self, label: &str) -> Result<()> {
        match self.is_binary() {
            true => Ok(()),
            false => Err(Error::Unsupported {
                object: Object::new("binary semaphore", label),
                asked: format!("be made with {}", self.mechanism()),
                reason: "the plan is for a timeline".into(),
            }),
        }
    }
}

impl MadeBinary {
    /// What this process has of a plan that several have carried out.
    pub(crate) const fn across(count: Made, ends: Vec<End>) -> Self {
        Self { count, ends }
    }

    /// The plan that was carried out.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        self.count.plan()
    }

    /// The semaphore as `party` may wait for it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the plan does not grant that to `party`, or `party` lives in another process.
    pub fn wait_only(&self, party: PartyId) -> Result<BinaryWaitOnly> {
        Ok(BinaryWaitOnly {
            count: Arc::new(self.count.wait_only(party)?),
            end: self.end(party)?,
        })
    }

    /// The semaphore as `party` may signal it.
    ///
    /// # Errors
    /// As [`MadeBinary::wait_only`].
    pub fn signal_only(&self, party: PartyId) -> Result<BinarySignalOnly> {
        Ok(BinarySignalOnly {
            count: self.count.signal_only(party)?,
            semaphore: self.end(party)?.semaphore().clone(),
        })
    }

    fn end(&self, party: PartyId) -> Result<End> {
        let mut here = self.ends.iter();
        here.find(|end| end.party() == party)
            .cloned()
            .ok_or_else(|| {
                let reason = "its device is in another process";
                self.count.refuse(party, "be used", reason)
            })
    }
}

impl BinaryWaitOnly {
    /// Its name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.end.semaphore().object()
    }

    /// How many signals are pending or made: to be waited for before each wait for the semaphore.
    #[must_use]
    pub fn count(&self) -> &WaitOnly {
        &self.count
    }

    /// Has `queue` wait for the pending signal, and consume it: what is submitted there after this comes behind the signal. A submission of its own.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] or [`Error::Unsupported`] for a queue of another device; [`Error::PeerLost`] if the process that signals is dead; a driver error. If it
    /// dies after this, the queue is let go, and what it goes on with may be incomplete: the count tells, by its failure.
    ///
    /// # Safety
    /// The signal is pending, and nothing else waits for it. If all signals are [counted](Self::count), and only when they are pending, the n-th is once the count
    /// is at n.
    pub unsafe fn wait_on(&self, queue: &Queue) -> Result<()> {
        if let Some(waits) = self.end.waits() {
            // SAFETY: the caller's promise.
            return unsafe { waits.wait_on(queue, &self.count) };
        }
        let semaphore = self.end.semaphore().clone();
        // SAFETY: as above.
        let work =
            move |recorder: &mut Recorder<'_>| unsafe { recorder.wait_semaphore(&semaphore) };
        queue.submit(&[], work, &[]).map(|_| ())
    }

    /// A fence for the pending signal, which the device consumes, once; see [`BinarySemaphore::pending`]. If the process that signals dies before that, the fence fails with
    /// [`Error::PeerLost`].
    ///
    /// # Errors
    /// As [`BinaryWaitOnly::wait_on`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn pending(&self, label: &str) -> Result<Fence> {
        match self.end.waits() {
            // SAFETY: the caller's promise.
            Some(waits) => unsafe { waits.pending(label, &self.count) },
            // SAFETY: as above.
            None => unsafe { self.end.semaphore().pending(label) },
        }
    }
}

impl BinarySignalOnly {
    /// Its name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.semaphore.object()
    }

    /// How many signals are pending or made. To be signalled from the host, to n once the n-th signal's submission is with its driver:
    /// once [`wait_submitted`](syncline_core::Submitted::wait_submitted) has returned `Ok`. A submission that was skipped has
    /// signalled nothing.
    #[must_use]
    pub const fn count(&self) -> &SignalOnly {
        &self.count
    }

    /// Also signals the semaphore, after the work; see [`Recorder::signal_semaphore`]. If the process that waits has died, nobody tells whether its wait was: look at the
    /// [endpoint](crate::process::Endpoint::check).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// The semaphore is unsignalled, with no signal pending, once the submission runs: the wait for the signal before this is over.
    pub unsafe fn signal(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { recorder.signal_semaphore(&self.semaphore) }
    }
}
