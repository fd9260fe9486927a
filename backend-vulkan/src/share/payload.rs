//! Which payload a binary semaphore has, who uses it, and payloads that are imported for one wait.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};

use ash::vk;
use syncline_core::{BinaryFd, Error, HandleKind, Object, Payload, PayloadUse, Rejected, Result};

use crate::driver::error::lock;
use crate::share::binary::{BinarySemaphore, Raw};
use crate::share::external::semaphore_functions;
use crate::timeline::port::Semaphore;

/// What a submission does with a binary semaphore.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Signal,
    Wait,
}

/// The payload of one semaphore, and the submissions that use it.
#[derive(Default)]
pub(crate) struct Payloads(Mutex<State>);

#[derive(Default)]
struct State {
    temporary: Option<HandleKind>,
    /// As many as are in flight, and some that nobody has looked at since they finished.
    uses: Vec<Use>,
    /// With so many it is asked which have finished: not at each use, as who signals and waits often has many in flight.
    look_at: usize,
    last: u64,
}

/// So few are not worth the question.
const FEW: usize = 4;

/// One submission that signals or waits.
struct Use {
    id: u64,
    role: Role,
    queue: Object,
    /// The queue's own timeline, and the value at which the submission has finished; none until the driver has it.
    own: Arc<Semaphore>,
    end: Option<u64>,
    /// What the submission signals besides, to this value, if a fence stands for that: whoever has seen the fence complete need not
    /// wait for the queue's own timeline, which the device writes at another moment.
    also: Option<(Arc<Semaphore>, u64)>,
}

impl Use {
    fn has_finished(&self) -> Result<bool> {
        match self.end {
            // A lost device shows all ones, and uses nothing any more.
            Some(end) if self.own.value()? >= end => Ok(true),
            Some(_) => match &self.also {
                Some((semaphore, value)) => Ok(semaphore.value()? >= *value),
                None => Ok(false),
            },
            None => Ok(false),
        }
    }
}

/// A use of a recording; withdrawn, if it is dropped before its submission is with the driver.
pub(crate) struct Using {
    of: Arc<Raw>,
    id: u64,
}

impl Using {
    /// Notes that what is being recorded on `queue`, whose own timeline is `own`, will use the semaphore. If it is told, `also` is
    /// signalled to that value behind the use, by the same submission.
    pub(crate) fn new(
        of: &Arc<Raw>,
        role: Role,
        queue: &Object,
        own: &Arc<Semaphore>,
        also: Option<(Arc<Semaphore>, u64)>,
    ) -> Self {
        let mut state = of.payloads.lock();
        if state.uses.len() >= state.look_at.max(FEW) {
            // Who cannot be asked stays, and is asked again by whoever needs to know.
            state
                .uses
                .retain(|used| !used.has_finished().unwrap_or(false));
            state.look_at = 2 * state.uses.len();
        }
        state.last += 1;
        let id = state.last;
        state.uses.push(Use {
            id,
            role,
            queue: queue.clone(),
            own: own.clone(),
            end: None,
            also,
        });
        drop(state);
        Self { of: of.clone(), id }
    }

    /// The driver has the submission, which has finished once the queue's own timeline is at `end`. A wait takes a temporary payload with
    /// it: from here on the semaphore has its permanent one.
    pub(crate) fn submitted(self, end: u64) {
        let mut guard = self.of.payloads.lock();
        let state = &mut *guard;
        let used = state.uses.iter_mut().find(|used| used.id == self.id);
        let Some(used) = used else { return };
        used.end = Some(end);
        if used.role == Role::Wait {
            state.temporary = None;
        }
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        let mut state = self.of.payloads.lock();
        let unsubmitted = |used: &Use| used.id == self.id && used.end.is_none();
        state.uses.retain(|used| !unsubmitted(used));
    }
}

impl Payloads {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl State {
    /// What uses the semaphore in one of these ways, as far as this library knows.
    fn in_use(&self, as_one: impl Fn(Role) -> bool) -> Result<Option<PayloadUse>> {
        for used in self.uses.iter().filter(|used| as_one(used.role)) {
            if !used.has_finished()? {
                let queue = used.queue.clone();
                return Ok(Some(match used.role {
                    Role::Signal => PayloadUse::Signal(queue),
                    Role::Wait => PayloadUse::Wait(queue),
                }));
            }
        }
        Ok(None)
    }
}

/// What a call on a semaphore needs its payload to be like.
pub(crate) enum Needs {
    /// The permanent one.
    Permanent,
    /// The permanent one, with no wait for it in flight (VUID-VkSemaphoreGetFdInfoKHR-handleType-01134).
    NoWait,
    /// The permanent one, with nothing in flight (VUID-vkImportSemaphoreFdKHR-semaphore-01142).
    Unused,
}

impl BinarySemaphore {
    /// Which payload it has: what the next signal or wait to be recorded will use. A temporary one goes with the submission of a wait to the driver.
    ///
    /// Waits that the application submits itself, with [`BinarySemaphore::raw`], are not known here.
    #[must_use]
    pub fn payload(&self) -> Payload {
        let temporary = self.inner().payloads.lock().temporary;
        temporary.map_or(Payload::Permanent, Payload::Temporary)
    }

