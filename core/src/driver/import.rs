//! What the imports of backends have in common: descriptors for drivers, and errors.
#![allow(
    unsafe_code,
    reason = "compares and closes a descriptor that a driver may have closed"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Resource, getrlimit};

use crate::base::error::{Error, Object};
use crate::base::handle::MemoryFd;

/// The error for memory that `device` does not import.
#[must_use]
pub fn memory_refused(device: &Object, memory: &MemoryFd, reason: impl Into<String>) -> Error {
    Error::import(
        device,
        format!("memory of {} bytes", memory.info().size),
        reason,
    )
}

/// A duplicate of a handle, which one import passes to a driver (X4).
///
/// A driver takes the descriptor if the import succeeds: call [`ImportFd::taken`] then. Drivers
/// differ in what they do if it fails. Lavapipe closes the descriptor, and so does NVIDIA's CUDA
/// driver (580.159) with descriptors of memory. Other imports leave it open. So the drop closes the
/// duplicate only if the kernel confirms that it is still open:
///
/// * Both numbers must refer to one open file description. Inodes do not help, because anonymous
///   files (semaphores, eventfds, GPU memory) share one. If the kernel cannot compare, the
///   duplicate is leaked.
/// * Another thread may get the number for a duplicate of the same description, once the driver has
///   closed the number. So the number of this duplicate is high and not the lowest free one, which
///   the kernel gives to others. Imports that run at the same time get different numbers.
#[derive(Debug)]
pub struct ImportFd<'h> {
    handle: BorrowedFd<'h>,
    number: RawFd,
}

impl<'h> ImportFd<'h> {
    /// Duplicates `handle`.
    ///
    /// # Errors
    /// The system's, for example because no more descriptors can be opened.
    pub fn duplicate(handle: &'h impl AsFd) -> io::Result<Self> {
        let handle = handle.as_fd();
        let duplicate = rustix::io::fcntl_dupfd_cloexec(handle, unusual_number())
            .or_else(|_| handle.try_clone_to_owned())?;
        Ok(Self {
            handle,
            number: duplicate.into_raw_fd(),
        })
    }

    /// The number to pass to the driver.
    #[must_use]
    pub const fn number(&self) -> RawFd {
        self.number
    }

    /// Gives the duplicate to the driver, whose import has succeeded.
    pub fn taken(self) {
        std::mem::forget(self);
    }
}

impl Drop for ImportFd<'_> {
    fn drop(&mut self) {
        if is_one_file(self.number, self.handle) {
            // SAFETY: opened by `duplicate`. As compared just now, the driver has not closed it.
            drop(unsafe { OwnedFd::from_raw_fd(self.number) });
        }
    }
}

/// The lowest number for the next duplicate. Successive calls return different ones.
fn unusual_number() -> RawFd {
    /// The most imports that run at the same time, with different numbers.
    const AT_ONCE: u32 = 256;
    /// A table of descriptors takes 8 bytes for each number, up to the highest open one.
    const HIGHEST: u64 = 1 << 12;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let start = (limit / 2).min(HIGHEST) as u32;
    let number = start + CALLS.fetch_add(1, Ordering::Relaxed) % AT_ONCE.min(start / 2 + 1);
    number.cast_signed()
}

/// True if `number` is open and refers to the same open file description as `handle`.
fn is_one_file(number: RawFd, handle: BorrowedFd<'_>) -> bool {
    /// `F_DUPFD_QUERY`, since Linux 6.10.
    const DUPFD_QUERY: libc::c_int = 1024 + 3;
    const KCMP_FILE: libc::c_int = 0;
    let handle = handle.as_raw_fd();
    // SAFETY: compares two numbers, and fails if one is not open.
    match unsafe { libc::fcntl(number, DUPFD_QUERY, handle) } {
        1 => return true,
        0 => return false,
        _ if io::Error::last_os_error().raw_os_error() == Some(libc::EBADF) => return false,
        // An older kernel.
        _ => {}
    }
    let process = std::process::id();
    // SAFETY: as above. Containers may forbid this call, which then fails.
    unsafe { libc::syscall(libc::SYS_kcmp, process, process, KCMP_FILE, number, handle) == 0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::io::PipeReader;

    use super::*;

    fn file() -> PipeReader {
        std::io::pipe().unwrap().0
    }

    fn is_open(number: RawFd) -> bool {
        // SAFETY: reads flags, and fails if the number is not open.
        unsafe { libc::fcntl(number, libc::F_GETFD) != -1 }
    }

    /// Closes what a driver has got, as lavapipe does.
    fn close_by_driver(fd: &ImportFd<'_>) {
        // SAFETY: an open duplicate, which nothing else closes.
        assert_eq!(unsafe { libc::close(fd.number()) }, 0);
    }

    /// Opens a duplicate of `file` as `number`, as another thread may.
    fn reuse(number: RawFd, file: &impl AsFd) -> OwnedFd {
        // SAFETY: a number that is free.
        unsafe {
            let made = libc::dup3(file.as_fd().as_raw_fd(), number, libc::O_CLOEXEC);
            assert_eq!(made, number);
            OwnedFd::from_raw_fd(number)
        }
    }

    #[test]
    fn a_refused_duplicate_is_closed_and_a_taken_one_is_not() {
        let handle = file();
        let refused = ImportFd::duplicate(&handle).unwrap();
        let number = refused.number();
        assert!(is_open(number));
        drop(refused);
        assert!(!is_open(number));
        let taken = ImportFd::duplicate(&handle).unwrap();
        let number = taken.number();
        taken.taken();
        assert!(is_open(number));
        // SAFETY: open, and nothing else owns it.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }

    /// Both are anonymous files with one inode.
    #[test]
    fn a_number_that_another_file_has_got_stays_open() {
        let eventfd = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let (handle, other) = (eventfd(), eventfd());
        let refused = ImportFd::duplicate(&handle).unwrap();
        close_by_driver(&refused);
        let canary = reuse(refused.number(), &other);
        drop(refused);
        assert!(is_open(canary.as_raw_fd()));
        let refused = ImportFd::duplicate(&handle).unwrap();
        close_by_driver(&refused);
        drop(refused);
    }

    /// A number that the driver has closed is not given to the next duplicate of the same file.
    #[test]
    fn imports_at_the_same_time_have_different_numbers() {
        let handle = file();
        let mut all = Vec::new();
        for _ in 0..40 {
            let refused = ImportFd::duplicate(&handle).unwrap();
            close_by_driver(&refused);
            let lowest = handle.try_clone().unwrap();
            assert_ne!(lowest.as_raw_fd(), refused.number());
            all.push(refused);
        }
        let mut numbers: Vec<_> = all.iter().map(ImportFd::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all.len());
    }
}
