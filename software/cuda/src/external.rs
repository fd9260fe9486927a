//! Semaphores and memory of other APIs.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use syncline_software_payload as payload;

use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::context::Context;
use crate::engine::Life;
use crate::settings::settings;
use crate::space;
use crate::table::Table;

/// All imported semaphores.
pub(crate) static SEMAPHORES: Table<Semaphore> = Table::new();
/// All imported memory.
pub(crate) static MEMORY: Table<Memory> = Table::new();

/// A waiting connection looks at its context after so much time.
const LOOK: Duration = Duration::from_millis(20);

/// What a semaphore is imported as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD`.
    Binary,
    /// `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD`.
    Timeline,
}

/// An imported semaphore.
pub(crate) struct Semaphore {
    context: u64,
    kind: Kind,
    /// `None` for a descriptor of the wrong kind, which NVIDIA's driver takes as well. A signal goes nowhere then, and
    /// a wait waits for nothing.
    payload: Option<payload::Semaphore>,
}

/// Imported memory.
pub(crate) struct Memory {
    context: u64,
    mapped: Arc<payload::Memory>,
}

/// A descriptor of the application, which is taken if the import succeeds.
fn borrow(descriptor: i32) -> Answer<BorrowedFd<'static>> {
    if descriptor < 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not -1, and the application keeps it open for the call. A closed one fails in each system call.
    #[allow(unsafe_code, reason = "the application's descriptor")]
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// The descriptor is the driver's now, which needs it no more.
fn take(descriptor: i32) {
    // SAFETY: the application has given it up by a successful import.
    #[allow(unsafe_code, reason = "as above")]
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
}

/// `cuImportExternalSemaphore`.
pub(crate) fn import_semaphore(context: &Context, kind: Kind, descriptor: i32) -> Answer<usize> {
    let file = borrow(descriptor)?;
    let poses = Bug::PosesAsFirst.is_planted() && context.ordinal > 0;
    if poses || Bug::ImportsAreRefused.is_planted() {
        return Err(Code::NOT_SUPPORTED);
    }
    let opened = payload::Semaphore::open(file).ok();
    let is_of = |semaphore: &payload::Semaphore| match semaphore.kind() {
        payload::Kind::Timeline => kind == Kind::Timeline,
        payload::Kind::Binary => kind == Kind::Binary,
    };
    let is_known = opened.is_some() || payload::Memory::is_exported(file);
    let payload = opened.filter(is_of);
    let lenient = settings().is_ok_and(|settings| !settings.strict);
    if payload.is_none() && !(is_known && lenient) {
        return Err(Code::UNKNOWN);
    }
    take(descriptor);
    let kind = match kind {
        Kind::Timeline if Bug::ImportsOtherKind.is_planted() => Kind::Binary,
        Kind::Binary if Bug::ImportsOtherKind.is_planted() => Kind::Timeline,
        right => right,
    };
    Ok(SEMAPHORES.add(Arc::new(Semaphore {
        context: context.id,
        kind,
        payload,
    })))
}

/// `cuImportExternalMemory`.
pub(crate) fn import_memory(context: &Context, descriptor: i32, size: u64) -> Answer<usize> {
    let file = borrow(descriptor)?;
    if size == 0 {
        return Err(Code::INVALID_VALUE);
    }
    if !payload::Memory::is_exported(file) {
        return Err(Code::UNKNOWN);
    }
    let mapped = payload::Memory::map(file, size).map_err(|error| match error {
        payload::MemoryError::TooSmall { .. } => Code::INVALID_VALUE,
        _ => Code::UNKNOWN,
    })?;
    take(descriptor);
    Ok(MEMORY.add(Arc::new(Memory {
        context: context.id,
        mapped: Arc::new(mapped),
    })))
}

impl Memory {
    /// `cuExternalMemoryGetMappedBuffer`: the device address.
    pub(crate) fn map(&self, context: &Context, offset: u64, size: u64) -> Answer<u64> {
        if self.context != context.id {
            return Err(Code::INVALID_CONTEXT);
        }
        let end = offset.checked_add(size).ok_or(Code::INVALID_VALUE)?;
        if size == 0 || end > self.mapped.size() as u64 {
            return Err(Code::INVALID_VALUE);
        }
        if Bug::ImportsOtherMemory.is_planted() {
            return space::allocate(context, size);
        }
        space::map(context, size, self.mapped.clone(), offset as usize)
    }
}

/// Forgets what was imported into a context.
pub(crate) fn forget(context: u64) {
    SEMAPHORES.retain(|semaphore| semaphore.context != context);
    MEMORY.retain(|memory| memory.context != context);
}

/// A signal operation.
#[derive(Clone)]
pub(crate) struct SignalSemaphore {
    pub(crate) semaphore: Arc<Semaphore>,
    pub(crate) value: u64,
}

impl SignalSemaphore {
    /// The operation as it is submitted: signals of a binary semaphore have numbers.
    pub(crate) fn submitted(&self) -> Self {
        let mut submitted = self.clone();
        if self.semaphore.kind == Kind::Binary
            && let Some(payload) = &self.semaphore.payload
        {
            submitted.value = payload.number_signal();
            if Bug::SignalsTwice.is_planted() {
                submitted.value = payload.number_signal();
            }
        }
        submitted
    }

    pub(crate) fn run(&self) {
        if let Some(payload) = &self.semaphore.payload {
            payload.reach(self.value);
        }
    }
}

/// A wait operation.
#[derive(Clone)]
pub(crate) struct WaitSemaphore {
    pub(crate) semaphore: Arc<Semaphore>,
    pub(crate) value: u64,
}

impl WaitSemaphore {
    /// The operation as it is submitted: waits for a binary semaphore have numbers.
    pub(crate) fn submitted(&self) -> Self {
        let mut submitted = self.clone();
        if self.semaphore.kind == Kind::Binary
            && let Some(payload) = &self.semaphore.payload
        {
            submitted.value = payload.number_wait();
        }
        submitted
    }

    pub(crate) fn run(&self, life: &Life) {
        let Some(payload) = &self.semaphore.payload else {
            return;
        };
        loop {
            let seen = payload.news();
            if payload.value() >= self.value || life.is_over() {
                return;
            }
            payload.sleep(seen, Some(LOOK));
        }
    }
}
