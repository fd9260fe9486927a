//! Memory and buffers that the application has made.
#![allow(unsafe_code, reason = "the application vouches for raw handles")]

use std::any::Any;
use std::sync::Arc;

use ash::vk;
use syncline_core::handle::HandleKind;
use syncline_core::{Error, Result};

use crate::device::open::Device;
use crate::memory::allocation::Allocation;
use crate::memory::buffer::Buffer;

/// The properties of a `VkDeviceMemory` that the application has allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationInfo {
    /// `VkMemoryAllocateInfo::allocationSize`, in bytes.
    pub size: u64,
    /// `VkMemoryAllocateInfo::memoryTypeIndex`.
    pub memory_type: u32,
    /// True if it was allocated with `VkMemoryDedicatedAllocateInfo`.
    pub dedicated: bool,
    /// True if it was allocated with `VkExportMemoryAllocateInfo` for opaque file descriptors.
    pub exportable: bool,
}

impl Device {
    /// Adopts memory that the application has allocated. Makes no driver call.
    ///
    /// `owner` is kept as long as the allocation, a buffer in it, or an import of it by
    /// [`Device::import_allocation_of`] lives, and while a submission uses one of them. It may be
    /// dropped on a thread of Syncline.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a size of 0, for a memory type that the device does not have, and
    /// for exportable memory if the device exports none.
    /// [`Error::MadeBeforeFork`] in a forked child.
    ///
    /// # Safety
    /// * `memory` belongs to this `VkDevice` and has the properties that `info` says. It was
    ///   allocated without a device mask (VUID-VkMemoryAllocateInfo-None-00643).
    /// * It lives until the owner is dropped; without an owner, until nothing uses the allocation,
    ///   its buffers, imports of them and submissions with them.
    /// * Exportable memory is allocated for opaque file descriptors alone. Other memory is neither
    ///   imported nor allocated for export.
    pub unsafe fn adopt_allocation(
        &self,
        memory: vk::DeviceMemory,
        info: &AllocationInfo,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Allocation> {
        let inner = self.inner();
        inner.require_maker()?;
        let refuse = |reason: String| {
            let asked = format!(
                "adopt an allocation of {} bytes with memory type {}",
                info.size, info.memory_type
            );
            Err(Error::unsupported(self.object(), asked, reason))
        };
        let types = self.memory_properties().memory_type_count;
        if info.size == 0 {
            return refuse("an allocation has at least one byte".into());
        }
        if info.memory_type >= types {
            return refuse(format!("the device has {types} memory types"));
        }
        if info.exportable {
            let exports = &self.info().capabilities.exports;
            if !exports.contains(&HandleKind::MemoryOpaqueFd) {
                return refuse("the device exports no memory".into());
            }
        }
        Ok(Allocation::adopted(inner, memory, info, owner))
    }
}

impl Allocation {
    /// Adopts a `VkBuffer` that the application has bound to this memory at `offset`.
    ///
    /// Makes no driver call. Syncline never destroys it. `owner` is kept as long as a handle of the
    /// buffer lives, and while a submission uses it. It may be dropped on a thread of Syncline.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a size of 0, and for a buffer that ends behind the allocation.
    /// [`Error::MadeBeforeFork`] in a forked child.
    ///
    /// # Safety
    /// * `buffer` belongs to the same `VkDevice`, has `size` bytes, and is bound to this memory at
    ///   `offset`. It lives until its owner is dropped; without one, as long as the
    ///   [adopted](Device::adopt_allocation) memory.
    /// * It has the transfer usages if [`Recorder::fill_buffer`](crate::Recorder::fill_buffer) or
    ///   [`copy_buffer`](crate::Recorder::copy_buffer) take it.
    /// * With a concurrent `sharing_mode`, it may be used by the families of all queues that use it
    ///   here. With an exclusive one, queues of one family use it. If that family owns it already,
    ///   the application releases it to `VK_QUEUE_FAMILY_EXTERNAL` first, because the first
    ///   submission that uses it here acquires it from there.
    /// * In exportable memory it was created with `VkExternalMemoryBufferCreateInfo` for opaque
    ///   file descriptors.
    pub unsafe fn adopt_buffer(
        &self,
        buffer: vk::Buffer,
        offset: u64,
        size: u64,
        sharing_mode: vk::SharingMode,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Buffer> {
        self.inner().require_maker()?;
        if size == 0 || offset.checked_add(size).is_none_or(|end| end > self.size()) {
            let asked = format!("hold a buffer of {size} bytes at offset {offset}");
            let reason = format!(
                "a buffer has at least one byte, and ends within the {} bytes",
                self.size()
            );
            return Err(Error::unsupported(self.object(), asked, reason));
        }
        let concurrent = sharing_mode == vk::SharingMode::CONCURRENT;
        Ok(Buffer::adopted(
            self, buffer, offset, size, concurrent, owner,
        ))
    }
}
