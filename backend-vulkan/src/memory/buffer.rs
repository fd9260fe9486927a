//! Buffers, and ranges of them.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ash::vk;
use smallvec::SmallVec;
use syncline_core::backend::{TeardownGuard, memory_refused, require_range, require_size};
use syncline_core::internal::DroppedByMaker;
use syncline_core::{Error, Result, error::Object};

use crate::device::application_memory::{MemoryRequest, Source};
use crate::device::inner::Inner;
use crate::device::open::Device;
use crate::device::physical::{CORE_USAGES, TRANSFERS};
use crate::memory::allocation::{Allocation, MemoryKind};
use crate::memory::ownership::OwnershipBarrier;

/// A range of a `VkBuffer`, usually all of it. Cheap to clone.
///
/// All queue families may use a buffer of Syncline at once, without transfers of ownership. The
/// last handle destroys the `VkBuffer`, and frees its [`Allocation`] if nothing else is in it.
#[derive(Clone)]
pub struct Buffer {
    bound: Arc<Bound>,
    /// Where the range begins in the `VkBuffer`.
    offset: u64,
    size: u64,
}

/// A `VkBuffer` in its memory.
struct Bound {
    allocation: Allocation,
    object: Object,
    raw: vk::Buffer,
    /// Where it begins in the allocation.
    at: u64,
    size: u64,
    concurrent: bool,
    ownership: Ownership,
}

/// What destroys the `VkBuffer`.
enum Ownership {
    Ours,
    /// The application. The owner, if there is one, is dropped here.
    Theirs(Option<DroppedByMaker<Arc<dyn Any + Send + Sync>>>),
}

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

/// The parts of `own` before and after `other`. Each may be empty.
fn outside(own: Range<u64>, other: Range<u64>) -> [Range<u64>; 2] {
    [
        own.start..own.end.min(other.start),
        own.start.max(other.end)..own.end,
    ]
}

impl Drop for Unbound<'_> {
    fn drop(&mut self) {
        if let Some(device) = self.device.for_destroy() {
            // SAFETY: created on this device, and never bound or used.
            unsafe { device.destroy_buffer(self.raw, None) };
        }
    }
}

impl Buffer {
    /// The raw buffer, valid while a handle lives. The range begins at [`Buffer::offset`].
    #[must_use]
    pub fn raw(&self) -> vk::Buffer {
        self.bound.raw
    }

    /// Where the range begins in the `VkBuffer`, in bytes. 0 unless it is a [`Buffer::view`].
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The size of the range in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The memory that the buffer is bound to.
    #[must_use]
    pub fn allocation(&self) -> &Allocation {
        &self.bound.allocation
    }

    /// Where the range begins in its [`Allocation`], in bytes.
    #[must_use]
    pub fn offset_in_allocation(&self) -> u64 {
        self.bound.at + self.offset
    }

    /// A range of this range. It keeps the `VkBuffer` and its memory alive.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless both numbers are multiples of 4, `size` is positive, and the
    /// range ends within this one.
    pub fn view(&self, offset: u64, size: u64) -> Result<Self> {
        require_range(self.object(), self.size, offset, size)?;
        let start = self.offset + offset;
        Ok(self.part(start..start + size))
    }

    fn part(&self, range: Range<u64>) -> Self {
        Self {
            bound: self.bound.clone(),
            offset: range.start,
            size: range.end - range.start,
        }
    }

    const fn end(&self) -> u64 {
        self.offset + self.size
    }

    /// The parts of this range that `other` does not have. At most two.
    pub(crate) fn without(&self, other: &Self) -> SmallVec<[Self; 2]> {
        if self.raw() != other.raw() {
            return SmallVec::from_iter([self.clone()]);
        }
        let parts = outside(self.offset..self.end(), other.offset..other.end());
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.map(|part| self.part(part)).collect()
    }

    /// The words, if the memory is mapped, without an incomplete word at the end.
    ///
    /// Writes of the device are visible once a point after them is reached.
    #[must_use]
    pub fn as_words(&self) -> Option<&[AtomicU32]> {
        let words = usize::try_from(self.size / 4).ok()?;
        self.allocation().words(self.offset_in_allocation(), words)
    }

