//! Sync files as handles of one signal, pending or made.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::FileType;

use super::kind::HandleKind;
use super::rejected::Rejected;
use crate::base::error::{Error, Object};
use crate::base::file_kind::file_kind;
use crate::base::sync_file;

/// A sync file: one signal of a binary semaphore, pending or made.
///
/// A driver may return −1 instead of a descriptor. The value −1 stands for a signal that is already
/// made.
///
/// Owned by exactly one party: a successful import consumes it, a failed import gives it back.
///
/// A sync file is an object of the kernel, so it may come from any driver. An import copies the
/// signal ([copy transference](crate::handle::HandleKind::is_copied)). The importer is one of
/// these:
/// * A binary semaphore, for its next wait.
/// * A fence of a host device
///   ([`host::Device::import_sync_fd`](crate::host::Device::import_sync_fd)). Queues of every
///   device can wait for that fence.
///
/// The kind of the descriptor can be checked, so a raw descriptor enters without `unsafe`:
///
/// ```
/// # extern crate syncline_core as syncline;
/// # fn main() -> syncline::Result<()> {
/// use syncline::{host, handle::SyncFd};
///
/// let none = SyncFd::from_fd(None)?; // the −1 of C: signalled already
/// let fence = host::Device::new().import_sync_fd(none, "acquired")?;
/// assert!(fence.is_complete()?);
///
/// let file = std::fs::File::open("/dev/null").map_err(syncline::Error::work)?;
/// let refused = SyncFd::from_fd(Some(file.into())).unwrap_err();
/// drop(refused.handle); // still the caller's
/// # Ok(())
/// # }
/// ```
///
/// A handle of another kind does not compile in its place:
///
/// ```compile_fail,E0308
/// # extern crate syncline_core as syncline;
/// # use syncline::{handle::{BinaryFd, SyncFd}};
/// fn import(handle: BinaryFd) {}
/// fn pass(handle: SyncFd) {
///     import(handle);
/// }
/// ```
#[derive(Debug)]
pub struct SyncFd(Option<OwnedFd>);

impl SyncFd {
    /// Wraps a descriptor after a check that it is a sync file. `None` stands for −1.
    ///
    /// Makes two system calls and does not block. The check uses `SYNC_IOC_FILE_INFO`.
    ///
    /// # Errors
    /// [`Error::Import`] if it is not a sync file. Returns the descriptor, still open.
    pub fn from_fd(fd: Option<OwnedFd>) -> Result<Self, Rejected<OwnedFd>> {
        let Some(fd) = fd else {
            return Ok(Self::signalled());
        };
        match check(fd.as_fd()) {
            Ok(()) => Ok(Self(Some(fd))),
            Err(reason) => Err(Rejected {
                error: Error::import(
                    Object::new("handle", HandleKind::SyncFd.name()),
                    format!("descriptor {}", fd.as_raw_fd()),
                    reason,
                ),
                handle: fd,
            }),
        }
    }

    /// Wraps a descriptor that a driver has exported as a sync file, without a system call.
    ///
    /// # Safety
    /// `fd` is a sync file. Drivers do not check the descriptors that they import as sync files.
    #[allow(unsafe_code, reason = "drivers do not check the kind of a descriptor")]
    #[must_use]
    pub const unsafe fn from_driver(fd: Option<OwnedFd>) -> Self {
        Self(fd)
    }

    /// The value −1, which stands for a signal that is already made.
    #[must_use]
    pub const fn signalled() -> Self {
        Self(None)
    }

    /// Wraps a descriptor that is known to be a sync file.
    pub(crate) const fn from_checked(fd: Option<OwnedFd>) -> Self {
        Self(fd)
    }

    /// The descriptor; `None` stands for −1.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }

    /// Returns the raw descriptor; `None` stands for −1.
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

/// Checks that `fd` is a sync file. The error is the reason why it is not.
fn check(fd: BorrowedFd<'_>) -> Result<(), String> {
    let unusable = |errno: rustix::io::Errno| format!("it cannot be used: {errno}");
    let found = file_kind(fd).map_err(unusable)?;
    // Anonymous objects of the kernel have no file type. The file of a driver has one. It does not
    // get the ioctl, because it might interpret the number as one of its own.
    if found != FileType::Unknown {
        return Err(format!("it is a {found:?}, and no sync file"));
    }
    match sync_file::status(fd) {
        Ok(_) => Ok(()),
        Err(errno) => Err(format!("it does not answer as a sync file does: {errno}")),
    }
}
