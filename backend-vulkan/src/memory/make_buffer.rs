//! Makes buffers: what memory a `VkBuffer` needs, and where it is bound.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::Arc;

use ash::vk;
use syncline_core::backend::kit::{require_range, require_size};
use syncline_core::{Error, Result, error::Object};

use crate::device::application_memory::{MemoryRequest, Source};
use crate::device::open::Device;
use crate::device::physical::{CORE_USAGES, TRANSFERS};
use crate::memory::allocation::{Allocation, MemoryKind};
use crate::memory::buffer::Buffer;
use crate::memory::unbound::{Resource, Unbound};

/// A `VkBuffer` without memory, and its size.
struct UnboundBuffer<'d> {
    unbound: Unbound<'d>,
    raw: vk::Buffer,
    size: u64,
}

impl UnboundBuffer<'_> {
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
    ) -> Result<UnboundBuffer<'d>> {
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
        // SAFETY: just created on this device.
        let unbound = unsafe { Unbound::new(device, Resource::Buffer(raw)) };
        if unbound.needs().memory().size < size {
            // The driver has rounded the size up, and it overflowed.
            return Err(device.too_large(size));
        }
        Ok(UnboundBuffer { unbound, raw, size })
    }

    /// Binds it to the memory at `at`.
    ///
    /// # Safety
    /// Same as [`Unbound::bind`].
    unsafe fn bind(self, allocation: Allocation, at: u64) -> Result<Buffer> {
        // SAFETY: the caller guarantees it.
        unsafe { self.unbound.bind(&allocation, at) }?;
        let buffer = Buffer::made(allocation, self.raw, at, self.size);
        self.unbound.into_bound();
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
        let made = UnboundBuffer::new(self, 4, vk::BufferUsageFlags::empty(), true)?;
        Ok(made.unbound.needs().memory().memory_type_bits)
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
        let made = UnboundBuffer::new(self, size, usage, kind.is_shared())?;
        let allocation = made.unbound.allocate(kind)?;
        // SAFETY: allocated just now, for this buffer, on this device.
        unsafe { made.bind(allocation, 0) }
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
        let made = UnboundBuffer::new(device, size, usage, false)?;
        let of_driver = made.unbound.needs();
        let mut needs = *of_driver.memory();
        let memory_type = device.memory_type(needs.memory_type_bits, needs.size, kind)?;
        needs.memory_type_bits = 1 << memory_type;
        needs.alignment = needs
            .alignment
            .max(device.inner().memory_pool().alignment());
        let request = MemoryRequest {
            requirements: needs,
            buffer: made.raw,
            dedicated: of_driver.is_better_dedicated(),
            host: matches!(kind, MemoryKind::Host),
        };
        let allocation = Allocation::from_source(device, source, &request, kind)?;
        // SAFETY: the source guarantees that the range is what the buffer needs.
        unsafe { made.bind(allocation, 0) }
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
        let refuse = |reason| {
            let asked = format!("hold a buffer of {size} bytes at offset {offset}");
            Error::unsupported(self.object(), asked, reason)
        };
        let device = self.device();
        let made = UnboundBuffer::new(&device, size, usage, self.is_shared())?;
        made.unbound.fits(self, offset).map_err(refuse)?;
        // SAFETY: as checked: the memory type, the size and the alignment. It is not dedicated.
        unsafe { made.bind(self.clone(), offset) }
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
        let sample = UnboundBuffer::new(&device, size, usage, self.is_shared())?;
        let alignment = sample.unbound.needs().memory().alignment;
        // A part of a block may begin less aligned. The buffer at its start is refused then.
        let before = ((self.offset() + offset) % alignment).min(offset);
        let whole = self.buffer(offset - before, size + before, usage)?;
        whole.view(before, size)
    }
}
