//! The payload of a semaphore: a page of memory that every process with a handle has mapped.
#![allow(unsafe_code, reason = "maps memory that other processes have, too")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;

const MAGIC: u64 = u64::from_ne_bytes(*b"SLsema01");
const BYTES: usize = 4096;

/// The kind of a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A counter of 64 bits that only increases.
    Timeline = 1,
    /// Signalled or not. The payload counts signals and waits.
    Binary = 2,
}

/// The reason why a descriptor is no semaphore of the software drivers.
#[derive(Debug, thiserror::Error)]
pub enum SemaphoreError {
    /// Another kind of file, or a file of another program.
    #[error("the descriptor holds no semaphore of the software drivers")]
    Foreign,
    /// A system call failed.
    #[error("{0}")]
    System(#[from] Errno),
}

/// The page. All words are atomics, because any process may write any of them at any time.
#[repr(C)]
struct Page {
    magic: AtomicU64,
    kind: AtomicU32,
    /// Changes with every change of the payload. Threads sleep on it.
    news: AtomicU32,
    /// Timeline: the value that has been reached. Binary: how many signals have executed.
    value: AtomicU64,
    /// Binary: how many signal operations have been submitted.
    signals: AtomicU64,
    /// Binary: how many wait operations have been submitted.
    waits: AtomicU64,
}

/// A semaphore's payload, mapped for as long as this lives.
///
/// It holds reached values, and nothing about later ones. A process that dies just stops
/// signalling.
#[derive(Debug)]
pub struct Semaphore {
    page: NonNull<Page>,
    kind: Kind,
}

// SAFETY: the page is nothing but atomics, and the mapping belongs to the process.
unsafe impl Send for Semaphore {}
// SAFETY: as for sending.
unsafe impl Sync for Semaphore {}

impl Semaphore {
    /// The size of the file.
    pub(crate) const BYTES: usize = BYTES;

    /// Creates a payload, and returns it with the descriptor with which others open it.
    ///
    /// # Errors
    /// The system's error if it has no memory or no descriptor.
    pub fn create(kind: Kind, value: u64) -> Result<(Self, OwnedFd), SemaphoreError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("syncline-software-semaphore", flags)?;
        rustix::fs::ftruncate(&file, BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let created = Self {
            page: Self::map(file.as_fd())?,
            kind,
        };
        let page = created.page();
        page.kind.store(kind as u32, Ordering::Relaxed);
        page.value.store(value, Ordering::Relaxed);
        page.magic.store(MAGIC, Ordering::Release);
        Ok((created, file))
    }

    /// Opens the payload of a descriptor.
    ///
    /// The caller keeps the descriptor, and may close it.
    ///
    /// # Errors
    /// [`SemaphoreError::Foreign`] if it is no such payload, or the system's error.
    pub fn open(fd: BorrowedFd<'_>) -> Result<Self, SemaphoreError> {
        let sealed = SealFlags::SHRINK | SealFlags::GROW;
        // Only files of memory have seals. Without them the page could vanish under a reader.
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| SemaphoreError::Foreign)?;
        let bytes = rustix::fs::fstat(fd)?.st_size;
        if !seals.contains(sealed) || bytes != BYTES as i64 {
            return Err(SemaphoreError::Foreign);
        }
        let mut opened = Self {
            page: Self::map(fd)?,
            kind: Kind::Timeline,
        };
        if opened.page().magic.load(Ordering::Acquire) != MAGIC {
            return Err(SemaphoreError::Foreign);
        }
        opened.kind = match opened.page().kind.load(Ordering::Relaxed) {
            1 => Kind::Timeline,
            2 => Kind::Binary,
            _ => return Err(SemaphoreError::Foreign),
        };
        Ok(opened)
    }

    fn map(fd: BorrowedFd<'_>) -> Result<NonNull<Page>, SemaphoreError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the system's choice covers no memory of this process.
        let at = unsafe { mmap(null_mut(), BYTES, access, MapFlags::SHARED, fd, 0) }?;
        Ok(NonNull::new(at.cast()).ok_or(Errno::FAULT)?)
    }

    const fn page(&self) -> &Page {
        // SAFETY: mapped with room for it until `drop`, and seals keep the file from shrinking. Any
        // bytes are atomics.
        unsafe { self.page.as_ref() }
    }

