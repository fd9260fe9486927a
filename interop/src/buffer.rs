//! Buffers of any backend.

use std::sync::atomic::AtomicU32;

#[cfg(any(feature = "cuda", feature = "vulkan", doc))]
use syncline_core::Error;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
use syncline_core::error::Object;
use syncline_core::{Result, host};

#[cfg(any(feature = "cuda", feature = "vulkan"))]
use crate::another_backend::another_backend;
#[cfg(feature = "cuda")]
use crate::cuda;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// A range of memory as one device sees it. Cheap to clone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Buffer {
    /// Words of this process.
    Host(host::Buffer),
    /// Memory that CUDA can address.
    #[cfg(feature = "cuda")]
    Cuda(cuda::Buffer),
    /// A Vulkan buffer.
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::Buffer),
}

impl Buffer {
    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Self::Host(words) => size_of_val(&**words) as u64,
            #[cfg(feature = "cuda")]
            Self::Cuda(buffer) => buffer.size(),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(buffer) => buffer.size(),
        }
    }

    /// A range of this memory. It keeps the whole allocation.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless both numbers are multiples of 4, `size` is positive, and the
    /// range ends within this one.
    pub fn view(&self, offset: u64, size: u64) -> Result<Self> {
        Ok(match self {
            Self::Host(words) => Self::Host(words.view(offset, size)?),
            #[cfg(feature = "cuda")]
            Self::Cuda(buffer) => Self::Cuda(buffer.view(offset, size)?),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(buffer) => Self::Vulkan(buffer.view(offset, size)?),
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
    pub fn cuda(&self) -> Result<&cuda::Buffer> {
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
impl TryFrom<Buffer> for cuda::Buffer {
    type Error = Error;

    fn try_from(memory: Buffer) -> Result<Self> {
        memory.cuda().cloned()
    }
}

#[cfg(feature = "vulkan")]
impl TryFrom<Buffer> for vulkan::Buffer {
    type Error = Error;

    fn try_from(memory: Buffer) -> Result<Self> {
        memory.vulkan().cloned()
    }
}
