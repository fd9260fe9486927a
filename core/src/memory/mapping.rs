//! Mappings of sealed files: the `unsafe` code of shared memory.
#![allow(unsafe_code, reason = "maps memory that other processes have, too")]

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::file::Sealed;

/// A type that may lie in memory that other processes change at any time.
///
/// # Safety
/// Any bytes must be a valid value. The type must consist of atomics only, must not have the size
/// 0, and must have an alignment of at most 4096.
pub(crate) unsafe trait Atomic: Sized {}

// SAFETY: it is an atomic. Any bytes are valid, and it has the size and alignment 4.
unsafe impl Atomic for AtomicU32 {}

// SAFETY: it is an atomic. Any bytes are valid, its size is 8, and its alignment is at most 8.
unsafe impl Atomic for AtomicU64 {}

/// A mapped array of one or more `A`. Dropping it unmaps the memory.
pub(crate) struct Mapping<A: Atomic> {
    at: NonNull<A>,
    count: usize,
    size: usize,
}

// SAFETY: it lends out references to atomics only, and the mapping belongs to the process and not
// to a thread.
unsafe impl<A: Atomic> Send for Mapping<A> {}
// SAFETY: same reasons as for `Send`.
unsafe impl<A: Atomic> Sync for Mapping<A> {}

impl<A: Atomic> Mapping<A> {
    /// Maps the file as an array of as many `A` as fit.
    ///
    /// # Errors
    /// See mmap(2). `INVAL` if no `A` fits, or if the file is larger than the address space.
    pub(crate) fn of(file: Sealed<'_>) -> Result<Self, Errno> {
        let size = usize::try_from(file.size()).map_err(|_| Errno::INVAL)?;
        let count = size / size_of::<A>();
        if count == 0 || isize::try_from(size).is_err() {
            return Err(Errno::INVAL);
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address of the new mapping, so it does not replace other
        // memory of this process.
        let at = unsafe { mmap(null_mut(), size, access, MapFlags::SHARED, file.fd(), 0) }?;
        // The kernel maps nothing at address 0.
        let at = NonNull::new(at.cast()).ok_or(Errno::FAULT)?;
        Ok(Self { at, count, size })
    }

    /// The address of the mapping.
    pub(crate) const fn address(&self) -> *mut c_void {
        self.at.as_ptr().cast()
    }

    /// The first `A`.
    #[inline]
    pub(crate) const fn first(&self) -> &A {
        // SAFETY: `of` has checked that there is at least one. It stays mapped until `self` is
        // dropped, and is aligned, because pages of the kernel are. The file is sealed, so it can
        // neither shrink, which would take pages away, nor be replaced. Other processes may punch
        // holes into it. It is not of huge pages, so the kernel fills a hole with zeroes when it is
        // touched, as it does for new memory. Any bytes are a valid `A`. Other processes may change
        // them at any time, and this process accesses them as atomics only.
        unsafe { self.at.as_ref() }
    }

    /// All elements.
    #[inline]
    pub(crate) const fn all(&self) -> &[A] {
        // SAFETY: same reasons as for `first`. `of` has computed `count` from the size of the file,
        // and has checked that the size fits into an `isize`, the limit for a slice.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }
}

impl<A: Atomic> Drop for Mapping<A> {
    fn drop(&mut self) {
        // SAFETY: `of` has mapped it with this size, and only this code unmaps it. Every reference
        // into it borrows `self`. Callers of `address` keep the mapping for as long as they use the
        // address. An error leaves the memory mapped.
        let _ = unsafe { munmap(self.address(), self.size) };
    }
}
