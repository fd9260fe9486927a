//! Host memory for an application's data that several processes share (X8).

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::file::{Sealed, make};
use super::mapping::Mapping;
use super::size::{is_whole_words, require_size, size_refused};
use crate::base::error::{Error, Object, Result};
use crate::base::handle::Rejected;

/// An array of 32-bit words in memory that several processes have mapped. Cheap to clone.
///
/// Only timelines order accesses: what is written before a signal is visible after a wait for it.
///
/// ```
/// # extern crate syncline_core as syncline;
/// # fn main() -> syncline::Result<()> {
/// use std::sync::atomic::Ordering;
/// use syncline::{handle::{SharedWords, WordsFd}};
///
/// let ours = SharedWords::new(1024)?;
/// // Usually the other process receives it from a socket.
/// let theirs = SharedWords::open(WordsFd::from_fd(ours.export()?.into())?)?;
/// ours.words()[7].store(42, Ordering::Relaxed);
/// assert_eq!(theirs.words()[7].load(Ordering::Relaxed), 42);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedWords(Arc<Inner>);

struct Inner {
    object: Object,
    file: OwnedFd,
    words: Mapping<AtomicU32>,
}

/// A handle of [`SharedWords`]: a sealed memfd of at least one 32-bit word.
///
/// The kind of the descriptor can be checked, so no `unsafe` is needed to take one in.
#[derive(Debug)]
pub struct WordsFd {
    fd: OwnedFd,
    size: u64,
}

impl WordsFd {
    /// Takes a descriptor in if it is such a memfd.
    ///
    /// It must be open for reading and writing, and have the seals that fix the size
    /// (`F_SEAL_SHRINK`, `F_SEAL_GROW`, `F_SEAL_SEAL`). Its size must be a positive multiple of
    /// 4 bytes. It must not be of huge pages (`MFD_HUGETLB`), which may run out while it is used.
    ///
    /// Makes four system calls, and does not block for any kind of file.
    ///
    /// # Errors
    /// Each error returns the descriptor, still open. [`Error::Import`] says what was found
    /// instead.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Rejected<OwnedFd>> {
        match check(fd.as_fd()) {
            Ok(file) => {
                let size = file.size();
                Ok(Self { fd, size })
            }
            Err(reason) => Err(Rejected {
                error: Error::import(
                    Object::new("handle", "shared memory"),
                    format!("descriptor {}", fd.as_raw_fd()),
                    reason,
                ),
                handle: fd,
            }),
        }
    }

    /// A handle of `size` bytes that this process has made or checked already.
    pub(crate) const fn from_checked(fd: OwnedFd, size: u64) -> Self {
        Self { fd, size }
    }

    /// The size of the memory in bytes, which does not change.
    ///
    /// The process that sent the descriptor has chosen the size. So check it before
    /// [`SharedWords::open`] maps the memory.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }
}

