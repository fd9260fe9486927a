//! Private buffers in memory of the application's own allocator.
#![allow(unsafe_code, reason = "binds buffers to memory of the application")]

use std::sync::Arc;

use ash::vk;
use syncline_core::Result;

use crate::device::application_memory::{MemorySource, Source};
use crate::device::open::Device;
use crate::memory::allocation::MemoryKind;
use crate::memory::buffer::Buffer;

/// Makes private buffers in memory of a [`MemorySource`]. Cheap to clone.
///
/// A buffer may be dropped on a thread of Syncline. Its memory goes to a list then, and the next of
/// these calls gives it back to the source: the methods of this type, and `Device::trim`. To get
/// all memory back, drop the buffers, wait for the submissions that use them, and call
/// [`ApplicationMemory::give_back`]. Memory that is on the list when the last handle and buffer are
/// dropped is not given back.
#[derive(Clone)]
pub struct ApplicationMemory {
    source: Arc<Source>,
    /// The last field. The drop of the source may free memory of the device.
    device: Device,
}

impl Device {
    /// Uses an allocator of the application for private buffers.
    ///
    /// The source may be dropped on a thread of Syncline, with the last buffer in its memory.
    #[must_use]
    pub fn use_memory(&self, source: impl MemorySource) -> ApplicationMemory {
        let source = Arc::new(Source::new(source));
        self.inner().sources().add(&source);
        ApplicationMemory {
            device: self.clone(),
            source,
        }
    }
}

impl ApplicationMemory {
    /// Same as [`Device::host_buffer`], in memory of the source.
    ///
    /// # Errors
    /// Same errors as [`Device::host_buffer`]. The code that the source returns is reported as one
    /// of `vkAllocateMemory`. [`Error::Unsupported`](syncline_core::Error::Unsupported) if the
    /// range of the source is not aligned, or not mapped.
    pub fn host_buffer(&self, size: u64, usage: vk::BufferUsageFlags) -> Result<Buffer> {
        Buffer::from_source(&self.device, &self.source, size, usage, MemoryKind::Host)
    }

    /// Same as [`Device::device_buffer`], in memory of the source.
    ///
    /// # Errors
    /// Same errors as [`ApplicationMemory::host_buffer`].
    pub fn device_buffer(&self, size: u64, usage: vk::BufferUsageFlags) -> Result<Buffer> {
        Buffer::from_source(&self.device, &self.source, size, usage, MemoryKind::Device)
    }

    /// Gives memory of dropped buffers back to the source.
    pub fn give_back(&self) {
        if !self.device.inner().is_forked() {
            self.source.give_back();
        }
    }
}

impl std::fmt::Debug for ApplicationMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "memory of the application for {}", self.device.object())
    }
}
