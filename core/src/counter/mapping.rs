//! The page in this process's memory: all `unsafe` of the counters.
#![allow(unsafe_code, reason = "maps memory that other processes have, too")]

use std::ffi::c_void;
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::page::{BYTES, Page};
use super::sealed::Sealed;

/// A page, mapped for as long as this lives.
pub(super) struct Mapping(NonNull<Page>);

// SAFETY: a page is atomics, and the mapping is the process's, not a thread's.
unsafe impl Send for Mapping {}
// SAFETY: as for sending.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// # Errors
    /// See mmap(2).
    pub(super) fn of(file: Sealed<'_>) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the system's choice, over nothing of ours.
        let at = unsafe { mmap(null_mut(), BYTES, access, MapFlags::SHARED, file.fd(), 0) }?;
        // A mapping is never at 0, and the system would have said so.
        let at = NonNull::new(at.cast()).ok_or(Errno::FAULT)?;
        Ok(Self(at))
    }

    /// Where it begins.
    pub(super) const fn address(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

impl Deref for Mapping {
    type Target = Page;

    #[inline]
    fn deref(&self) -> &Page {
        // SAFETY: `BYTES` bytes, the size of a `Page`, mapped until this is dropped, and aligned as pages of the system are; the file can
        // neither shrink, which would take them away, nor be anything else, as it is sealed. Any bytes are a `Page`, and this process
        // reaches them as atomics only, as others may change them at any time.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by this, and nothing refers to it any more. An error would leave it mapped.
        let _ = unsafe { munmap(self.address(), BYTES) };
    }
}