fn check(file: BorrowedFd<'_>) -> Result<Sealed<'_>, String> {
    let file = Sealed::check(file)?;
    let size = file.size();
    if !is_whole_words(size) {
        return Err(format!("it has {size} bytes, which are no whole words"));
    }
    Ok(file)
}

impl From<WordsFd> for OwnedFd {
    fn from(handle: WordsFd) -> Self {
        handle.fd
    }
}

impl AsFd for WordsFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl SharedWords {
    /// Makes memory of `size` zero bytes. The kernel allocates it when it is written to.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless `size` is a positive multiple of 4 that the host can address.
    /// [`Error::Native`] if the system gives no memory or no descriptor.
    pub fn new(size: u64) -> Result<Self> {
        let object = Object::new("memory", "");
        require_size(&object, size)?;
        if isize::try_from(size).is_err() {
            let reason = "more than the host can address";
            return Err(size_refused(&object, size, reason));
        }
        let file = make("syncline-words", size);
        let file = file.map_err(|(call, errno)| Error::system(&object, call, errno))?;
        let words = Mapping::of(Sealed::new_unchecked(&file, size));
        let words = words.map_err(|errno| Error::system(&object, "mmap", errno))?;
        Ok(Self::over(object, file, words))
    }

    /// Maps the memory of `handle`.
    ///
    /// # Errors
    /// Each error returns the handle. [`Error::Native`] if the memory cannot be mapped.
    pub fn open(handle: WordsFd) -> Result<Self, Rejected<WordsFd>> {
        let object = Object::new("memory", "");
        // It was checked when the handle was made, and its seals fix the size.
        match Mapping::of(Sealed::new_unchecked(&handle.fd, handle.size)) {
            Ok(words) => Ok(Self::over(object, handle.fd, words)),
            Err(errno) => {
                let error = Error::system(&object, "mmap", errno);
                Err(Rejected { handle, error })
            }
        }
    }

    fn over(object: Object, file: OwnedFd, words: Mapping<AtomicU32>) -> Self {
        Self(Arc::new(Inner {
            object,
            file,
            words,
        }))
    }

    /// Makes a new handle with its own descriptor.
    ///
    /// # Errors
    /// [`Error::Native`] if the system gives no descriptor.
    pub fn export(&self) -> Result<WordsFd> {
        let file = rustix::io::fcntl_dupfd_cloexec(&self.0.file, 0);
        let file =
            file.map_err(|errno| Error::system(&self.0.object, "fcntl(F_DUPFD_CLOEXEC)", errno))?;
        Ok(WordsFd::from_checked(file, 4 * self.words().len() as u64))
    }

    /// The words. Other processes may change them at any time.
    #[must_use]
    pub fn words(&self) -> &[AtomicU32] {
        self.0.words.all()
    }
}

impl fmt::Debug for SharedWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} words)", self.0.object, self.words().len())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::Ordering;

    use rstest::rstest;
    use rustix::fs::{MemfdFlags, SealFlags};

    use super::*;

    #[test]
    fn memory_is_shared_until_the_last_handle_is_dropped() {
        let ours = SharedWords::new(4096 + 8).unwrap();
        let theirs = SharedWords::open(ours.export().unwrap()).unwrap();
        assert_eq!(theirs.words().len(), 1026);
        theirs.words()[1025].store(7, Ordering::Relaxed);
        let third = theirs.export().unwrap();
        drop((ours.clone(), theirs));
        assert_eq!(ours.words()[1025].load(Ordering::Relaxed), 7);
        drop(ours);
        let third = SharedWords::open(third).unwrap();
        assert_eq!(third.words()[1025].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn huge_pages_are_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // Not every system has huge pages.
        let Ok(file) = rustix::fs::memfd_create("huge", flags) else {
            return;
        };
        rustix::fs::ftruncate(&file, 2 << 20).unwrap();
        let sized = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, sized).unwrap();
        let rejected = WordsFd::from_fd(file).unwrap_err();
        let text = rejected.error.to_string();
        assert!(text.contains("huge pages"), "{text}");
    }

    #[rstest]
    #[case::nothing(0)]
    #[case::less_than_a_word(3)]
    #[case::a_part_of_a_word(10)]
    #[case::too_much(u64::MAX)]
    fn other_sizes_are_refused(#[case] size: u64) {
        let error = SharedWords::new(size).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }

    /// The seals of a file of fixed size, which may still be added to.
    const SIZED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
    /// The seals of a correct file.
    const SEALED: SealFlags = SIZED.union(SealFlags::SEAL);

    fn memory(size: u64, seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("other", flags).unwrap();
        rustix::fs::ftruncate(&file, size).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[rstest]
    #[case::a_device_for_reading(File::open("/dev/null").unwrap().into(), "read and written")]
    #[case::no_seals(memory(8, SealFlags::empty()), "lacks the seals")]
    #[case::no_seal_against_more_seals(memory(8, SIZED), "lacks the seals")]
    #[case::sealed_against_writing(memory(8, SEALED.union(SealFlags::WRITE)), "writing")]
    #[case::a_part_of_a_word(memory(6, SEALED), "no whole words")]
    #[case::empty(memory(0, SEALED), "no whole words")]
    fn other_descriptors_are_refused_and_returned(#[case] fd: OwnedFd, #[case] expected: &str) {
        let number = fd.as_raw_fd();
        let rejected = WordsFd::from_fd(fd).unwrap_err();
        let text = rejected.error.to_string();
        assert!(text.contains(expected), "{text}");
        assert_eq!(rejected.handle.as_raw_fd(), number);
    }
}
