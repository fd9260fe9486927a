//! Makes buffers: what memory a `VkBuffer` needs, and where it is bound.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::Arc;

use ash::vk;
use syncline_core::backend::{memory_refused, require_range, require_size};
use syncline_core::{Error, Result, error::Object};

use crate::device::application_memory::{MemoryRequest, Source};
use crate::device::inner::Inner;
use crate::device::open::Device;
use crate::device::physical::{CORE_USAGES, TRANSFERS};
use crate::memory::allocation::{Allocation, MemoryKind};
use crate::memory::buffer::Buffer;

/// A `VkBuffer` without memory, which is destroyed unless it is bound.
struct Unbound<'d> {
    device: &'d Arc<Inner>,
    raw: vk::Buffer,
    /// What the driver requires of the memory.
    needs: vk::MemoryRequirements,
    /// True if the memory must be for this buffer alone.
    needs_dedicated: bool,
    /// True if the driver prefers that.
    prefers_dedicated: bool,
}

impl Drop for Unbound<'_> {
    fn drop(&mut self) {
        if let Some(device) = self.device.for_destroy() {
            // SAFETY: created on this device, and never bound or used.
            unsafe { device.destroy_buffer(self.raw, None) };
        }
    }
}

impl Unbound<'_> {
    /// Calls `vkCreateBuffer`, and asks what memory the buffer needs.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless the size is a positive multiple of 4 that a heap has, and for
    /// a usage that is not of Vulkan 1.0. A driver error.
    fn new<'d>(
        device: &'d Device,
        size: u64,
        usage: vk::BufferUsageFlags,
        is_shared: bool,
    ) -> Result<Unbound<'d>> {
        device.inner().require_maker()?;
        require_size(device.object(), size)?;
        // No allocation may be larger than its heap (VUID-vkAllocateMemory-pAllocateInfo-01713),
        // and drivers add to sizes without checking for overflow.
        let properties = device.memory_properties();
        let heaps = properties.memory_heaps_as_slice().iter();
        if heaps.map(|heap| heap.size).max().unwrap_or(0) < size {
            return Err(device.too_large(size));
        }
        let others = usage & !CORE_USAGES;
        if !others.is_empty() {
            return Err(Error::unsupported(
                Object::new("buffer", ""),
                format!("be used as {others:?}"),
                "that needs a feature or an extension, which the device is not known to have enabled",
            ));
        }
        let (usage, handles) = match is_shared {
            true => (CORE_USAGES, vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD),
            false => (
                usage | TRANSFERS,
                vk::ExternalMemoryHandleTypeFlags::empty(),
            ),
        };
        let inner = device.inner();

        // All families of the physical device, not only those with queues on this `VkDevice`. The
        // device that imports the memory may have other queues, and must create an identical
        // buffer.
        let families = inner.families();
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(handles);
        let mut info = vk::BufferCreateInfo::default().size(size).usage(usage);
        if families.len() > 1 {
            info = info
                .sharing_mode(vk::SharingMode::CONCURRENT)
                .queue_family_indices(families);
        }
        if is_shared {
            info = info.push_next(&mut external);
        }
        // SAFETY: `info` is valid: the size is not 0, and the usages need no feature. Each family
        // is one of the physical device's and appears once. It need not have a queue
        // (VUID-VkBufferCreateInfo-sharingMode-01419). The callers have checked that the device
        // exports or imports buffers of these usages as these handles.
        let raw = unsafe { inner.raw().create_buffer(&info, None) };
        let raw = raw.map_err(|code| inner.failed(inner.object(), "vkCreateBuffer", code))?;
        let mut unbound = Unbound {
            device: inner,
            raw,
            needs: vk::MemoryRequirements::default(),
            needs_dedicated: false,
            prefers_dedicated: false,
        };
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut needs = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        let info = vk::BufferMemoryRequirementsInfo2::default().buffer(raw);
        // SAFETY: the buffer was just created on this device, and the call fills the chained
        // structures.
        unsafe {
            inner
                .raw()
                .get_buffer_memory_requirements2(&info, &mut needs)
        };
        unbound.needs = needs.memory_requirements;
        unbound.needs_dedicated = dedicated.requires_dedicated_allocation == vk::TRUE;
        unbound.prefers_dedicated = dedicated.prefers_dedicated_allocation == vk::TRUE;
        if unbound.needs.size < size {
            // The driver has rounded the size up, and it overflowed.
            return Err(device.too_large(size));
        }
        Ok(unbound)
    }

    /// Calls `vkBindBufferMemory`.
    ///
    /// # Safety
    /// The memory is of the same device. Its type, and its size and alignment from `at` on, are
    /// what the buffer needs, and it is dedicated to this buffer or to none.
    unsafe fn bind(self, allocation: Allocation, at: u64, size: u64) -> Result<Buffer> {
        let device = self.device;
        let (memory, offset) = (allocation.raw(), allocation.offset() + at);
        // SAFETY: the caller guarantees it. The buffer is bound once.
        unsafe { device.raw().bind_buffer_memory(self.raw, memory, offset) }
            .map_err(|code| device.failed(device.object(), "vkBindBufferMemory", code))?;
        let buffer = Buffer::made(allocation, self.raw, at, size);
        // The bound buffer destroys it now.
        std::mem::forget(self);
        Ok(buffer)
    }
}

