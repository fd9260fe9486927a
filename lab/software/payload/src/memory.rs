//! Device memory that software drivers share, mapped into this process.
//!
//! [`Memory::create`] makes a sealed file: a header, then the bytes. The seals keep its size, so no
//! process can take the bytes away.
#![allow(unsafe_code, reason = "maps memory that other processes have, too")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::identity::UUID_BYTES;
use crate::image;
use crate::semaphore::Semaphore;

/// The first word of the header.
const MAGIC: u64 = u64::from_ne_bytes(*b"SLmemory");
/// The version of the format. A file of another version is refused.
const VERSION: u32 = 2;
/// Bytes of a page.
const PAGE: u64 = 4096;
/// The bytes of the header, before those of the allocation: a page, and the table of images.
const HEADER: u64 = PAGE + image::BYTES as u64;
/// The seals of a file: nothing changes its size.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

const _: () = assert!(HEADER.is_multiple_of(PAGE));

/// The beginning of the file. The rest of its page is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    /// Bytes of the allocation.
    size: u64,
    /// The UUID of the GPU that the memory is of.
    gpu: [u8; UUID_BYTES],
}

impl Header {
    /// The magic number, the version, zero, the size, and the GPU.
    const BYTES: usize = 8 + 4 + 4 + 8 + UUID_BYTES;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_ne_bytes());
        bytes[24..].copy_from_slice(&self.gpu);
        bytes
    }

    /// `None` for the beginning of another file.
    fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| {
            let word = bytes[at..at + 8].try_into().unwrap_or_default();
            u64::from_ne_bytes(word)
        };
        let mut gpu = [0; UUID_BYTES];
        gpu.copy_from_slice(&bytes[24..]);
        let size = word(16);
        let found = Self { size, gpu };
        (found.to_bytes() == *bytes).then_some(found)
    }

    /// Returns the bytes of the file: the header, and whole pages. `None` if they are too many.
    fn file(self) -> Option<u64> {
        let pages = self.size.checked_next_multiple_of(PAGE)?;
        pages.checked_add(HEADER).filter(|_| self.size > 0)
    }
}

/// The reason why a descriptor is no memory of a software driver.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The file is none of [`Memory::create`].
    #[error("the file holds no memory of the software drivers")]
    Foreign,
    /// No file has so many bytes, or none at all.
    #[error("memory of {0} bytes cannot be made")]
    Size(u64),
    /// As many images are bound to the memory as its table has room for, or it has no table.
    #[error(
        "the memory has no room for another image: at most {} are bound to it",
        image::IMAGES
    )]
    TableFull,
    /// The image has more levels than an entry of the table has room for.
    #[error("an image of {0} levels has no room in the table of the memory")]
    Levels(usize),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] rustix::io::Errno),
}

/// Memory that another driver has made, mapped for as long as this lives.
#[derive(Debug)]
pub struct Memory {
    mapping: NonNull<u8>,
    /// Bytes of the mapping, with the page behind the memory.
    length: usize,
    offset: usize,
    size: usize,
    gpu: [u8; UUID_BYTES],
}

