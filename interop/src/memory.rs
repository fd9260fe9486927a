//! Memory of any backend.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

#[cfg(any(feature = "cuda", feature = "vulkan"))]
use syncline_core::{Error, Result, error::Object};

#[cfg(any(feature = "cuda", feature = "vulkan"))]
use crate::another_backend::another_backend;
#[cfg(feature = "cuda")]
use crate::cuda;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// Memory as one device sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Memory {
    /// Words of this process.
    Host(Arc<[AtomicU32]>),
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