impl Device {
    /// Creates a zeroed buffer in host-visible, coherent memory, which stays mapped.
    ///
    /// The memory is cached if the device has such memory. A small buffer has a part of a block of
    /// memory ([`Allocation::offset`]). Transfers are always among the usages.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless the size is a positive multiple of 4 that a heap has. Also for
    /// a usage that is not of Vulkan 1.0. Other usages need features or extensions that the device
    /// may not have enabled. A driver error.
    pub fn host_buffer(&self, size: u64, usage: vk::BufferUsageFlags) -> Result<Buffer> {
        self.make_buffer(size, usage, MemoryKind::Host)
    }

    /// Creates a buffer in device-local memory that cannot be exported.
    ///
    /// Its contents are undefined at first: the memory may be that of a dropped buffer. A small
    /// buffer has a part of a block of memory ([`Allocation::offset`]). Transfers are always among
    /// the usages.
    ///
    /// # Errors
    /// Same errors as [`Device::host_buffer`].
    pub fn device_buffer(&self, size: u64, usage: vk::BufferUsageFlags) -> Result<Buffer> {
        self.make_buffer(size, usage, MemoryKind::Device)
    }

    /// The memory types that shared buffers can have, as bits.
    pub(crate) fn types_of_shared_buffers(&self) -> Result<u32> {
        // All buffers of the same usages have the same types (Vulkan 1.3, 12.7).
        let unbound = Unbound::new(self, 4, vk::BufferUsageFlags::empty(), true)?;
        Ok(unbound.needs.memory_type_bits)
    }

    /// Makes a buffer in an allocation of its own, or in a part of a block of private memory.
    ///
    /// Does not consume an imported handle.
    pub(crate) fn make_buffer(
        &self,
        size: u64,
        usage: vk::BufferUsageFlags,
        kind: MemoryKind<'_>,
    ) -> Result<Buffer> {
        let unbound = Unbound::new(self, size, usage, kind.is_shared())?;
        let (needed, mut allocated) = (unbound.needs.size, unbound.needs.size);
        let dedicated = match kind {
            // As the exporter allocated it.
            MemoryKind::Imported(handle) => handle.info().dedicated,
            // Always dedicated, because exporters and importers agree on dedicated memory more
            // often.
            MemoryKind::Exportable => true,
            MemoryKind::Device | MemoryKind::Host => {
                unbound.needs_dedicated || unbound.prefers_dedicated
            }
        };
        if let MemoryKind::Imported(handle) = kind {
            let refused = |reason: String| memory_refused(self.object(), handle, reason);
            if handle.info().size < needed {
                return Err(refused(format!(
                    "a buffer of {size} bytes needs {needed} bytes of it"
                )));
            }
            // VUID-VkMemoryDedicatedAllocateInfo-buffer-02965.
            if handle.info().dedicated && handle.info().size != needed {
                return Err(refused(format!(
                    "it was made for one buffer alone, and a buffer of {size} bytes has {needed} bytes"
                )));
            }
            if unbound.needs_dedicated && !handle.info().dedicated {
                return Err(refused("it was not made for one buffer alone".into()));
            }
            allocated = handle.info().size;
        }
        let allowed = unbound.needs.memory_type_bits;
        let memory_type = match kind {
            MemoryKind::Imported(handle) => {
                let index = self.imported_type(handle, || Ok(allowed))?;
                if allowed & (1 << index) == 0 {
                    let reason = format!("a buffer cannot have its memory type, {index}");
                    return Err(memory_refused(self.object(), handle, reason));
                }
                index
            }
            _ => self.memory_type(allowed, allocated, kind)?,
        };
        let is_private = !kind.is_shared();
        if is_private
            && !dedicated
            && let Some(part) = Allocation::from_pool(self, &unbound.needs, memory_type, kind)
        {
            // SAFETY: a part of this device's memory, for this buffer, as the buffer needs it.
            return unsafe { unbound.bind(part, 0, size) };
        }
        // A private allocation is for this buffer alone.
        let alone = (is_private || dedicated).then_some(unbound.raw);
        // SAFETY: the size is at least what the buffer needs, and exactly that if it is dedicated.
        // The memory type is one that it allows.
        let allocation =
            unsafe { Allocation::allocate(self, allocated, memory_type, alone, kind, None) }?;
        // SAFETY: allocated just now, for this buffer, on this device.
        unsafe { unbound.bind(allocation, 0, size) }
    }
}

