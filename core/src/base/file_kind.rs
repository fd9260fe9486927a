//! What kind of file a descriptor stands for.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;

/// The kind of file that `fd` stands for, without a question to the file's system: fstat(2) of a file whose system another
/// process runs (FUSE) waits for that process.
///
/// # Errors
/// See statx(2).
pub(crate) fn file_kind(fd: BorrowedFd<'_>) -> Result<FileType, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let status = rustix::fs::statx(fd, c"", flags, StatxFlags::TYPE)?;
    Ok(FileType::from_raw_mode(u32::from(status.stx_mode)))
}
