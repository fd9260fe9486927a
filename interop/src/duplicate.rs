//! Duplicates of descriptors.

use std::os::fd::{BorrowedFd, OwnedFd};

use syncline_core::{Error, Result, error::Object, handle::HandleKind};

/// A duplicate of `fd`, which is a handle of `kind`.
///
/// # Errors
/// [`Error::Native`] if the system has no descriptors left.
pub(crate) fn duplicate(fd: BorrowedFd<'_>, kind: HandleKind) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(|error| {
        Error::native(
            Object::new("handle", kind.name()),
            "fcntl(F_DUPFD_CLOEXEC)",
            error.raw_os_error().unwrap_or(0).into(),
            error.to_string(),
        )
    })
}
