//! Files of memory: made, sealed, and judged where they come in. See memfd_create(2), and `F_GET_SEALS` in fcntl(2).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use rustix::io::Errno;

/// What keeps memory whole once it is mapped: nobody can take it away, nor make it such that it cannot be written to.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Seals that it must not have, as everybody who has it writes.
const READ_ONLY: SealFlags = SealFlags::WRITE.union(SealFlags::FUTURE_WRITE);

/// The kernel's number for what holds memory of huge pages: see statfs(2). They come out of a pool. Seals keep nobody who has the file from making a hole in it, and a load there
/// is a `SIGBUS` where the pool is empty. Other memory is given as it is touched.
const HUGETLBFS_MAGIC: u32 = 0x9584_58f6;

/// A file of memory whose size stays as it is. What stands in it may change at any time.
#[derive(Clone, Copy)]
pub(crate) struct Sealed<'f> {
    file: BorrowedFd<'f>,
    bytes: u64,
}

impl<'f> Sealed<'f> {
    pub(super) const fn fd(self) -> BorrowedFd<'f> {
        self.file
    }

    /// Its size.
    pub(crate) const fn bytes(self) -> u64 {
        self.bytes
    }

    /// Judges a file, and changes nothing.
    ///
    /// # Errors
    /// What was found instead, in words.
    pub(crate) fn judge(file: BorrowedFd<'f>) -> Result<Self, String> {
        let access = rustix::fs::fcntl_getfl(file).map_err(unusable)?;
        if access.contains(OFlags::PATH) || access & OFlags::RWMODE != OFlags::RDWR {
            return Err("it cannot be read and written, and who has it does both".into());
        }
        // Before anything that the file's system answers: somebody's own (FUSE) may take its time.
        let seals = match rustix::fs::fcntl_get_seals(file) {
            Ok(seals) => seals,
            Err(Errno::INVAL) => return Err("it is something else than a memfd".into()),
            Err(errno) => return Err(unusable(errno)),
        };
        if !seals.contains(SEALS) {
            let missing = SEALS.difference(seals);
            return Err(format!(
                "it lacks the seals {missing:?}, so that its maker could take the memory away"
            ));
        }
        if seals.intersects(READ_ONLY) {
            return Err("it is sealed against writing, and who has it writes".into());
        }
        let system = rustix::fs::fstatfs(file).map_err(unusable)?;
        if system.f_type as u32 == HUGETLBFS_MAGIC {
            return Err("it is of huge pages, which may run out where a hole is made in it".into());
        }
        // Its file system is the kernel's own memory, as the seals have shown: this asks no other process.
        let status = rustix::fs::fstat(file).map_err(unusable)?;
        let bytes = u64::try_from(status.st_size).unwrap_or(0);
        Ok(Self { file, bytes })
    }

    /// What it begins with.
    ///
    /// # Errors
    /// It has less than that, in words.
    pub(crate) fn begins<const BYTES: usize>(self) -> Result<[u8; BYTES], String> {
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

/// A file of so many bytes, all zeroes, and sealed.
///
/// # Errors
/// The call that failed, and how.
pub(crate) fn make(name: &str, bytes: u64) -> Result<OwnedFd, (&'static str, Errno)> {
    let file = create(name).map_err(|errno| ("memfd_create", errno))?;
    rustix::fs::ftruncate(&file, bytes).map_err(|errno| ("ftruncate", errno))?;
    rustix::fs::fcntl_add_seals(&file, SEALS).map_err(|errno| ("fcntl(F_ADD_SEALS)", errno))?;
    Ok(file)
}

fn create(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Systems may insist on the seal against execution (`vm.memfd_noexec`), and older ones do not know it.
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
}

impl<'f> Sealed<'f> {
    /// As a file that was just [made](make), of this size.
    pub(crate) fn fresh(file: &'f OwnedFd, bytes: u64) -> Self {
        Self {
            file: file.as_fd(),
            bytes,
        }
    }
}
