//! Sealed memfds: how they are made, and how received ones are checked.
//!
//! See memfd_create(2), and `F_GET_SEALS` in fcntl(2).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use rustix::io::Errno;

/// The seals that a file must have, so that no process can take mapped memory away.
///
/// `F_SEAL_SEAL` keeps other processes from adding seals against writing.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// The seals that a file must not have, because every process that has it writes to it.
const READ_ONLY: SealFlags = SealFlags::WRITE.union(SealFlags::FUTURE_WRITE);

/// The file system type of huge pages, see statfs(2).
///
/// Huge pages come from a pool. Seals do not keep a process that has the file from punching a hole
/// into it. An access to the hole raises `SIGBUS` if the pool is empty. Other memory is allocated
/// when it is touched.
const HUGETLBFS_MAGIC: u32 = 0x9584_58f6;

/// A memfd of constant size. Its contents may change at any time.
#[derive(Clone, Copy)]
pub(crate) struct Sealed<'f> {
    file: BorrowedFd<'f>,
    size: u64,
}

impl<'f> Sealed<'f> {
    /// A file of `size` bytes that this process has [made](make) or checked. Not checked here.
    pub(crate) fn new_unchecked(file: &'f OwnedFd, size: u64) -> Self {
        Self {
            file: file.as_fd(),
            size,
        }
    }

    pub(super) const fn fd(self) -> BorrowedFd<'f> {
        self.file
    }

    /// The size of the file in bytes.
    pub(crate) const fn size(self) -> u64 {
        self.size
    }

    /// Checks that a received file is such a memfd. Does not change it.
    ///
    /// # Errors
    /// A description of what was found instead.
    pub(crate) fn check(file: BorrowedFd<'f>) -> Result<Self, String> {
        let access = rustix::fs::fcntl_getfl(file).map_err(unusable)?;
        if access.contains(OFlags::PATH) || access & OFlags::RWMODE != OFlags::RDWR {
            return Err("it is not open to be read and written".into());
        }
        // First a call that only the kernel answers. A file system in user space (FUSE) could block
        // the later calls.
        let seals = match rustix::fs::fcntl_get_seals(file) {
            Ok(seals) => seals,
            Err(Errno::INVAL) => return Err("it is something else than a memfd".into()),
            Err(errno) => return Err(unusable(errno)),
        };
        if !seals.contains(SEALS) {
            let missing = SEALS.difference(seals);
            return Err(format!(
                "it lacks the seals {missing:?}, so another process could take the memory away"
            ));
        }
        if seals.intersects(READ_ONLY) {
            return Err("it is sealed against writing".into());
        }
        let system = rustix::fs::fstatfs(file).map_err(unusable)?;
        if system.f_type as u32 == HUGETLBFS_MAGIC {
            return Err(
                "it is of huge pages, which may run out if a hole is punched into it".into(),
            );
        }
        // The seals show that the file system is in the kernel, so no other process answers this.
        let status = rustix::fs::fstat(file).map_err(unusable)?;
        let size = u64::try_from(status.st_size).unwrap_or(0);
        Ok(Self { file, size })
    }

    /// Reads the first bytes of the file.
    ///
    /// # Errors
    /// A description of the error, or that the file is shorter.
    pub(crate) fn read_header<const BYTES: usize>(self) -> Result<[u8; BYTES], String> {
        let mut header = [0; BYTES];
        let read = rustix::io::pread(self.file, &mut header, 0).map_err(unusable)?;
        if read == BYTES {
            Ok(header)
        } else {
            Err(format!("only {read} bytes of it can be read"))
        }
    }
}

fn unusable(errno: Errno) -> String {
    format!("it cannot be used: {errno}")
}

/// Makes a sealed memfd of `size` zero bytes.
///
/// # Errors
/// The name of the system call that failed, and its error.
pub(crate) fn make(name: &str, size: u64) -> Result<OwnedFd, (&'static str, Errno)> {
    let file = create(name).map_err(|errno| ("memfd_create", errno))?;
    rustix::fs::ftruncate(&file, size).map_err(|errno| ("ftruncate", errno))?;
    rustix::fs::fcntl_add_seals(&file, SEALS).map_err(|errno| ("fcntl(F_ADD_SEALS)", errno))?;
    Ok(file)
}

fn create(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Some systems require the seal against execution (`vm.memfd_noexec`). Older systems do not
    // know it.
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
}
