//! Sync files as handles: one signal, which may have been made already.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::FileType;

use super::{HandleKind, Rejected};
use crate::base::error::{Error, Object};
use crate::base::file_kind::file_kind;
use crate::base::sync_file;

/// A sync file: one signal of a binary semaphore, which is pending or has been made. Where it has been made, drivers may give no descriptor
/// but −1, which stands for that.
///
/// Owned by exactly one party: a successful import consumes it, a failed one gives it back. It is the kernel's, so where it comes from makes no
/// difference, and of what it holds an importer has a copy ([`Transference::Copy`](crate::Transference::Copy)): a binary semaphore for its
/// next wait, or a fence of a host device ([`host::Device::import_sync_fd`](crate::host::Device::import_sync_fd)), for which queues of every device wait.
///
/// What it carries can be told, so a bare descriptor comes in without `unsafe`, and is judged:
///
/// ```
/// # fn main() -> syncline_core::Result<()> {
/// use syncline_core::{SyncFd, host};
///
/// let none = SyncFd::from_fd(None)?; // the −1 of C: signalled already
/// let fence = host::Device::new().import_sync_fd(none, "acquired")?;
/// assert!(fence.is_complete()?);
///
/// let file = std::fs::File::open("/dev/null").map_err(syncline_core::Error::work)?;
/// let refused = SyncFd::from_fd(Some(file.into())).unwrap_err();
/// drop(refused.handle); // still the caller's
/// # Ok(())
/// # }
/// ```
///
/// What carries another kind does not pass for it:
///
/// ```compile_fail,E0308
/// # use syncline_core::{BinaryFd, SyncFd};
/// fn import(handle: BinaryFd) {}
/// fn pass(handle: SyncFd) {
///     import(handle);
/// }
/// ```
#[derive(Debug)]
pub struct SyncFd(Option<OwnedFd>);

impl SyncFd {
    /// Takes a descriptor in, if it is a sync file's; `None` is the −1 that stands for a signal already made. Makes two system calls, and does not
    /// block.
    ///
    /// See `SYNC_IOC_FILE_INFO` of the kernel's sync files.
    ///
    /// # Errors
    /// [`Error::Import`], with what was found instead, and the descriptor, still open.
    pub fn from_fd(fd: Option<OwnedFd>) -> Result<Self, Rejected<OwnedFd>> {
        let Some(fd) = fd else {
            return Ok(Self::signalled());
        };
        match judge(fd.as_fd()) {
            Ok(()) => Ok(Self(Some(fd))),
            Err(reason) => Err(Rejected {
                error: Error::Import {
                    object: Object::new("handle", HandleKind::SyncFd.name()),
                    what: format!("descriptor {}", fd.as_raw_fd()),
                    reason,
                },
                handle: fd,
            }),
        }
    }

    /// Takes a descriptor in that a driver has exported as a sync file, without a system call.
    ///
    /// # Safety
    /// It is one: drivers do not check what they import as one.
    #[allow(
        unsafe_code,
        reason = "drivers take for granted what the caller vouches for"
    )]
    #[must_use]
    pub const unsafe fn from_driver(fd: Option<OwnedFd>) -> Self {
        Self(fd)
    }

    /// The −1 that stands for a signal already made.
    #[must_use]
    pub const fn signalled() -> Self {
        Self(None)
    }

    /// Of what is known to be one.
    pub(crate) const fn known(fd: Option<OwnedFd>) -> Self {
        Self(fd)
    }

    /// The descriptor; `None` stands for −1.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }

    /// Gives the bare descriptor up, if it is one and not −1.
    #[must_use]
    pub fn into_fd(self) -> Option<OwnedFd> {
        self.0
    }
}

impl From<SyncFd> for Option<OwnedFd> {
    fn from(handle: SyncFd) -> Self {
        handle.0
    }
}

/// Why it is no sync file, if it is none.
fn judge(fd: BorrowedFd<'_>) -> Result<(), String> {
    let unusable = |errno: rustix::io::Errno| format!("it cannot be used: {errno}");
    let found = file_kind(fd).map_err(unusable)?;
    // What the kernel's own objects look like. Files of drivers, which may take the next call for one of theirs, are not asked.
    if found != FileType::Unknown {
        return Err(format!("it is a {found:?}, and no sync file"));
    }
    match sync_file::status(fd) {
        Ok(_) => Ok(()),
        Err(errno) => Err(format!("it does not answer as a sync file does: {errno}")),
    }
}
