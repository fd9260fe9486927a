//! The file behind a page: made, sealed, and judged where it comes in.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FileType, MemfdFlags, OFlags, SealFlags};
use rustix::io::Errno;

use super::page::{BYTES, HEADER, judge};

/// What keeps a page whole once it is mapped: nobody can take it away, nor make it one that cannot be written to.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Seals that a page must not have, as those who wait write to it, too.
const READ_ONLY: SealFlags = SealFlags::WRITE.union(SealFlags::FUTURE_WRITE);

/// A file of the size of a page that stays so. What stands in it may change.
#[derive(Clone, Copy)]
pub(crate) struct Sealed<'f>(BorrowedFd<'f>);

impl<'f> Sealed<'f> {
    pub(super) const fn fd(self) -> BorrowedFd<'f> {
        self.0
    }

    /// Judges a file, and what its page begins with. Reads from it, and changes nothing.
    ///
    /// # Errors
    /// What was found instead of a counter's page, in words.
    pub(crate) fn judge(file: BorrowedFd<'f>) -> Result<Self, String> {
        let unusable = |errno: Errno| format!("it cannot be used: {errno}");
        let status = rustix::fs::fstat(file).map_err(unusable)?;
        let kind = FileType::from_raw_mode(status.st_mode);
        if kind != FileType::RegularFile {
            return Err(format!("it is a {kind:?}, not memory"));
        }
        let access = rustix::fs::fcntl_getfl(file).map_err(unusable)?;
        if access.contains(OFlags::PATH) || access & OFlags::RWMODE != OFlags::RDWR {
            return Err("it cannot be read and written, and who waits does both".into());
        }
        let seals = match rustix::fs::fcntl_get_seals(file) {
            Ok(seals) => seals,
            Err(Errno::INVAL) => return Err("it is a file, not a memfd".into()),
            Err(errno) => return Err(unusable(errno)),
        };
        if !seals.contains(SEALS) {
            let missing = SEALS.difference(seals);
            return Err(format!(
                "it lacks the seals {missing:?}, so that its maker could take the page away"
            ));
        }
        if seals.intersects(READ_ONLY) {
            return Err("it is sealed against writing, and who waits writes, too".into());
        }
        if u64::try_from(status.st_size) != Ok(BYTES as u64) {
            let found = status.st_size;
            return Err(format!("it has {found} bytes, and a page has {BYTES}"));
        }
        let mut header = [0; HEADER];
        let read = rustix::io::pread(file, &mut header, 0).map_err(unusable)?;
        if read != HEADER {
            return Err(format!("only {read} bytes of it can be read"));
        }
        judge(header)?;
        Ok(Self(file))
    }
}

/// Makes the file of a page, all zeroes, and sealed.
///
/// # Errors
/// The call that failed, and how.
pub(super) fn make() -> Result<OwnedFd, (&'static str, Errno)> {
    let file = create().map_err(|errno| ("memfd_create", errno))?;
    rustix::fs::ftruncate(&file, BYTES as u64).map_err(|errno| ("ftruncate", errno))?;
    rustix::fs::fcntl_add_seals(&file, SEALS).map_err(|errno| ("fcntl(F_ADD_SEALS)", errno))?;
    Ok(file)
}

fn create() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let name = "syncline-counter";
    // Systems may insist on the seal against execution (`vm.memfd_noexec`), and older ones do not know it.
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
}

/// As a file that was just [made](make).
pub(super) const fn fresh(file: BorrowedFd<'_>) -> Sealed<'_> {
    Sealed(file)
}
