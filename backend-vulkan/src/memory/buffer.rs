//! Buffers, and ranges of them.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ash::vk;
use smallvec::SmallVec;
#[allow(unused_imports, reason = "for links, also in the facade")]
use syncline_core::Error;
use syncline_core::backend::kit::require_range;
use syncline_core::{Result, error::Object};

use crate::device::inner::Inner;
use crate::memory::allocation::Allocation;
use crate::memory::image::Image;
use crate::memory::ownership::OwnershipBarrier;
use crate::memory::unbound::{Ownership, Resource};

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

/// True if both have bytes in common.
const fn meet(one: &Range<u64>, two: &Range<u64>) -> bool {
    one.start < two.end && two.start < one.end
}

/// The parts of `own` before and after `other`. Each may be empty.
fn outside(own: Range<u64>, other: Range<u64>) -> [Range<u64>; 2] {
    [
        own.start..own.end.min(other.start),
        own.start.max(other.end)..own.end,
    ]
}

impl Buffer {
    /// A buffer of Syncline, which is bound to the memory at `at`. The last handle destroys it.
    pub(crate) fn made(allocation: Allocation, raw: vk::Buffer, at: u64, size: u64) -> Self {
        Self::whole(Bound {
            concurrent: allocation.inner().families().len() > 1,
            allocation,
            object: Object::new("buffer", ""),
            raw,
            at,
            size,
            ownership: Ownership::Ours,
        })
    }

    /// A buffer of the application, which lives as long as `owner`.
    pub(crate) fn adopted(
        allocation: &Allocation,
        raw: vk::Buffer,
        at: u64,
        size: u64,
        concurrent: bool,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        Self::whole(Bound {
            allocation: allocation.clone(),
            object: Object::new("buffer", "adopted"),
            raw,
            at,
            size,
            concurrent,
            ownership: Ownership::theirs(owner),
        })
    }

    fn whole(bound: Bound) -> Self {
        Self {
            size: bound.size,
            bound: Arc::new(bound),
            offset: 0,
        }
    }

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

    /// The bytes of the `VkDeviceMemory` in which the range lies.
    fn in_memory(&self) -> Range<u64> {
        let start = self.allocation().offset() + self.offset_in_allocation();
        start..start + self.size
    }

    /// True if both ranges have bytes of one `VkDeviceMemory` in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.allocation().raw() == other.allocation().raw()
            && meet(&self.in_memory(), &other.in_memory())
    }

    /// The parts of this range whose memory `other` does not have. At most two.
    pub(crate) fn without(&self, other: &Self) -> SmallVec<[Self; 2]> {
        if !self.overlaps(other) {
            return SmallVec::from_iter([self.clone()]);
        }
        let start = self.in_memory().start;
        let parts = outside(self.in_memory(), other.in_memory()).into_iter();
        let parts = parts.filter(|part| !part.is_empty());
        let at = |of: u64| of - start + self.offset;
        parts
            .map(|part| self.part(at(part.start)..at(part.end)))
            .collect()
    }

    /// The words, if the memory is mapped, without an incomplete word at the end.
    ///
    /// Writes of the device are visible once a point after them is reached. Your own command
    /// buffers need a barrier to `VK_PIPELINE_STAGE_HOST_BIT` for that. The recorder makes it.
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
    pub fn is_shared(&self) -> bool {
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
        self.part(self.offset..self.offset + size)
            .overlaps(&other.part(other.offset..other.offset + size))
    }

    /// Why no copy is made between the first `size` bytes and an image, if there is a reason.
    ///
    /// They have bytes in common, or may have them: see [`Buffer::may_alias`]. Memory of one
    /// resource alone has no bytes of another one.
    pub(crate) fn alias_of_image(&self, image: &Image, size: u64) -> Option<String> {
        let (own, theirs) = (self.allocation(), image.allocation());
        if own.raw() != theirs.raw() {
            let alone = own.is_dedicated() || theirs.is_dedicated();
            let reason = "one of them was imported, and both may use the same memory";
            return (!alone && own.may_alias(theirs)).then(|| reason.into());
        }
        let (at, image) = (self.in_memory().start, image.in_memory());
        let copied = at..at + size;
        meet(&copied, &image).then(|| {
            format!(
                "they overlap in their memory: the image has bytes {} to {}, the buffer {} to {}",
                image.start, image.end, copied.start, copied.end
            )
        })
    }

    /// The barrier that acquires the range from the other API, for queues of `family`.
    ///
    /// It belongs at the beginning of the application's own commands. Returns `None` for a buffer
    /// that is not shared, which needs no barrier.
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
        self.is_shared().then_some(range)
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

impl Drop for Bound {
    fn drop(&mut self) {
        let (raw, device) = (Resource::Buffer(self.raw), self.allocation.inner());
        // SAFETY: created on this device. Nothing uses it, because each submission in flight keeps
        // an `Arc` of this. The memory is freed after this.
        unsafe { self.ownership.end(raw, device) };
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
