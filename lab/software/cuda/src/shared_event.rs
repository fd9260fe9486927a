//! The page of memory of an event that several processes have.
#![allow(unsafe_code, reason = "maps memory that other processes have, too")]

use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::code::{Answer, Code};

const MAGIC: u64 = u64::from_ne_bytes(*b"SLevent1");
const BYTES: usize = 8192;
/// The largest number of pending records.
const SLOTS: usize = 1000;

/// All words are atomics, because any process may write any of them at any time.
#[repr(C)]
struct Page {
    magic: AtomicU64,
    /// Distinguishes events of one process, which may have the same descriptor one after another.
    id: AtomicU64,
    /// The number of submitted records.
    records: AtomicU64,
    /// 1 once the process of the event has destroyed it.
    destroyed: AtomicU64,
    /// Record `n` writes `n` into slot `n % SLOTS` when a stream reaches it.
    ///
    /// Records of two streams may be reached in any order, so a single number is not enough.
    reached: [AtomicU64; SLOTS],
}

/// The page of one event, and its file if the event is of this process.
#[derive(Debug)]
pub(crate) struct SharedEvent {
    page: NonNull<Page>,
    file: Option<OwnedFd>,
}

// SAFETY: the page is nothing but atomics, and the mapping belongs to the process.
unsafe impl Send for SharedEvent {}
// SAFETY: as for sending.
unsafe impl Sync for SharedEvent {}

/// The 64 bytes that one process sends to another: the location of the file.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IpcHandle {
    magic: u64,
    process: u32,
    descriptor: i32,
    /// The start time of the process, because process ids are used again.
    started: u64,
    id: u64,
    rest: [u64; 4],
}

const _: () = assert!(size_of::<IpcHandle>() == 64 && size_of::<Page>() <= BYTES);