// SAFETY: the mapping belongs to the process, and this type only hands out its address.
unsafe impl Send for Memory {}
// SAFETY: as for sending.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes memory of zeroes, and returns it with the descriptor with which others open it.
    ///
    /// `gpu` is the UUID of the GPU that has it.
    ///
    /// # Errors
    /// [`MemoryError::Size`], or the system's error if it has no memory or no descriptor.
    pub fn create(size: u64, gpu: [u8; UUID_BYTES]) -> Result<(Self, OwnedFd), MemoryError> {
        let header = Header { size, gpu };
        let bytes = header.file().ok_or(MemoryError::Size(size))?;
        // The system takes sizes of 63 bits.
        if i64::try_from(bytes).is_err() {
            return Err(MemoryError::Size(size));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("syncline-software-memory", flags)?;
        ftruncate(&file, bytes)?;
        rustix::io::pwrite(&file, &header.to_bytes(), 0)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok((Self::whole(file.as_fd(), bytes, header)?, file))
    }

    /// Opens the memory of a descriptor of [`Memory::create`].
    ///
    /// The caller keeps the descriptor, and may close it.
    ///
    /// # Errors
    /// [`MemoryError::Foreign`] for any other file, or the system's error.
    pub fn open(fd: BorrowedFd<'_>) -> Result<Self, MemoryError> {
        // Only files of memory have seals. The size is read after them, so it stays.
        let seals = fcntl_get_seals(fd).map_err(|_| MemoryError::Foreign)?;
        let mut bytes = [0; Header::BYTES];
        let read = rustix::io::pread(fd, &mut bytes, 0)?;
        let file = u64::try_from(fstat(fd)?.st_size).unwrap_or(0);
        let header = Header::from_bytes(&bytes)
            .filter(|header| header.file() == Some(file))
            .filter(|_| read == bytes.len() && seals.contains(SEALS));
        Self::whole(fd, file, header.ok_or(MemoryError::Foreign)?)
    }

    /// Maps a file of `bytes` bytes, which its seals keep.
    fn whole(fd: BorrowedFd<'_>, bytes: u64, header: Header) -> Result<Self, MemoryError> {
        let (Ok(length), Ok(offset), Ok(size)) = (
            usize::try_from(bytes),
            usize::try_from(HEADER),
            usize::try_from(header.size),
        ) else {
            return Err(MemoryError::Size(header.size));
        };
        let (mapping, length) = Self::mapping(fd, length)?;
        Ok(Self {
            mapping,
            length,
            offset,
            size,
            gpu: header.gpu,
        })
    }

    /// Maps a file, and a page of zeroes behind it that can only be read.
    ///
    /// SwiftShader loads 16 bytes for each attribute of a vertex, also of the last one in a buffer.
    /// Its own allocations have room for that.
    fn mapping(fd: BorrowedFd<'_>, length: usize) -> Result<(NonNull<u8>, usize), MemoryError> {
        let too_large = || MemoryError::Size(length as u64);
        let whole = length.checked_add(PAGE as usize).ok_or_else(too_large)?;
        let (read, write) = (ProtFlags::READ, ProtFlags::WRITE);
        // SAFETY: a new mapping at a place of the system's choice covers no memory of this process.
        let at = unsafe { mmap_anonymous(null_mut(), whole, read, MapFlags::PRIVATE) }?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: covers the beginning of the mapping above, which nothing uses yet.
        let file = unsafe { mmap(at, length, read | write, flags, fd, 0) };
        if let Err(error) = file {
            // SAFETY: mapped above, and nothing uses it.
            let _ = unsafe { munmap(at, whole) };
            return Err(error.into());
        }
        let at = NonNull::new(at.cast()).ok_or(rustix::io::Errno::FAULT)?;
        Ok((at, whole))
    }

    /// Maps the payload of a semaphore as memory, for drivers that do not tell the two apart.
    ///
    /// The caller keeps the descriptor, and may close it.
    ///
    /// # Errors
    /// [`MemoryError::Foreign`] if it is no such payload, or the system's error.
    pub fn of_semaphore(fd: BorrowedFd<'_>) -> Result<Self, MemoryError> {
        Semaphore::open(fd).map_err(|_| MemoryError::Foreign)?;
        let (mapping, length) = Self::mapping(fd, Semaphore::BYTES)?;
        Ok(Self {
            mapping,
            length,
            offset: 0,
            size: Semaphore::BYTES,
            gpu: [0; UUID_BYTES],
        })
    }

    /// Returns the address of the first byte of the allocation.
    #[must_use]
    pub const fn address(&self) -> *mut u8 {
        // SAFETY: the offset is within the mapping.
        unsafe { self.mapping.as_ptr().add(self.offset) }
    }

    /// Returns the first entry of the table of images, and the number of entries.
    pub(crate) const fn table_pointer(&self) -> (*mut u8, usize) {
        // The payload of a semaphore has no header.
        if self.offset == 0 {
            return (std::ptr::without_provenance_mut(align_of::<u64>()), 0);
        }
        // SAFETY: the header of the mapping has the table behind its first page.
        let first = unsafe { self.mapping.as_ptr().add(PAGE as usize) };
        (first, image::IMAGES)
    }

    /// Returns the UUID of the GPU that has the memory. Zero for a semaphore.
    #[must_use]
    pub const fn gpu(&self) -> [u8; UUID_BYTES] {
        self.gpu
    }

    /// Returns the size of the allocation in bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and unmapped here alone.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: [u8; UUID_BYTES] = *b"a GPU for a test";

    /// Copies the first bytes of memory into a new file of `bytes` bytes with these seals.
    fn copied(from: &OwnedFd, bytes: u64, seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("copied", flags).unwrap();
        let mut header = [0; Header::BYTES];
        rustix::io::pread(from, &mut header, 0).unwrap();
        ftruncate(&file, bytes).unwrap();
        rustix::io::pwrite(&file, &header, 0).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn memory_is_the_same_for_all_that_open_it() {
        let (memory, file) = Memory::create(5000, GPU).unwrap();
        let opened = Memory::open(file.as_fd()).unwrap();
        assert_eq!((opened.size(), opened.gpu()), (5000, GPU));
        assert_eq!(memory.address().addr() % 4096, 0);
        // SAFETY: both are mapped, and nothing else has them.
        unsafe {
            assert_eq!(opened.address().add(4999).read(), 0);
            memory.address().add(4999).write(7);
            assert_eq!(opened.address().add(4999).read(), 7);
        }
        assert!(ftruncate(&file, 4096).is_err() && ftruncate(&file, 1 << 20).is_err());
    }

    /// As SwiftShader reads the last vertex of a buffer.
    #[test]
    fn zeroes_can_be_read_behind_the_memory() {
        let (memory, file) = Memory::create(2 * PAGE, GPU).unwrap();
        for memory in [Memory::open(file.as_fd()).unwrap(), memory] {
            let last = memory.address().wrapping_add(memory.size() - 4);
            // SAFETY: a page of the mapping follows the memory, and nothing writes it.
            let read = unsafe { last.cast::<[u8; 16]>().read() };
            assert_eq!(read, [0; 16]);
        }
    }

    #[test]
    fn only_whole_sealed_files_are_opened() {
        let (_memory, file) = Memory::create(5000, GPU).unwrap();
        let right = HEADER + 2 * PAGE;
        Memory::open(copied(&file, right, SEALS).as_fd()).unwrap();
        for (bytes, seals) in [
            (right - 1, SEALS),
            (right + PAGE, SEALS),
            (100, SEALS),
            (right, SealFlags::SHRINK | SealFlags::GROW),
            (right, SealFlags::empty()),
        ] {
            let opened = Memory::open(copied(&file, bytes, seals).as_fd());
            assert!(matches!(opened, Err(MemoryError::Foreign)), "{bytes}");
        }
    }

    #[test]
    fn a_header_of_another_version_is_refused() {
        let header = Header {
            size: 5000,
            gpu: GPU,
        };
        assert_eq!(Header::from_bytes(&header.to_bytes()), Some(header));
        for at in [0, 7, 8, 12, 15] {
            let mut bytes = header.to_bytes();
            bytes[at] ^= 1;
            assert_eq!(Header::from_bytes(&bytes), None, "{at}");
        }
    }

    #[test]
    fn memory_that_no_file_holds_is_not_made() {
        for size in [0, u64::MAX, u64::MAX - 8192, 1 << 63] {
            let made = Memory::create(size, GPU);
            assert!(matches!(made, Err(MemoryError::Size(_))), "{size}");
        }
    }
}
