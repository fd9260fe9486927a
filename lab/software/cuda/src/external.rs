//! Semaphores and memory of other APIs.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use syncline_software_payload::{self as payload, Kind};

use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::context::Context;
use crate::engine::{Engine, Life};
use crate::settings::settings;
use crate::table::Table;
use crate::{faults, news, space};

/// All imported semaphores.
pub(crate) static SEMAPHORES: Table<Semaphore> = Table::new();
/// All imported memory.
pub(crate) static MEMORY: Table<Memory> = Table::new();

/// Bytes of a page.
const PAGE: u64 = 4096;
/// The time after which a waiting connection checks its context.
const LOOK: Duration = Duration::from_millis(20);

/// An imported semaphore.
pub(crate) struct Semaphore {
    context: u64,
    engine: Arc<Engine>,
    /// The number of operations of streams on it that have been submitted and have not ended.
    outstanding: AtomicUsize,
    /// The kind as which it is imported.
    kind: Kind,
    /// The imported payload. A descriptor of the wrong kind gets a payload of its own.
    ///
    /// NVIDIA's driver also accepts such a descriptor. A signal then ends only waits for the same
    /// import.
    payload: payload::Semaphore,
}

/// Imported memory.
pub(crate) struct Memory {
    pub(crate) context: u64,
    /// The size that the import stated. It may be another one than the memory has.
    size: u64,
    /// True if the import stated that one buffer or image has the whole memory.
    pub(crate) is_dedicated: bool,
    memory: Arc<payload::Memory>,
    is_destroyed: AtomicBool,
}

/// Borrows a descriptor of the application, which the driver takes if the import succeeds.
fn borrow(descriptor: i32) -> Answer<BorrowedFd<'static>> {
    if descriptor < 0 {
        return Err(Code::UNKNOWN);
    }
    // SAFETY: not -1, and the application keeps it open for the call. A closed one fails in each
    // system call.
    #[allow(unsafe_code, reason = "the application's descriptor")]
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// Closes the descriptor, which is the driver's now and no longer needed.
fn take(descriptor: i32) {
    // SAFETY: the application has given it up by the import. One that was not open stays so.
    #[allow(unsafe_code, reason = "as above")]
    let _ = unsafe { libc::close(descriptor) };
}

/// `cuImportExternalSemaphore`.
pub(crate) fn import_semaphore(context: &Context, kind: Kind, descriptor: i32) -> Answer<usize> {
    if kind == Kind::Timeline && descriptor == -1 {
        return Err(Code::INVALID_VALUE);
    }
    let file = borrow(descriptor)?;
    faults::refuse(descriptor)?;
    let poses = Bug::PosesAsFirst.is_planted() && context.ordinal > 0;
    if poses || Bug::ImportsAreRefused.is_planted() {
        return Err(Code::NOT_SUPPORTED);
    }
    let opened = payload::Semaphore::open(file).ok();
    let is_known = opened.is_some() || payload::Memory::open(file).is_ok();
    let payload = match opened.filter(|opened| opened.kind() == kind) {
        Some(payload) => payload,
        None if is_known && is_lenient() => {
            let own = payload::Semaphore::create(kind, 0);
            own.map_err(|_| Code::OPERATING_SYSTEM)?.0
        }
        None => return Err(Code::UNKNOWN),
    };
    take(descriptor);
    let kind = match kind {
        Kind::Timeline if Bug::ImportsOtherKind.is_planted() => Kind::Binary,
        Kind::Binary if Bug::ImportsOtherKind.is_planted() => Kind::Timeline,
        right => right,
    };
    Ok(SEMAPHORES.add(Arc::new(Semaphore {
        context: context.id,
        engine: context.engine.clone(),
        outstanding: AtomicUsize::new(0),
        kind,
        payload,
    })))
}

/// `cuImportExternalMemory`.
pub(crate) fn import_memory(
    context: &Context,
    descriptor: i32,
    size: u64,
    is_dedicated: bool,
) -> Answer<usize> {
    if size == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let file = borrow(descriptor)?;
    faults::refuse(descriptor)?;
    let opened = open_memory(file);
    // NVIDIA's driver closes a descriptor of memory that it refuses, although it keeps those of
    // semaphores open.
    if opened.is_ok() || is_lenient() {
        take(descriptor);
    }
    let memory = opened?;
    Ok(MEMORY.add(Arc::new(Memory {
        context: context.id,
        size,
        is_dedicated,
        memory,
        is_destroyed: AtomicBool::new(false),
    })))
}

fn open_memory(file: BorrowedFd<'_>) -> Answer<Arc<payload::Memory>> {
    let opened = match payload::Memory::open(file) {
        Err(_) if is_lenient() => payload::Memory::of_semaphore(file),
        opened => opened,
    };
    opened.map(Arc::new).map_err(|_| Code::UNKNOWN)
}

/// True if imports of a wrong kind are accepted, as NVIDIA's driver does.
pub(crate) fn is_lenient() -> bool {
    settings().is_ok_and(|settings| !settings.strict)
}

impl Semaphore {
    /// Waits until no operation on it is outstanding.
    pub(crate) fn wait_until_unused(&self) {
        let is_unused = || self.outstanding.load(Ordering::Acquire) == 0;
        news::wait_until(|| is_unused() || self.engine.life.is_over());
    }
}

/// An outstanding operation of a semaphore, until it ends or is dropped.
struct Outstanding {
    semaphore: Arc<Semaphore>,
    has_ended: AtomicBool,
}

