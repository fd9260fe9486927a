//! Memory that two devices use together.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use syncline_core::backend::Device as _;
use syncline_core::{Error, Object, Result};

use crate::any::Device;
#[cfg(feature = "cuda")]
use crate::cuda;
#[cfg(all(feature = "cuda", feature = "vulkan"))]
use crate::negotiate::Mechanism;
use crate::share::Link;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// What shared buffers are for, besides transfers.
#[cfg(feature = "vulkan")]
pub(crate) const STORAGE: vulkan::ash::vk::BufferUsageFlags =
    vulkan::ash::vk::BufferUsageFlags::STORAGE_BUFFER;

/// Memory as one device sees it.
#[derive(Clone, Debug)]
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
    /// The words, where the host can address them. What a queue is writing may read as old or new.
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

    /// Host-visible memory of `device`, all zeroes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless `bytes` is a positive multiple of 4 (on Vulkan any positive number) that the host
    /// can address; a driver error.
    pub fn host_visible(device: &Device, bytes: u64) -> Result<Self> {
        let memory = match device {
            Device::Host(_) => Self::Host(words(device, bytes)?),
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => Self::Cuda(device.host_buffer(bytes)?),
            #[cfg(feature = "vulkan")]
            Device::Vulkan(device) => Self::Vulkan(device.host_buffer(bytes, STORAGE)?),
        };
        for word in memory.words().unwrap_or_default() {
            word.store(0, Ordering::Relaxed);
        }
        Ok(memory)
    }
}

/// A buffer that both sides of a [`Link`] use; the two views are of one memory wherever that is possible.
///
/// The link's timelines order its use; nothing else does.
#[derive(Clone)]
pub struct SharedBuffer {
    bytes: u64,
    left: Memory,
    right: Memory,
    how: &'static str,
    relayed: bool,
}

impl SharedBuffer {
    pub(crate) fn new(link: &Link, bytes: u64) -> Result<Self> {
        let (left, right) = (link.left(), link.right());
        if bytes == 0 || !bytes.is_multiple_of(4) {
            return Err(unsupported(
                left.object(),
                bytes,
                "buffers are whole 32-bit words, at least one",
            ));
        }
        let one = |memory: Memory, how| {
            Ok(Self {
                bytes,
                left: memory.clone(),
                right: memory,
                how,
                relayed: false,
            })
        };
        #[cfg(all(feature = "cuda", feature = "vulkan"))]
        if link.mechanism() == Mechanism::ExternalTimeline {
            return Self::external(link, bytes);
        }
        let addressed = "memory of one device that the host addresses";
        if left.id() == right.id() {
            one(
                Memory::host_visible(left, bytes)?,
                "memory of the device that the host addresses",
            )
        } else if matches!(left, Device::Host(_)) {
            one(Memory::host_visible(right, bytes)?, addressed)
        } else if matches!(right, Device::Host(_)) {
            one(Memory::host_visible(left, bytes)?, addressed)
        } else {
            Ok(Self {
                bytes,
                left: Memory::host_visible(left, bytes)?,
                right: Memory::host_visible(right, bytes)?,
                how: "one buffer on each device, copied by the host",
                relayed: true,
            })
        }
    }

    /// Exported by Vulkan, imported by CUDA.
    #[cfg(all(feature = "cuda", feature = "vulkan"))]
    fn external(link: &Link, bytes: u64) -> Result<Self> {
        let how = "device memory exported by Vulkan, imported by CUDA";
        match (link.left(), link.right()) {
            (Device::Cuda(cuda), Device::Vulkan(vulkan)) => {
                let (exported, handle) = vulkan.export_buffer(bytes, STORAGE)?;
                let left = Memory::Cuda(cuda.import_memory(handle)?);
                Ok(Self {
                    bytes,
                    left,
                    right: Memory::Vulkan(exported),
                    how,
                    relayed: false,
                })
            }
            (Device::Vulkan(vulkan), Device::Cuda(cuda)) => {
                let (exported, handle) = vulkan.export_buffer(bytes, STORAGE)?;
                let right = Memory::Cuda(cuda.import_memory(handle)?);
                Ok(Self {
                    bytes,
                    left: Memory::Vulkan(exported),
                    right,
                    how,
                    relayed: false,
                })
            }
            (left, _) => Err(unsupported(
                left.object(),
                bytes,
                "only CUDA and Vulkan share memory natively",
            )),
        }
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The left device's view.
    #[must_use]
    pub const fn left(&self) -> &Memory {
        &self.left
    }

    /// The right device's view.
    #[must_use]
    pub const fn right(&self) -> &Memory {
        &self.right
    }

    /// What it is, in words.
    #[must_use]
    pub const fn how(&self) -> &'static str {
        self.how
    }

    /// True if the two views are two memories: then what the left side wrote must be brought over by
    /// [`SharedBuffer::relay`], ordered between the two sides by their timelines.
    #[must_use]
    pub const fn is_relayed(&self) -> bool {
        self.relayed
    }

    /// Copies the left side's words to the right side, on the calling thread. Nothing to do unless
    /// the buffer [is relayed](SharedBuffer::is_relayed).
    pub fn relay(&self) {
        if let (true, Some(from), Some(to)) = (self.relayed, self.left.words(), self.right.words())
        {
            for (from, to) in from.iter().zip(to) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuffer({} bytes, {})", self.bytes, self.how)
    }
}

fn words(device: &Device, bytes: u64) -> Result<Arc<[AtomicU32]>> {
    let count = usize::try_from(bytes / 4)
        .map_err(|_| unsupported(device.object(), bytes, "more than the host can address"))?;
    // What is shared is allocated once, in a way that ends the process where there is no memory: so that is asked for first. With
    // the counts of references that come before the words.
    Vec::<AtomicU32>::new()
        .try_reserve_exact(count.saturating_add(COUNTS))
        .map_err(|error| unsupported(device.object(), bytes, &error.to_string()))?;
    Ok((0..count).map(|_| AtomicU32::new(0)).collect())
}

/// More words than the counts of an `Arc` take.
const COUNTS: usize = 16;

fn unsupported(object: &Object, bytes: u64, reason: &str) -> Error {
    Error::Unsupported {
        object: object.clone(),
        asked: format!("make a shared buffer of {bytes} bytes"),
        reason: reason.into(),
    }
}
