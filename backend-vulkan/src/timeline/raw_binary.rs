//! Binary semaphores, and the submissions that use their payload.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::Arc;

use ash::vk;
use syncline_core::backend::kit::{Mutex, MutexGuard};
use syncline_core::{
    Error, Result,
    error::Object,
    handle::{HandleKind, PayloadUse},
};

use crate::device::inner::Inner;
use crate::timeline::semaphore::Semaphore;

/// A binary `VkSemaphore`. Each submission in flight that uses it keeps an `Arc` of it.
pub(crate) struct RawBinary {
    device: Arc<Inner>,
    object: Object,
    raw: vk::Semaphore,
    /// False if the application destroys it.
    owned: bool,
    payload: Mutex<PayloadState>,
}

impl RawBinary {
    /// # Safety
    /// `raw` is a binary semaphore of `device`. If `owned`, nothing else destroys it. If not, it
    /// outlives the returned value.
    pub(crate) unsafe fn new(
        device: &Arc<Inner>,
        object: Object,
        raw: vk::Semaphore,
        owned: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            device: device.clone(),
            object,
            raw,
            owned,
            payload: Mutex::default(),
        })
    }

    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) const fn raw(&self) -> vk::Semaphore {
        self.raw
    }

    /// Locks the state of its payload.
    pub(crate) fn payload(&self) -> MutexGuard<'_, PayloadState> {
        self.payload.lock()
    }

    /// Runs `call` under the payload's lock, if the payload is in the state that `call` requires.
    ///
    /// # Errors
    /// [`Error::PayloadInUse`] if the payload is in another state. A driver error. The error of
    /// `call`.
    pub(crate) fn with_payload<T>(
        &self,
        needs: Needs,
        asked: &str,
        call: impl FnOnce(&mut PayloadState) -> Result<T>,
    ) -> Result<T> {
        self.device.require_maker()?;
        let mut state = self.payload();
        let by = match (state.temporary(), needs) {
            (Some(kind), _) => Some(PayloadUse::Temporary(kind)),
            (None, Needs::Permanent) => None,
            (None, Needs::NoWait) => state.in_use(|role| role == Role::Wait)?,
            (None, Needs::Unused) => state.in_use(|_| true)?,
        };
        match by {
            Some(by) => Err(Error::payload_in_use(self.object(), asked, by)),
            None => call(&mut state),
        }
    }
}

impl Drop for RawBinary {
    fn drop(&mut self) {
        if self.owned
            && let Some(device) = self.device.for_destroy()
        {
            // SAFETY: made on this device, or adopted with the right to destroy it, and destroyed
            // only here. No submission in flight uses the semaphore, because each keeps an `Arc` of
            // it until it has finished.
            unsafe { device.destroy_semaphore(self.raw, None) };
        }
    }
}

/// What a submission does with a binary semaphore.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Signal,
    Wait,
}

/// The state of the payload that a call on a semaphore requires.
pub(crate) enum Needs {
    /// The permanent payload.
    Permanent,
    /// The permanent payload, with no wait in flight
    /// (VUID-VkSemaphoreGetFdInfoKHR-handleType-01134).
    NoWait,
    /// The permanent payload, with nothing in flight
    /// (VUID-vkImportSemaphoreFdKHR-semaphore-01142).
    Unused,
}

/// The kind of payload that a semaphore has, and the submissions that use it.
#[derive(Default)]
pub(crate) struct PayloadState {
    /// The handle kind of the temporary payload, if there is one.
    temporary: Option<HandleKind>,
    /// The submissions in flight, and some that have finished since the last check.
    uses: Vec<Use>,
    /// The length of `uses` at which finished submissions are removed. A check sets the length to
    /// twice the number in flight, so that the cost for each use is small.
    check_at: usize,
    last_id: u64,
}

/// The length of [`PayloadState::uses`] up to which no check is made.
const UNCHECKED_LENGTH: usize = 4;

/// A submission that signals or waits for the semaphore.
struct Use {
    id: u64,
    role: Role,
    queue: Object,
    /// The queue's own timeline.
    own: Arc<Semaphore>,
    /// The value of `own` at which the submission has finished. `None` until the driver has it.
    end: Option<u64>,
    /// The timeline semaphore and value of a fence that the submission also signals, if there is
    /// one.
    ///
    /// The device writes both semaphores at different moments. A thread that has seen the fence
    /// complete need not wait for `own`.
    fence: Option<(Arc<Semaphore>, u64)>,
}

impl Use {
    fn has_finished(&self) -> Result<bool> {
        match self.end {
            // The counter of a lost device reads `u64::MAX`. A lost device uses nothing any more.
            Some(end) if self.own.value()? >= end => Ok(true),
            Some(_) => match &self.fence {
                Some((semaphore, value)) => Ok(semaphore.value()? >= *value),
                None => Ok(false),
            },
            None => Ok(false),
        }
    }
}

impl PayloadState {
    /// The handle kind of the temporary payload, if there is one.
    pub(crate) const fn temporary(&self) -> Option<HandleKind> {
        self.temporary
    }

    /// Notes that a temporary payload was imported from a handle of this kind.
    pub(crate) const fn set_temporary(&mut self, kind: HandleKind) {
        self.temporary = Some(kind);
    }

    /// A known submission in flight that uses the semaphore in a role that `matches` accepts.
    fn in_use(&self, matches: impl Fn(Role) -> bool) -> Result<Option<PayloadUse>> {
        for used in self.uses.iter().filter(|used| matches(used.role)) {
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

/// A binary semaphore that a recording uses. Dropping it before the submission withdraws the use.
pub(crate) struct RecordedUse {
    semaphore: Arc<RawBinary>,
    id: u64,
}

impl RecordedUse {
    /// Notes that the submission being recorded on `queue` will use the semaphore.
    ///
    /// `own` is the timeline of `queue`. If `fence` is given, the same submission signals that
    /// semaphore to that value after the use.
    pub(crate) fn new(
        semaphore: &Arc<RawBinary>,
        role: Role,
        queue: &Object,
        own: &Arc<Semaphore>,
        fence: Option<(Arc<Semaphore>, u64)>,
    ) -> Self {
        let mut state = semaphore.payload();
        if state.uses.len() >= state.check_at.max(UNCHECKED_LENGTH) {
            // A use that cannot be checked stays. A later call reports the error.
            state
                .uses
                .retain(|used| !used.has_finished().unwrap_or(false));
            state.check_at = 2 * state.uses.len();
        }
        state.last_id += 1;
        let id = state.last_id;
        state.uses.push(Use {
            id,
            role,
            queue: queue.clone(),
            own: own.clone(),
            end: None,
            fence,
        });
        drop(state);
        Self {
            semaphore: semaphore.clone(),
            id,
        }
    }

    /// Notes that the driver has the submission, which ends at `end` of the queue's own timeline.
    ///
    /// A wait consumes a temporary payload. From here on the semaphore has its permanent payload.
    pub(crate) fn submitted(self, end: u64) {
        let mut guard = self.semaphore.payload();
        let state = &mut *guard;
        let used = state.uses.iter_mut().find(|used| used.id == self.id);
        let Some(used) = used else { return };
        used.end = Some(end);
        if used.role == Role::Wait {
            state.temporary = None;
        }
    }
}

impl Drop for RecordedUse {
    fn drop(&mut self) {
        let mut state = self.semaphore.payload();
        let is_withdrawn = |used: &Use| used.id == self.id && used.end.is_none();
        state.uses.retain(|used| !is_withdrawn(used));
    }
}
