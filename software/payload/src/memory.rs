//! Device memory that a software Vulkan driver has exported, mapped into this process.
#![allow(unsafe_code, reason = "maps memory that other processes have, too")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{FileType, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Where lavapipe's allocations begin in their file, behind a header.
const LAVAPIPE_OFFSET: u64 = 4096;
/// By how much SwiftShader's files are longer than their allocations.
const SWIFTSHADER_EXCESS: u64 = 15;
/// How the names of SwiftShader's files begin, as `/proc` shows them.
const SWIFTSHADER_NAME: &str = "/memfd:SwiftShader.Memory";

/// Why a descriptor is no memory of a software driver.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The descriptor is no file of memory.
    #[error("the descriptor is no regular file")]
    NoFile,
    /// The file is smaller than what it is said to hold.
    #[error("the file has {file} bytes, and memory of {asked} bytes is not in it")]
    TooSmall {
        /// Bytes of the file.
        file: u64,
        /// Bytes that the caller said it holds.
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
    /// Maps the `size` bytes of an allocation. The descriptor stays the caller's, and need not stay
    /// open.
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

    /// True for a file that a software Vulkan driver has made, and not for any other file of
    /// memory.
    ///
    /// Lavapipe's begins with a header. SwiftShader's has nothing but a name.
    #[must_use]
    pub fn is_exported(fd: BorrowedFd<'_>) -> bool {
        // Only files of memory have seals.
        if rustix::fs::fcntl_get_seals(fd).is_err() {
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

    /// Where lavapipe's header says that the bytes begin. `None` for a file of `file` bytes without
    /// such a header.
    fn header(fd: BorrowedFd<'_>, file: u64) -> Result<Option<u64>, MemoryError> {
        let mut header = [0_u8; 16];
        let read = rustix::io::pread(fd, &mut header, 0)?;
        let (length, offset) = header.split_at(8);
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let (length, offset) = (word(length), word(offset));
        let is_one = read == header.len() && length == file && (16..file).contains(&offset);
        Ok(is_one.then_some(offset))
    }

    /// Where an allocation of `size` bytes begins in a file of `file` bytes. `None` if it does not
    /// fit.
    ///
    /// Lavapipe's file begins with a header: the size of the file, then the offset of the bytes, 64
    /// bits each. SwiftShader's has none, and 15 bytes more than the allocation. A file of that
    /// length could be told from its contents only if a program wrote such a header into its own
    /// buffer.
    fn offset(fd: BorrowedFd<'_>, file: u64, size: u64) -> Result<Option<u64>, MemoryError> {
        if file < size {
            return Ok(None);
        }
        if file != size
            && file != size + SWIFTSHADER_EXCESS
            && file >= LAVAPIPE_OFFSET
            && let Some(offset) = Self::header(fd, file)?
        {
            let fits = offset.checked_add(size).is_some_and(|end| end <= file);
            return Ok(fits.then_some(offset));
        }
        Ok(Some(0))
    }

    /// The first byte of the allocation.
    #[must_use]
    pub const fn address(&self) -> *mut u8 {
        // SAFETY: `map` has checked that the offset is within the mapping.
        unsafe { self.mapping.as_ptr().add(self.offset) }
    }

    /// Bytes of the allocation.
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