    /// The name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.bound.object
    }

    /// What a submission keeps of the buffer.
    pub(crate) fn kept(&self) -> Arc<dyn Any + Send + Sync> {
        self.bound.clone()
    }

    pub(crate) fn device(&self) -> &Arc<Inner> {
        self.allocation().inner()
    }

    /// The size for `vkCmdFillBuffer`, which takes whole words unless it fills up to the end.
    pub(crate) fn size_to_fill(&self) -> u64 {
        if self.end() == self.bound.size {
            vk::WHOLE_SIZE
        } else {
            self.size
        }
    }

    /// True if the memory was exported or imported, so that another API or `VkDevice` may own it.
    ///
    /// The application's own commands acquire such a buffer from `VK_QUEUE_FAMILY_EXTERNAL` first,
    /// with [`Buffer::acquire_barrier`], and release it at the end, with
    /// [`Buffer::release_barrier`]. [`Recorder::acquire`](crate::Recorder::acquire) does both.
    #[must_use]
    pub fn is_exported(&self) -> bool {
        self.allocation().is_shared()
    }

    /// True if the first `size` bytes of both ranges may be the same memory, in part.
    ///
    /// Imported memory may be that of any other exported or imported allocation. Drivers do not
    /// tell whether two handles hold the same memory.
    pub(crate) fn may_alias(&self, other: &Self, size: u64) -> bool {
        if self.allocation().raw() != other.allocation().raw() {
            return self.allocation().may_alias(other.allocation());
        }
        let start = |of: &Self| of.allocation().offset() + of.offset_in_allocation();
        let (one, two) = (start(self), start(other));
        one < two + size && two < one + size
    }

    /// The barrier that acquires the range from the other API, for queues of `family`.
    ///
    /// It belongs at the beginning of the application's own commands. Returns `None` for a buffer
    /// that is not exported, which needs no barrier.
    #[must_use]
    pub fn acquire_barrier(&self, family: u32) -> Option<OwnershipBarrier> {
        let range = self.range_to_transfer()?;
        let family = self.family_in_transfers(family);
        Some(OwnershipBarrier::acquire(range, family))
    }

    /// The barrier that releases the range to the other API, at the end of the commands.
    ///
    /// See [`Buffer::acquire_barrier`].
    #[must_use]
    pub fn release_barrier(&self, family: u32) -> Option<OwnershipBarrier> {
        let range = self.range_to_transfer()?;
        let family = self.family_in_transfers(family);
        Some(OwnershipBarrier::release(range, family))
    }

    fn range_to_transfer(&self) -> Option<vk::BufferMemoryBarrier<'static>> {
        let range = vk::BufferMemoryBarrier::default()
            .buffer(self.raw())
            .offset(self.offset)
            .size(self.size);
        self.is_exported().then_some(range)
    }

    /// The queue family for a transfer of ownership. A concurrent buffer belongs to no family.
    fn family_in_transfers(&self, family: u32) -> u32 {
        if self.bound.concurrent {
            vk::QUEUE_FAMILY_IGNORED
        } else {
            family
        }
    }

    /// True if queues of several families use the buffer without transfers of ownership.
    ///
    /// A buffer of Syncline is concurrent if the physical device has more than one family for
    /// graphics, compute or transfer, whatever queues the `VkDevice` has. In transfers to or from
    /// another API, the family of a concurrent buffer is `VK_QUEUE_FAMILY_IGNORED`.
    #[must_use]
    pub fn is_concurrent(&self) -> bool {
        self.bound.concurrent
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
        let bound = Bound {
            allocation,
            object: Object::new("buffer", ""),
            raw: self.raw,
            at,
            size,
            concurrent: device.families().len() > 1,
            ownership: Ownership::Ours,
        };
        // The bound buffer destroys it now.
        std::mem::forget(self);
        Ok(Buffer {
            bound: Arc::new(bound),
            offset: 0,
            size,
        })
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
            MemoryKind::Imported(handle) => handle.dedicated(),
            // Always dedicated, because exporters and importers agree on dedicated memory more
            // often.
            MemoryKind::Exportable => true,
            MemoryKind::Device | MemoryKind::Host => {
                unbound.needs_dedicated || unbound.prefers_dedicated
            }
        };
        if let MemoryKind::Imported(handle) = kind {
            let refused = |reason: String| memory_refused(self.object(), handle, reason);
            if handle.size() < needed {
                return Err(refused(format!(
                    "a buffer of {size} bytes needs {needed} bytes of it"
                )));
            }
            // VUID-VkMemoryDedicatedAllocateInfo-buffer-02965.
            if handle.dedicated() && handle.size() != needed {
                return Err(refused(format!(
                    "it was made for one buffer alone, and a buffer of {size} bytes has {needed} bytes"
                )));
            }
            if unbound.needs_dedicated && !handle.dedicated() {
                return Err(refused("it was not made for one buffer alone".into()));
            }
            allocated = handle.size();
        }
        let allowed = unbound.needs.memory_type_bits;
        let memory_type = match kind {
            MemoryKind::Imported(handle) => {
                let index = self.imported_type(handle)?;
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
        let bound = Bound {
            allocation: self.clone(),
            object: Object::new("buffer", "adopted"),
            raw: buffer,
            at: offset,
            size,
            concurrent: sharing_mode == vk::SharingMode::CONCURRENT,
            ownership: Ownership::Theirs(owner.map(DroppedByMaker::new)),
        };
        Ok(Buffer {
            bound: Arc::new(bound),
            offset: 0,
            size,
        })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        match &mut self.ownership {
            Ownership::Ours => {
                if let Some(device) = self.allocation.inner().for_destroy() {
                    // SAFETY: created here on this device, which is alive. Nothing uses it, because
                    // each submission in flight keeps an `Arc` of this. The memory is freed after
                    // this.
                    unsafe { device.destroy_buffer(self.raw, None) };
                }
            }
            Ownership::Theirs(owner) => {
                if let Some(owner) = owner.take() {
                    TeardownGuard::drop_owner(owner);
                }
            }
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.object(), self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_another_is_what_is_before_and_after() {
        type Parts = &'static [(u64, u64)];
        let cases: [(Range<u64>, Parts); 8] = [
            (0..4, &[(8, 16)]),
            (0..8, &[(8, 16)]),
            (4..12, &[(12, 16)]),
            (8..16, &[]),
            (4..20, &[]),
            (10..12, &[(8, 10), (12, 16)]),
            (12..20, &[(8, 12)]),
            (16..20, &[(8, 16)]),
        ];
        for (other, expected) in cases {
            let parts = outside(8..16, other.clone()).into_iter();
            let parts = parts.filter(|part| !part.is_empty());
            let parts: Vec<_> = parts.map(|part| (part.start, part.end)).collect();
            assert_eq!(parts, expected, "without {other:?}");
        }
    }
}
