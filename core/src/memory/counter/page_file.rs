//! The file of a counter's page.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::page;
use crate::base::error::Result;
use crate::memory::file::{Sealed, make};

/// Makes the file of a new page.
pub(super) fn make_page_file() -> Result<OwnedFd, (&'static str, Errno)> {
    make("syncline-counter", page::BYTES as u64)
}

/// Checks that a file is the page of a counter. Does not change it.
///
/// # Errors
/// A description of what was found instead.
pub(crate) fn check_page_file(file: BorrowedFd<'_>) -> Result<Sealed<'_>, String> {
    let file = Sealed::check(file)?;
    let (found, expected) = (file.size(), page::BYTES);
    if found != expected as u64 {
        return Err(format!("it has {found} bytes, and a page has {expected}"));
    }
    page::check_header(file.read_header()?)?;
    Ok(file)
}

/// The reason why this system cannot make counters in shared memory, if it cannot.
pub(crate) fn unavailable() -> Option<String> {
    let (call, errno) = make_page_file().err()?;
    Some(format!(
        "the system makes no sealed memory to share: {call} says {errno}"
    ))
}
