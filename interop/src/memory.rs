//! Memory of any backend.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use syncline_core::backend::require_range;
use syncline_core::{Error, Result, error::Object};

#[cfg(any(feature = "cuda", feature = "vulkan"))]
use crate::another_backend::another_backend;
#[cfg(feature = "cuda")]
use crate::cuda;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// A range of words of this process. Cheap to clone.
#[derive(Clone)]
pub struct HostWords {
    all: Arc<[AtomicU32]>,
    range: Range<usize>,
}

impl From<Arc<[AtomicU32]>> for HostWords {
    fn from(all: Arc<[AtomicU32]>) -> Self {
        let range = 0..all.len();
        Self { all, range }
    }
}

impl HostWords {
    /// `bytes` bytes at `offset`, which lie within it and are whole words.
    fn view(&self, offset: u64, bytes: u64) -> Option<Self> {
        let start = self.range.start + usize::try_from(offset / 4).ok()?;
        let range = start..start + usize::try_from(bytes / 4).ok()?;
        let all = self.all.clone();
        self.all.get(range.clone())?;
        Some(Self { all, range })
    }
}

impl Deref for HostWords {
    type Target = [AtomicU32];

    fn deref(&self) -> &[AtomicU32] {
        &self.all[self.range.clone()]
    }
}

impl fmt::Debug for HostWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host memory ({} bytes)", 4 * self.range.len())
    }
}

/// A range of memory as one device sees it. Cheap to clone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Memory {
    /// Words of this process.
    Host(HostWords),
    /// Memory that CUDA can address.
    #[cfg(feature = "cuda")]
    Cuda(cuda::DeviceBuffer),
    /// A Vulkan buffer.
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::Buffer),
}

impl Memory {
    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Host(words) => size_of_val(&**words) as u64,
            #[cfg(feature = "cuda")]
            Self::Cuda(buffer) => buffer.bytes(),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(buffer) => buffer.size(),
        }
    }

    /// A range of this memory. It keeps the whole allocation.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless both numbers are multiples of 4, `bytes` is positive, and the
    /// range ends within this one.
    pub fn view(&self, offset: u64, bytes: u64) -> Result<Self> {
        Ok(match self {
            Self::Host(words) => {
                let object = Object::new("host memory", "");
                require_range(&object, self.bytes(), offset, bytes)?;
                let beyond = || Error::unsupported(&object, "show a range", "it has no such range");
                Self::Host(words.view(offset, bytes).ok_or_else(beyond)?)
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(buffer) => Self::Cuda(buffer.view(offset, bytes)?),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(buffer) => Self::Vulkan(buffer.view(offset, bytes)?),
        })
    }

    /// The words of the memory, or `None` if the host cannot address them.
    ///
    /// A word that a queue is writing at the same time may have its old or its new value.
    #[must_use]
    pub fn words(&self) -> Option<&[AtomicU32]> {
        match self {
            Self::Host(words) => Some(words),
            #[cfg(feature = "cuda")]
            Self::Cuda(buffer) => buffer.as_words(),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(buffer) => buffer.as_words(),
        }
    }

    /// The memory as a buffer of CUDA.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for memory of another backend.
    #[cfg(feature = "cuda")]
    pub fn cuda(&self) -> Result<&cuda::DeviceBuffer> {
        match self {
            Self::Cuda(buffer) => Ok(buffer),
            _ => Err(another_backend(&Object::new("memory", ""), "CUDA")),
        }
    }

    /// The memory as a buffer of Vulkan.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for memory of another backend.
    #[cfg(feature = "vulkan")]
    pub fn vulkan(&self) -> Result<&vulkan::Buffer> {
        match self {
            Self::Vulkan(buffer) => Ok(buffer),
            _ => Err(another_backend(&Object::new("memory", ""), "Vulkan")),
        }
    }
}

#[cfg(feature = "cuda")]
impl TryFrom<Memory> for cuda::DeviceBuffer {
    type Error = Error;

    fn try_from(memory: Memory) -> Result<Self> {
        memory.cuda().cloned()
    }
}

#[cfg(feature = "vulkan")]
impl TryFrom<Memory> for vulkan::Buffer {
    type Error = Error;

    fn try_from(memory: Memory) -> Result<Self> {
        memory.vulkan().cloned()
    }
}
