//! Device memory that a software Vulkan driver has exported, mapped into this process.
//!
//! Lavapipe seals its files, so they cannot shrink. SwiftShader's cannot be sealed. A process that
//! truncates such a file makes each later access of the mapping a SIGBUS, here and in the exporter.
#![allow(unsafe_code, reason = "maps memory that other processes have, too")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{FileType, SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Lavapipe's allocations begin at a multiple of this in their file, behind a header.
const LAVAPIPE_ALIGNMENT: u64 = 4096;
/// The number of bytes by which SwiftShader's files are longer than their allocations.
const SWIFTSHADER_EXCESS: u64 = 15;
/// The beginning of the names of SwiftShader's files in `/proc`.
const SWIFTSHADER_NAME: &str = "/memfd:SwiftShader.Memory";

/// The reason why a descriptor is no memory of a software driver.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The descriptor is no file of memory.
    #[error("the descriptor is no regular file")]
    NoFile,
    /// The file is smaller than the stated size.
    #[error("the file has {file} bytes, and memory of {asked} bytes is not in it")]
    TooSmall {
        /// Bytes of the file.
        file: u64,
        /// The stated size in bytes.
        asked: u64,
    },
    /// A system call failed.
    #[error("{0}")]
    System(#[from] rustix::io::Errno),
}

/// Memory that another driver has made, mapped for as long as this lives.
#[derive(Debug)]
pub struct Memory {
    mapping: NonNull<u8>,
    length: usize,
    offset: usize,
    size: usize,
}

// SAFETY: the mapping belongs to the process, and this type only hands out its address.
unsafe impl Send for Memory {}
// SAFETY: as for sending.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps the `size` bytes of an allocation.
    ///
    /// The caller keeps the descriptor, and may close it.
    ///
    /// # Errors
    /// [`MemoryError`]: the descriptor holds no such memory.
    pub fn map(fd: BorrowedFd<'_>, size: u64) -> Result<Self, MemoryError> {
        let status = fstat(fd.as_fd())?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(MemoryError::NoFile);
        }
        let file = u64::try_from(status.st_size).unwrap_or(0);
        let too_small = MemoryError::TooSmall { file, asked: size };
        let Some(offset) = Self::offset(fd, file, size)? else {
            return Err(too_small);
        };
        let (Ok(length), Ok(offset), Ok(size)) = (
            usize::try_from(file),
            usize::try_from(offset),
            usize::try_from(size),
        ) else {
            return Err(too_small);
        };
        if size == 0 {
            return Err(too_small);
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the system's choice covers no memory of this process.
        let at = unsafe { mmap(null_mut(), length, access, MapFlags::SHARED, fd, 0) }?;
        let mapping = NonNull::new(at.cast()).ok_or(rustix::io::Errno::FAULT)?;
        Ok(Self {
            mapping,
            length,
            offset,
            size,
        })
    }

    /// Returns whether a software Vulkan driver has made this file.
    ///
    /// Lavapipe's files begin with a header. SwiftShader's only have a name.
    #[must_use]
    pub fn is_exported(fd: BorrowedFd<'_>) -> bool {
        // Only files of memory have seals.
        if fcntl_get_seals(fd).is_err() {
            return false;
        }
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let is_named = std::fs::read_link(link).is_ok_and(|name| {
            let name = name.to_string_lossy();
            name.starts_with(SWIFTSHADER_NAME)
        });
        let size = fstat(fd).map_or(0, |status| u64::try_from(status.st_size).unwrap_or(0));
        is_named && size > 0 || Self::header(fd, size).is_ok_and(|header| header.is_some())
    }

    /// Returns the offset of the bytes from lavapipe's header.
    ///
    /// `None` for a file of `file` bytes without such a header, and for one that can shrink.
    fn header(fd: BorrowedFd<'_>, file: u64) -> Result<Option<u64>, MemoryError> {
        // The size is read again after the seals, because the file could shrink before it had them.
        let is_sealed = fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
            && u64::try_from(fstat(fd)?.st_size) == Ok(file);
        let mut header = [0_u8; 16];
        let read = rustix::io::pread(fd, &mut header, 0)?;
        let (length, offset) = header.split_at(8);
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let (length, offset) = (word(length), word(offset));
        let is_inside = (16..file).contains(&offset) && offset.is_multiple_of(LAVAPIPE_ALIGNMENT);
        let is_one = is_sealed && read == header.len() && length == file && is_inside;
        Ok(is_one.then_some(offset))
    }

    /// Returns the offset of an allocation of `size` bytes in a file of `file` bytes.
    ///
    /// `None` if it does not fit.
    ///
    /// Lavapipe's file begins with a header: the size of the file, then the offset of the bytes, 64
    /// bits each. SwiftShader's has none, and 15 bytes more than the allocation. The two are
    /// confused only if a program writes such a header into its own buffer, in a file of exactly
    /// that length.
    fn offset(fd: BorrowedFd<'_>, file: u64, size: u64) -> Result<Option<u64>, MemoryError> {
        if file < size {
            return Ok(None);
        }
        if file != size
            && file != size + SWIFTSHADER_EXCESS
            && file >= LAVAPIPE_ALIGNMENT
            && let Some(offset) = Self::header(fd, file)?
        {
            let fits = offset.checked_add(size).is_some_and(|end| end <= file);
            return Ok(fits.then_some(offset));
        }
        Ok(Some(0))
    }

    /// Returns the address of the first byte of the allocation.
    #[must_use]
    pub const fn address(&self) -> *mut u8 {
        // SAFETY: `map` has checked that the offset is within the mapping.
        unsafe { self.mapping.as_ptr().add(self.offset) }
    }

    /// Returns the size of the allocation in bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and unmapped here alone.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    const FILE: u64 = 3 * LAVAPIPE_ALIGNMENT;

    /// Makes a file like lavapipe's, with this offset and these seals.
    fn file(offset: u64, seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("memory", flags).unwrap();
        ftruncate(&file, FILE).unwrap();
        let header = [FILE.to_ne_bytes(), offset.to_ne_bytes()].concat();
        rustix::io::pwrite(&file, &header, 0).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn a_header_tells_where_the_bytes_begin() {
        let file = file(LAVAPIPE_ALIGNMENT, SealFlags::SHRINK);
        rustix::io::pwrite(&file, &[7], LAVAPIPE_ALIGNMENT).unwrap();
        assert!(Memory::is_exported(file.as_fd()));
        let memory = Memory::map(file.as_fd(), 100).unwrap();
        // SAFETY: mapped, and nothing writes there.
        assert_eq!(unsafe { memory.address().read() }, 7);
        let too_large = Memory::map(file.as_fd(), FILE - LAVAPIPE_ALIGNMENT + 1);
        assert!(matches!(too_large, Err(MemoryError::TooSmall { .. })));
    }

    #[test]
    fn a_header_in_a_file_that_can_shrink_is_none() {
        let file = file(LAVAPIPE_ALIGNMENT, SealFlags::GROW);
        assert!(!Memory::is_exported(file.as_fd()));
    }

    #[test]
    fn a_header_with_an_odd_offset_is_none() {
        for offset in [16, LAVAPIPE_ALIGNMENT + 2, FILE, 0] {
            let file = file(offset, SealFlags::SHRINK);
            assert!(!Memory::is_exported(file.as_fd()), "{offset}");
        }
    }
}