impl Outstanding {
    fn begin(semaphore: &Arc<Semaphore>) -> Arc<Self> {
        semaphore.outstanding.fetch_add(1, Ordering::AcqRel);
        Arc::new(Self {
            semaphore: semaphore.clone(),
            has_ended: AtomicBool::new(false),
        })
    }

    /// Idempotent.
    fn end(&self) {
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            self.semaphore.outstanding.fetch_sub(1, Ordering::AcqRel);
            news::tell();
        }
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.end();
    }
}

impl Memory {
    /// `cuExternalMemoryGetMappedBuffer`: returns the device address.
    pub(crate) fn map(&self, context: &Context, offset: u64, size: u64) -> Answer<u64> {
        if self.context != context.id {
            return Err(Code::INVALID_CONTEXT);
        }
        // No device has so many pages.
        if size.checked_next_multiple_of(PAGE).is_none() {
            return Err(Code::OUT_OF_MEMORY);
        }
        let end = offset.checked_add(size).ok_or(Code::INVALID_VALUE)?;
        if size == 0 || end > self.usable() || self.is_dedicated && offset != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if Bug::ImportsOtherMemory.is_planted() {
            return space::allocate(context, size);
        }
        space::map(context, size, self.memory.clone(), offset as usize)
    }

    /// The bytes that the memory has and that the import stated.
    pub(crate) fn usable(&self) -> u64 {
        self.size.min(self.memory.size() as u64)
    }

    /// Returns the address of the first byte, which is there as long as `self`.
    pub(crate) fn address(&self) -> *mut u8 {
        self.memory.address()
    }

    /// Returns the images that Vulkan has bound to the memory.
    pub(crate) fn images(&self) -> Vec<payload::Image> {
        self.memory.images()
    }

    /// `cuDestroyExternalMemory`.
    pub(crate) fn end(&self) {
        self.is_destroyed.store(true, Ordering::Release);
    }

    /// True once the application has destroyed the handle.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.is_destroyed.load(Ordering::Acquire)
    }
}

/// Removes what was imported into a context.
pub(crate) fn forget(context: u64) {
    SEMAPHORES.retain(|semaphore| semaphore.context != context);
    MEMORY.retain(|memory| memory.context != context);
}

/// A signal operation.
#[derive(Clone)]
pub(crate) struct SignalSemaphore {
    semaphore: Arc<Semaphore>,
    value: u64,
    /// `None` before it is submitted.
    outstanding: Option<Arc<Outstanding>>,
}

impl SignalSemaphore {
    pub(crate) const fn new(semaphore: Arc<Semaphore>, value: u64) -> Self {
        Self {
            semaphore,
            value,
            outstanding: None,
        }
    }

    /// Returns the submitted operation. Signals of a binary semaphore get numbers then.
    pub(crate) fn submitted(&self) -> Self {
        let mut submitted = self.clone();
        if self.semaphore.kind == Kind::Binary {
            submitted.value = self.semaphore.payload.number_signal();
            if Bug::SignalsTwice.is_planted() {
                submitted.value = self.semaphore.payload.number_signal();
            }
        }
        submitted.outstanding = Some(Outstanding::begin(&self.semaphore));
        submitted
    }

    pub(crate) fn run(&self) {
        self.semaphore.payload.reach(self.value);
        if let Some(outstanding) = &self.outstanding {
            outstanding.end();
        }
    }
}

/// A wait operation.
#[derive(Clone)]
pub(crate) struct WaitSemaphore {
    semaphore: Arc<Semaphore>,
    value: u64,
    /// `None` before it is submitted.
    outstanding: Option<Arc<Outstanding>>,
}

impl WaitSemaphore {
    pub(crate) const fn new(semaphore: Arc<Semaphore>, value: u64) -> Self {
        Self {
            semaphore,
            value,
            outstanding: None,
        }
    }

    /// Returns the submitted operation. Waits for a binary semaphore get numbers then.
    pub(crate) fn submitted(&self) -> Self {
        let mut submitted = self.clone();
        if self.semaphore.kind == Kind::Binary {
            submitted.value = self.semaphore.payload.number_wait();
        }
        submitted.outstanding = Some(Outstanding::begin(&self.semaphore));
        submitted
    }

    pub(crate) fn run(&self, life: &Life) {
        while !life.is_over() {
            let payload = &self.semaphore.payload;
            let seen = payload.news();
            if payload.value() >= self.value {
                break;
            }
            payload.sleep(seen, Some(LOOK));
        }
        if let Some(outstanding) = &self.outstanding {
            outstanding.end();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use super::*;

    #[test]
    fn an_operation_is_outstanding_until_it_ends_or_is_dropped() {
        let context = Context::for_tests();
        let (payload, _) = payload::Semaphore::create(payload::Kind::Timeline, 0).unwrap();
        let semaphore = Arc::new(Semaphore {
            context: context.id,
            engine: context.engine.clone(),
            outstanding: AtomicUsize::new(0),
            kind: Kind::Timeline,
            payload,
        });
        let outstanding = || semaphore.outstanding.load(Ordering::SeqCst);
        let signal = SignalSemaphore::new(semaphore.clone(), 1).submitted();
        let wait = WaitSemaphore::new(semaphore.clone(), 1).submitted();
        let never = WaitSemaphore::new(semaphore.clone(), 2).submitted();
        assert_eq!(outstanding(), 3);
        signal.run();
        wait.run(&context.engine.life);
        assert_eq!(outstanding(), 1);
        drop((signal, wait, never));
        assert_eq!(outstanding(), 0);
    }
}