    /// Replaces the payload for one wait by the one behind a handle: `vkImportSemaphoreFdKHR` with `VK_SEMAPHORE_IMPORT_TEMPORARY_BIT`. The
    /// next wait consumes a signal of that, and the semaphore then has its permanent payload back, signalled or not, as it was. Signals until then
    /// are made on the temporary one, as the transference of the kind is by reference. Blocks no longer than the driver's call takes.
    ///
    /// A timeline's payload cannot be imported so (VUID-VkImportSemaphoreFdInfoKHR-flags-03323), which the types see to:
    ///
    /// ```compile_fail,E0308
    /// # use syncline_vulkan::BinarySemaphore;
    /// # use syncline_core::TimelineFd;
    /// fn replace(semaphore: &BinarySemaphore, handle: TimelineFd) {
    ///     let _ = semaphore.import_temporary(handle);
    /// }
    /// ```
    ///
    /// See *Importing Semaphore Payloads* in the Vulkan specification.
    ///
    /// # Errors
    /// The handle, and: what [`Device::import_binary`](crate::Device::import_binary) refuses; [`Error::PayloadInUse`] if a temporary payload is there
    /// already, or a submission that signals or waits for the semaphore has not finished, as its
    /// [end](syncline_core::Submitted::end) tells, or the fence of [`BinarySemaphore::pending`]. Nothing has changed then.
    pub fn import_temporary(&self, handle: BinaryFd) -> Result<(), Rejected<BinaryFd>> {
        let asked = "import a temporary payload";
        let device = self.device();
        let kind = HandleKind::BinaryOpaqueFd;
        let what = || format!("a binary semaphore from {}", handle.origin());
        let imported = device
            .require_same("a binary semaphore", handle.origin())
            .and_then(|()| {
                device.require(&device.0.info.capabilities.imports, kind, asked)?;
                device.require_nature(handle.as_fd(), kind, &what)?;
                let type_ = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
                // SAFETY: by its type a handle of a binary semaphore; of the same driver, which has just been checked.
                unsafe { self.replace(kind, type_, handle.as_fd().as_raw_fd(), asked, &what) }
            });
        match imported {
            Ok(()) => {
                // The driver owns it from now on.
                let _ = handle.into_fd().into_raw_fd();
                Ok(())
            }
            Err(error) => Err(Rejected { handle, error }),
        }
    }

    /// Imports a temporary payload.
    ///
    /// # Safety
    /// `fd` is a handle of this type, which the device imports, of a binary semaphore. It is the driver's after a success.
    pub(crate) unsafe fn replace(
        &self,
        kind: HandleKind,
        type_: vk::ExternalSemaphoreHandleTypeFlags,
        fd: RawFd,
        asked: &str,
        what: &dyn Fn() -> String,
    ) -> Result<()> {
        let device = self.device();
        let functions = semaphore_functions(&device.0, asked)?;
        let info = vk::ImportSemaphoreFdInfoKHR::default()
            .semaphore(self.raw())
            .flags(vk::SemaphoreImportFlags::TEMPORARY)
            .handle_type(type_)
            .fd(fd);
        self.with_payload(Needs::Unused, asked, |temporary| {
            // SAFETY: by this function's contract. Nothing that the library knows of uses the semaphore, and nothing begins to meanwhile.
            unsafe { functions.import_semaphore_fd(&info) }
                .map_err(|code| device.refused("vkImportSemaphoreFdKHR", code, what))?;
            *temporary = Some(kind);
            Ok(())
        })
    }

    /// Calls with the payload as it is needed, which nothing changes meanwhile.
    pub(crate) fn with_payload<T>(
        &self,
        needs: Needs,
        asked: &str,
        call: impl FnOnce(&mut Option<HandleKind>) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.inner().payloads.lock();
        let by = match (state.temporary, needs) {
            (Some(kind), _) => Some(PayloadUse::Temporary(kind)),
            (None, Needs::Permanent) => None,
            (None, Needs::NoWait) => state.in_use(|role| role == Role::Wait)?,
            (None, Needs::Unused) => state.in_use(|_| true)?,
        };
        match by {
            Some(by) => Err(Error::PayloadInUse {
                semaphore: self.object().clone(),
                asked: asked.to_owned(),
                by,
            }),
            None => call(&mut state.temporary),
        }
    }
}
