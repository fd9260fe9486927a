//! A file of memory in this process's own: all `unsafe` of what processes share.
#![allow(unsafe_code, reason = "maps memory that other processes have, too")]

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::file::Sealed;

/// What can lie in memory that others change at any time.
///
/// # Safety
/// Any bytes are one, it has no more than 4096 of alignment and is not empty, and all of it is atomics.
pub(crate) unsafe trait Atomic: Sized {}

// SAFETY: it is one.
unsafe impl Atomic for AtomicU32 {}

// SAFETY: as above.
unsafe impl Atomic for AtomicU64 {}

/// One `A` or more, mapped for as long as this lives.
pub(crate) struct Mapping<A: Atomic> {
    at: NonNull<A>,
    count: usize,
    bytes: usize,
}

// SAFETY: it lends out atomics alone, and the mapping is the process's, not a thread's.
unsafe impl<A: Atomic> Send for Mapping<A> {}
// SAFETY: as for sending.
unsafe impl<A: Atomic> Sync for Mapping<A> {}

impl<A: Atomic> Mapping<A> {
    /// As many as the file has room for.
    ///
    /// # Errors
    /// See mmap(2); `INVAL` if it has no room for one, or the address space none for all.
    pub(crate) fn of(file: Sealed<'_>) -> Result<Self, Errno> {
        let bytes = usize::try_from(file.bytes()).map_err(|_| Errno::INVAL)?;
        let count = bytes / size_of::<A>();
        if count == 0 || isize::try_from(bytes).is_err() {
            return Err(Errno::INVAL);
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the system's choice, so that it covers no memory of this process.
        let at = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, file.fd(), 0) }?;
        // A mapping is never at 0, and the system would have said so.
        let at = NonNull::new(at.cast()).ok_or(Errno::FAULT)?;
        Ok(Self { at, count, bytes })
    }

    /// Where it begins.
    pub(crate) const fn address(&self) -> *mut c_void {
        self.at.as_ptr().cast()
    }

    /// The first.
    #[inline]
    pub(crate) const fn first(&self) -> &A {
        // SAFETY: there is one. Mapped until this is dropped, and aligned as pages of the system are; the file is sealed, so it cannot shrink, which would take
        // pages away, nor be anything else. Holes may be made in it by others: it is not of huge pages, so the system fills them with zeroes as they are touched, as it does with fresh memory. Any bytes are an `A`, and this process reaches them as atomics only, as others may
        // change them at any time.
        unsafe { self.at.as_ref() }
    }

    /// All.
    #[inline]
    pub(crate) const fn all(&self) -> &[A] {
        // SAFETY: as for the first; there are so many, and all of them together are no larger than a slice may be.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }
}

impl<A: Atomic> Drop for Mapping<A> {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this size, and unmapped here alone. Every reference into it borrows `self`, or comes from
        // `address`, whose callers keep the mapping as long as they use it. An error would leave it mapped.
        let _ = unsafe { munmap(self.address(), self.bytes) };
    }
}
