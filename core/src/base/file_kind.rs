//! The kind of file behind a descriptor.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;

/// The kind of file behind `fd`. Does not ask the file system.
///
/// fstat(2) asks the file system, and so waits for the process that serves a FUSE file.
///
/// # Errors
/// See statx(2).
pub(crate) fn file_kind(fd: BorrowedFd<'_>) -> Result<FileType, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let status = rustix::fs::statx(fd, c"", flags, StatxFlags::TYPE)?;
    Ok(FileType::from_raw_mode(u32::from(status.stx_mode)))
}