    /// Returns its kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the reached value, or the number of executed signals of a binary semaphore.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.page().value.load(Ordering::Acquire)
    }

    /// Increases the value to at least `value`, and wakes all waiters.
    ///
    /// A thread that reads the value also finds everything that was written before this call.
    pub fn reach(&self, value: u64) {
        self.page().value.fetch_max(value, Ordering::AcqRel);
        self.wake();
    }

    /// Returns the number of a new signal operation of a binary semaphore, beginning with 1.
    ///
    /// [`Semaphore::reach`] with that number executes it.
    #[must_use]
    pub fn number_signal(&self) -> u64 {
        let before = self.page().signals.fetch_add(1, Ordering::AcqRel);
        // Another process may have written any number.
        before.wrapping_add(1)
    }

    /// Returns the number of a new wait operation of a binary semaphore, beginning with 1.
    ///
    /// The wait ends once that many signals have executed.
    #[must_use]
    pub fn number_wait(&self) -> u64 {
        let before = self.page().waits.fetch_add(1, Ordering::AcqRel);
        // Another process may have written any number.
        before.wrapping_add(1)
    }

    /// Takes back the number of a signal whose submission was refused.
    pub fn withdraw_signal(&self) {
        self.page().signals.fetch_sub(1, Ordering::AcqRel);
    }

    /// Takes back the number of a wait whose submission was refused.
    pub fn withdraw_wait(&self) {
        self.page().waits.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the word for [`Semaphore::sleep`]. Read it before the value.
    #[must_use]
    pub fn news(&self) -> u32 {
        self.page().news.load(Ordering::Acquire)
    }

    /// Sleeps until the payload changes, but not if it has changed since `seen`.
    ///
    /// May also return without a change.
    pub fn sleep(&self, seen: u32, timeout: Option<Duration>) {
        let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
        // After any result the caller reads again: a change, a signal, or the timeout.
        let _ = futex::wait(
            &self.page().news,
            futex::Flags::empty(),
            seen,
            timeout.as_ref(),
        );
    }

    /// Wakes all threads that sleep on this semaphore, in all processes.
    pub fn wake(&self) {
        self.page().news.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(&self.page().news, futex::Flags::empty(), i32::MAX as u32);
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and unmapped here alone.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_seen_through_each_descriptor_and_never_falls() {
        let (one, file) = Semaphore::create(Kind::Timeline, 3).unwrap();
        let other = Semaphore::open(file.as_fd()).unwrap();
        assert_eq!((other.kind(), other.value()), (Kind::Timeline, 3));
        one.reach(9);
        one.reach(5);
        assert_eq!(other.value(), 9);
    }

    #[test]
    fn a_sleeper_wakes_for_news() {
        let (one, file) = Semaphore::create(Kind::Binary, 0).unwrap();
        let other = Semaphore::open(file.as_fd()).unwrap();
        let waiter = std::thread::spawn(move || {
            loop {
                let seen = other.news();
                if other.value() >= 1 {
                    return;
                }
                other.sleep(seen, None);
            }
        });
        assert_eq!((one.number_signal(), one.number_wait()), (1, 1));
        one.reach(1);
        waiter.join().unwrap();
    }

    #[test]
    fn any_bytes_in_the_page_are_numbers() {
        let (one, file) = Semaphore::create(Kind::Binary, 0).unwrap();
        rustix::io::pwrite(&file, &[0xff; 32], 16).unwrap();
        assert_eq!((one.number_signal(), one.number_wait()), (0, 0));
        assert_eq!(one.value(), u64::MAX);
        one.wake();
    }

    #[test]
    fn a_page_that_could_shrink_is_refused() {
        let (_one, file) = Semaphore::create(Kind::Timeline, 0).unwrap();
        let mut bytes = [0; BYTES];
        rustix::io::pread(&file, &mut bytes, 0).unwrap();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let copy = rustix::fs::memfd_create("copy", flags).unwrap();
        rustix::io::pwrite(&copy, &bytes, 0).unwrap();
        assert!(matches!(
            Semaphore::open(copy.as_fd()),
            Err(SemaphoreError::Foreign)
        ));
        rustix::fs::fcntl_add_seals(&copy, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(Semaphore::open(copy.as_fd()).is_ok());
    }

    #[test]
    fn other_files_are_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(
            Semaphore::open(file.as_fd()),
            Err(SemaphoreError::Foreign)
        ));
        let plain =
            rustix::fs::memfd_create("plain", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .unwrap();
        rustix::fs::ftruncate(&plain, BYTES as u64).unwrap();
        rustix::fs::fcntl_add_seals(&plain, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(matches!(
            Semaphore::open(plain.as_fd()),
            Err(SemaphoreError::Foreign)
        ));
    }
}