impl SharedEvent {
    /// Creates a new event of this process.
    pub(crate) fn create() -> Answer<Self> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let make = || -> rustix::io::Result<Self> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("syncline-software-event", flags)?;
            rustix::fs::ftruncate(&file, BYTES as u64)?;
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            rustix::fs::fcntl_add_seals(&file, seals)?;
            Ok(Self {
                page: Self::map(file.as_fd())?,
                file: Some(file),
            })
        };
        let event = make().map_err(|_| Code::OPERATING_SYSTEM)?;
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        event.page().id.store(id, Ordering::Relaxed);
        event.page().magic.store(MAGIC, Ordering::Release);
        Ok(event)
    }

    /// Notes that the event is destroyed, if it is of this process.
    ///
    /// Another process that has it open learns of that at its next call: see
    /// [`is_gone`](Self::is_gone).
    pub(crate) fn note_destroyed(&self) {
        if self.file.is_some() {
            self.page().destroyed.store(1, Ordering::Release);
        }
    }

    /// True if this is the event of another process, which has destroyed it.
    ///
    /// A real driver does not notice that, and its behaviour is undefined from then on.
    pub(crate) fn is_gone(&self) -> bool {
        self.file.is_none() && self.page().destroyed.load(Ordering::Acquire) != 0
    }

    /// Returns the handle for other processes. `None` for an event of another process.
    pub(crate) fn handle(&self) -> Option<IpcHandle> {
        let process = std::process::id();
        Some(IpcHandle {
            magic: MAGIC,
            process,
            descriptor: self.file.as_ref()?.as_raw_fd(),
            started: started(process)?,
            id: self.page().id.load(Ordering::Relaxed),
            rest: [0; 4],
        })
    }

    /// Opens the event of another process.
    ///
    /// The file is reached through the exporter's descriptor, so nothing remains when the exporter
    /// dies.
    pub(crate) fn open(handle: &IpcHandle) -> Answer<Self> {
        if handle.magic != MAGIC {
            return Err(Code::MAP_FAILED);
        }
        if handle.process == std::process::id() {
            return Err(Code::INVALID_CONTEXT);
        }
        if started(handle.process) != Some(handle.started) {
            return Err(Code::MAP_FAILED);
        }
        let path = format!("/proc/{}/fd/{}", handle.process, handle.descriptor);
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = OwnedFd::from(file.map_err(|_| Code::MAP_FAILED)?);
        let sealed = SealFlags::SHRINK | SealFlags::GROW;
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| Code::MAP_FAILED)?;
        let status = rustix::fs::fstat(&file).map_err(|_| Code::MAP_FAILED)?;
        if !seals.contains(sealed) || status.st_size != BYTES as i64 {
            return Err(Code::MAP_FAILED);
        }
        let page = Self::map(file.as_fd()).map_err(|_| Code::MAP_FAILED)?;
        let event = Self { page, file: None };
        let known = event.page().magic.load(Ordering::Acquire) == MAGIC
            && event.page().id.load(Ordering::Relaxed) == handle.id;
        if known {
            Ok(event)
        } else {
            Err(Code::MAP_FAILED)
        }
    }

    fn map(file: BorrowedFd<'_>) -> rustix::io::Result<NonNull<Page>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the system's choice covers no memory of this process.
        let at = unsafe { mmap(null_mut(), BYTES, access, MapFlags::SHARED, file, 0) }?;
        NonNull::new(at.cast()).ok_or(rustix::io::Errno::FAULT)
    }

    const fn page(&self) -> &Page {
        // SAFETY: mapped until `drop`, and seals keep the file from shrinking. Any bytes are
        // atomics.
        unsafe { self.page.as_ref() }
    }

    fn slot(&self, number: u64) -> &AtomicU64 {
        &self.page().reached[(number % SLOTS as u64) as usize]
    }

    /// Returns the number of a new record, beginning with 1.
    pub(crate) fn number_record(&self) -> u64 {
        let before = self.page().records.fetch_add(1, Ordering::AcqRel);
        // Another process may have written any number. 0 means that there is no record.
        match before.wrapping_add(1) {
            0 => self.number_record(),
            number => number,
        }
    }

    /// Returns the number of the latest record, or 0 if there is none.
    pub(crate) fn latest(&self) -> u64 {
        self.page().records.load(Ordering::Acquire)
    }

    /// Notes that a stream has reached the record.
    pub(crate) fn reach(&self, number: u64) {
        self.slot(number).fetch_max(number, Ordering::AcqRel);
    }

    pub(crate) fn has_reached(&self, number: u64) -> bool {
        self.slot(number).load(Ordering::Acquire) >= number
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and unmapped here alone.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), BYTES) };
    }
}

/// Returns the start time of a process in clock ticks of the system. `None` if it has ended.
fn started(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in parentheses, may have spaces in it.
    let (_, behind_name) = status.rsplit_once(')')?;
    behind_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use super::*;

    #[test]
    fn records_are_reached_in_any_order() {
        let event = SharedEvent::create().unwrap();
        let (first, second) = (event.number_record(), event.number_record());
        event.reach(second);
        assert!(!event.has_reached(first) && event.has_reached(second));
        event.reach(first);
        assert!(event.has_reached(first));
        assert_eq!(event.latest(), second);
    }

    #[test]
    fn any_number_of_another_process_is_taken() {
        let event = SharedEvent::create().unwrap();
        event.page().records.store(u64::MAX, Ordering::Relaxed);
        let number = event.number_record();
        assert_eq!((number, event.latest()), (1, 1));
        assert!(!event.has_reached(number));
    }

    #[test]
    fn the_own_process_and_no_process_are_refused() {
        let event = SharedEvent::create().unwrap();
        let own = event.handle().unwrap();
        let opened = SharedEvent::open(&own);
        assert_eq!(opened.err(), Some(Code::INVALID_CONTEXT));
        // No process has this number.
        let gone = IpcHandle {
            process: u32::MAX,
            ..own
        };
        assert_eq!(SharedEvent::open(&gone).err(), Some(Code::MAP_FAILED));
        let foreign = IpcHandle { magic: 0, ..own };
        assert_eq!(SharedEvent::open(&foreign).err(), Some(Code::MAP_FAILED));
    }
}
