//! The kind of file behind a descriptor, to refuse a foreign descriptor without a driver call.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FileType, StatxFlags};
use syncline_core::backend::kit::get_or_make;
use syncline_core::{Result, handle::HandleKind};

/// The kind of file that a descriptor refers to. All exports of one driver have the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileKind {
    kind: FileType,
    /// The device number of a device file.
    device: Numbers,
    /// The file system and the size of a regular file. SwiftShader exports memory as regular files,
    /// and consumes a descriptor even when it refuses the import.
    file: Option<(Numbers, u64)>,
}

/// Major and minor number.
type Numbers = (u32, u32);

impl FileKind {
    /// Reads the kind of file behind `fd`.
    ///
    /// Does not query the file system, because the process behind a FUSE file system may not
    /// answer.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let status = rustix::fs::statx(fd, c"", flags, StatxFlags::TYPE | StatxFlags::SIZE)?;
        let kind = FileType::from_raw_mode(status.stx_mode.into());
        let file_system = (status.stx_dev_major, status.stx_dev_minor);
        Ok(Self {
            kind,
            device: (status.stx_rdev_major, status.stx_rdev_minor),
            file: (kind == FileType::RegularFile).then_some((file_system, status.stx_size)),
        })
    }

    /// True if both are of the same kind, whatever their sizes.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        let file_system = |kind: &Self| kind.file.map(|(file_system, _)| file_system);
        (self.kind, self.device, file_system(self))
            == (other.kind, other.device, file_system(other))
    }

    /// Size of a regular file in bytes.
    pub(crate) fn size(&self) -> Option<u64> {
        self.file.map(|(_, bytes)| bytes)
    }
}

/// The kind of file that the driver's own exports of each kind of handle have.
///
/// Each is determined at the first import.
#[derive(Default)]
pub(crate) struct FileKinds([OnceLock<FileKind>; HandleKind::ALL.len()]);

impl FileKinds {
    /// The kind of file behind handles of `kind`. Calls `find` if it is not known yet.
    ///
    /// # Errors
    /// The error of `find`.
    pub(crate) fn get_or_find(
        &self,
        kind: HandleKind,
        find: impl FnOnce() -> Result<FileKind>,
    ) -> Result<FileKind> {
        get_or_make(&self.0[kind.index()], find).copied()
    }
}

impl std::fmt::Display for FileKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(((major, minor), size)) = self.file {
            return write!(f, "a file of {size} bytes on {major}:{minor}");
        }
        match self.kind {
            FileType::Fifo => f.write_str("a pipe"),
            FileType::Socket => f.write_str("a socket"),
            FileType::Directory => f.write_str("a directory"),
            FileType::CharacterDevice | FileType::BlockDevice => {
                let (major, minor) = self.device;
                write!(f, "device file {major}:{minor}")
            }
            _ => f.write_str("an anonymous kernel object"),
        }
    }
}