impl Buffer {
    /// Makes a private buffer in memory of an application's source.
    pub(crate) fn from_source(
        device: &Device,
        source: &Arc<Source>,
        size: u64,
        usage: vk::BufferUsageFlags,
        kind: MemoryKind<'_>,
    ) -> Result<Self> {
        let unbound = Unbound::new(device, size, usage, false)?;
        let mut needs = unbound.needs;
        let memory_type = device.memory_type(needs.memory_type_bits, needs.size, kind)?;
        needs.memory_type_bits = 1 << memory_type;
        needs.alignment = needs
            .alignment
            .max(device.inner().memory_pool().alignment());
        let request = MemoryRequest {
            requirements: needs,
            buffer: unbound.raw,
            dedicated: unbound.needs_dedicated || unbound.prefers_dedicated,
            host: matches!(kind, MemoryKind::Host),
        };
        let allocation = Allocation::from_source(device, source, &request, kind)?;
        // SAFETY: the source guarantees that the range is what the buffer needs.
        unsafe { unbound.bind(allocation, 0, size) }
    }
}

impl Allocation {
    /// Creates a `VkBuffer` of `size` bytes at `offset`, which must be aligned as the driver says.
    ///
    /// In shared memory it has all usages of Vulkan 1.0. Elsewhere transfers are always among the
    /// usages. Buffers may overlap.
    ///
    /// # Errors
    /// Same errors as [`Device::host_buffer`]. [`Error::Unsupported`] for a dedicated allocation, a
    /// memory type that such a buffer cannot have, an offset that is not aligned, and for a buffer
    /// that needs more bytes than there are behind the offset.
    pub fn buffer(&self, offset: u64, size: u64, usage: vk::BufferUsageFlags) -> Result<Buffer> {
        let refuse = |reason: String| {
            let asked = format!("hold a buffer of {size} bytes at offset {offset}");
            Err(Error::unsupported(self.object(), asked, reason))
        };
        if self.is_dedicated() {
            return refuse("it is for one buffer or image alone".into());
        }
        let device = self.device();
        let unbound = Unbound::new(&device, size, usage, self.is_shared())?;
        let vk::MemoryRequirements {
            size: needed,
            alignment,
            memory_type_bits,
        } = unbound.needs;
        if unbound.needs_dedicated {
            return refuse("the driver wants an allocation for such a buffer alone".into());
        }
        if memory_type_bits & (1 << self.memory_type()) == 0 {
            let memory_type = self.memory_type();
            return refuse(format!(
                "such a buffer cannot have memory type {memory_type}"
            ));
        }
        if offset
            .checked_add(needed)
            .is_none_or(|end| end > self.size())
        {
            let has = self.size();
            return refuse(format!(
                "it needs {needed} bytes, and the allocation has {has}"
            ));
        }
        // A part of a block need not be as aligned as this buffer must be.
        if !(self.offset() + offset).is_multiple_of(alignment) {
            return refuse(format!("such a buffer begins at a multiple of {alignment}"));
        }
        // SAFETY: as checked: the memory type, the size and the alignment. It is not dedicated.
        unsafe { unbound.bind(self.clone(), offset, size) }
    }

    /// Same as [`Allocation::buffer`], for an offset that is not aligned.
    ///
    /// The `VkBuffer` begins at the last aligned offset before. The result is a range of it.
    ///
    /// # Errors
    /// Same errors as [`Allocation::buffer`], and [`Error::Unsupported`] unless both numbers are
    /// multiples of 4.
    pub fn range(&self, offset: u64, size: u64, usage: vk::BufferUsageFlags) -> Result<Buffer> {
        require_range(self.object(), self.size(), offset, size)?;
        let device = self.device();
        // All buffers of one usage have one alignment (Vulkan 1.3, 12.7).
        let alignment = Unbound::new(&device, size, usage, self.is_shared())?
            .needs
            .alignment;
        // A part of a block may begin less aligned. The buffer at its start is refused then.
        let before = ((self.offset() + offset) % alignment).min(offset);
        let whole = self.buffer(offset - before, size + before, usage)?;
        whole.view(before, size)
    }
}
