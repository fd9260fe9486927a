//! The kind of file behind a descriptor, to refuse a foreign descriptor without a driver call.

use std::os::fd::BorrowedFd;

use rustix::fs::FileType;

/// The kind of file that a descriptor refers to. All exports of one driver have the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileKind {
    kind: FileType,
    /// The device number of a device file.
    device: u64,
    /// The file system and the size of a regular file. SwiftShader exports memory as regular files,
    /// and consumes a descriptor even when it refuses the import.
    file: Option<(u64, i64)>,
}

impl FileKind {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let stat = rustix::fs::fstat(fd)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        Ok(Self {
            kind,
            device: stat.st_rdev,
            file: (kind == FileType::RegularFile).then_some((stat.st_dev, stat.st_size)),
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
        self.file
            .map(|(_, bytes)| u64::try_from(bytes).unwrap_or(0))
    }
}

impl std::fmt::Display for FileKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((file_system, size)) = self.file {
            let (major, minor) = (
                rustix::fs::major(file_system),
                rustix::fs::minor(file_system),
            );
            return write!(f, "a file of {size} bytes on {major}:{minor}");
        }
        match self.kind {
            FileType::Fifo => f.write_str("a pipe"),
            FileType::Socket => f.write_str("a socket"),
            FileType::Directory => f.write_str("a directory"),
            FileType::CharacterDevice | FileType::BlockDevice => {
                let (major, minor) = (
                    rustix::fs::major(self.device),
                    rustix::fs::minor(self.device),
                );
                write!(f, "device file {major}:{minor}")
            }
            _ => f.write_str("an anonymous kernel object"),
        }
    }
}
