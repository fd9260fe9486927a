//! Transfers of ownership between queue families and another API, as barriers.

use ash::vk;

/// All reads and writes.
const ALL_ACCESS: vk::AccessFlags = vk::AccessFlags::from_raw(
    vk::AccessFlags::MEMORY_READ.as_raw() | vk::AccessFlags::MEMORY_WRITE.as_raw(),
);

/// A barrier that acquires a buffer from another API, or releases it to that API.
///
/// Converts into a `VkBufferMemoryBarrier2` for `vkCmdPipelineBarrier2`, with all stages, which
/// needs the feature `synchronization2`. Also converts into a `VkBufferMemoryBarrier` for
/// `vkCmdPipelineBarrier`. Pass `VK_PIPELINE_STAGE_ALL_COMMANDS_BIT` for both sides there.
///
/// See the ownership transfer to `VK_QUEUE_FAMILY_EXTERNAL` (Vulkan 1.3, 7.7.4).
#[derive(Debug, Clone, Copy)]
pub struct OwnershipBarrier(vk::BufferMemoryBarrier<'static>);

impl OwnershipBarrier {
    /// The acquire of a range, whose `buffer`, `offset` and `size` are set, for `family`.
    pub(crate) fn acquire(range: vk::BufferMemoryBarrier<'static>, family: u32) -> Self {
        Self(
            range
                .dst_access_mask(ALL_ACCESS)
                .src_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL)
                .dst_queue_family_index(family),
        )
    }

    /// The release of a range. See [`OwnershipBarrier::acquire`].
    pub(crate) fn release(range: vk::BufferMemoryBarrier<'static>, family: u32) -> Self {
        Self(
            range
                .src_access_mask(ALL_ACCESS)
                .src_queue_family_index(family)
                .dst_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL),
        )
    }
}

impl From<OwnershipBarrier> for vk::BufferMemoryBarrier<'static> {
    fn from(OwnershipBarrier(barrier): OwnershipBarrier) -> Self {
        barrier
    }
}

/// The accesses of Vulkan 1.0 have the same bits in both types.
fn access(of: vk::AccessFlags) -> vk::AccessFlags2 {
    vk::AccessFlags2::from_raw(of.as_raw().into())
}

impl From<OwnershipBarrier> for vk::BufferMemoryBarrier2<'static> {
    fn from(OwnershipBarrier(barrier): OwnershipBarrier) -> Self {
        Self::default()
            .src_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
            .src_access_mask(access(barrier.src_access_mask))
            .dst_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
            .dst_access_mask(access(barrier.dst_access_mask))
            .src_queue_family_index(barrier.src_queue_family_index)
            .dst_queue_family_index(barrier.dst_queue_family_index)
            .buffer(barrier.buffer)
            .offset(barrier.offset)
            .size(barrier.size)
    }
}

/// A barrier that acquires an image from another API, or releases it to that API.
///
/// It changes the layout as well. Converts into a `VkImageMemoryBarrier2` or a
/// `VkImageMemoryBarrier`, which are used like those of [`OwnershipBarrier`].
#[derive(Debug, Clone, Copy)]
pub struct ImageBarrier(vk::ImageMemoryBarrier<'static>);

impl ImageBarrier {
    /// The acquire of an image, whose range and layouts are set, for `family`.
    pub(crate) fn acquire(range: vk::ImageMemoryBarrier<'static>, family: u32) -> Self {
        Self(
            range
                .dst_access_mask(ALL_ACCESS)
                .src_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL)
                .dst_queue_family_index(family),
        )
    }

    /// The release of an image. See [`ImageBarrier::acquire`].
    pub(crate) fn release(range: vk::ImageMemoryBarrier<'static>, family: u32) -> Self {
        Self(
            range
                .src_access_mask(ALL_ACCESS)
                .src_queue_family_index(family)
                .dst_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL),
        )
    }

    /// A change of the layout alone. See [`ImageBarrier::acquire`].
    pub(crate) fn within(range: vk::ImageMemoryBarrier<'static>) -> Self {
        Self(
            range
                .src_access_mask(ALL_ACCESS)
                .dst_access_mask(ALL_ACCESS)
                .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED),
        )
    }
}

impl From<ImageBarrier> for vk::ImageMemoryBarrier<'static> {
    fn from(ImageBarrier(barrier): ImageBarrier) -> Self {
        barrier
    }
}

impl From<ImageBarrier> for vk::ImageMemoryBarrier2<'static> {
    fn from(ImageBarrier(barrier): ImageBarrier) -> Self {
        Self::default()
            .src_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
            .src_access_mask(access(barrier.src_access_mask))
            .dst_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
            .dst_access_mask(access(barrier.dst_access_mask))
            .old_layout(barrier.old_layout)
            .new_layout(barrier.new_layout)
            .src_queue_family_index(barrier.src_queue_family_index)
            .dst_queue_family_index(barrier.dst_queue_family_index)
            .image(barrier.image)
            .subresource_range(barrier.subresource_range)
    }
}

#[cfg(test)]
mod tests {
    use ash::vk::{AccessFlags2, Handle as _, PipelineStageFlags2, QUEUE_FAMILY_EXTERNAL};

    use super::*;

    #[test]
    fn both_forms_transfer_the_same_range() {
        let range = vk::BufferMemoryBarrier::default()
            .buffer(vk::Buffer::from_raw(9))
            .offset(16)
            .size(64);
        let all = AccessFlags2::MEMORY_READ | AccessFlags2::MEMORY_WRITE;
        let (none, external) = (AccessFlags2::empty(), QUEUE_FAMILY_EXTERNAL);
        for (barrier, access, families) in [
            (
                OwnershipBarrier::acquire(range, 3),
                (none, all),
                (external, 3),
            ),
            (
                OwnershipBarrier::release(range, 3),
                (all, none),
                (3, external),
            ),
        ] {
            let older = vk::BufferMemoryBarrier::from(barrier);
            let newer = vk::BufferMemoryBarrier2::from(barrier);
            assert_eq!((newer.src_access_mask, newer.dst_access_mask), access);
            let (from, to) = (newer.src_queue_family_index, newer.dst_queue_family_index);
            assert_eq!((from, to), families);
            assert_eq!(newer.src_stage_mask, PipelineStageFlags2::ALL_COMMANDS);
            assert_eq!(newer.dst_stage_mask, PipelineStageFlags2::ALL_COMMANDS);
            assert_eq!(
                (newer.buffer, newer.offset, newer.size),
                (older.buffer, older.offset, older.size)
            );
            assert_eq!(
                (
                    u64::from(older.src_access_mask.as_raw()),
                    older.src_queue_family_index
                ),
                (newer.src_access_mask.as_raw(), from)
            );
            assert_eq!((older.offset, older.size), (16, 64));
        }
    }
    #[test]
    fn both_forms_transfer_the_same_image() {
        use vk::ImageLayout as L;
        let range = vk::ImageSubresourceRange::default()
            .aspect_mask(vk::ImageAspectFlags::DEPTH)
            .level_count(4)
            .layer_count(1);
        let whole = vk::ImageMemoryBarrier::default()
            .image(vk::Image::from_raw(9))
            .subresource_range(range)
            .old_layout(L::GENERAL)
            .new_layout(L::TRANSFER_DST_OPTIMAL);
        let all = AccessFlags2::MEMORY_READ | AccessFlags2::MEMORY_WRITE;
        let (none, external, same) = (
            AccessFlags2::empty(),
            QUEUE_FAMILY_EXTERNAL,
            vk::QUEUE_FAMILY_IGNORED,
        );
        for (barrier, access, families) in [
            (ImageBarrier::acquire(whole, 3), (none, all), (external, 3)),
            (ImageBarrier::release(whole, 3), (all, none), (3, external)),
            (ImageBarrier::within(whole), (all, all), (same, same)),
        ] {
            let older = vk::ImageMemoryBarrier::from(barrier);
            let newer = vk::ImageMemoryBarrier2::from(barrier);
            assert_eq!((newer.src_access_mask, newer.dst_access_mask), access);
            let (from, to) = (newer.src_queue_family_index, newer.dst_queue_family_index);
            assert_eq!((from, to), families);
            let (from, to) = (older.src_queue_family_index, older.dst_queue_family_index);
            assert_eq!((from, to), families);
            assert_eq!(newer.src_stage_mask, PipelineStageFlags2::ALL_COMMANDS);
            assert_eq!(newer.dst_stage_mask, PipelineStageFlags2::ALL_COMMANDS);
            let layouts = (L::GENERAL, L::TRANSFER_DST_OPTIMAL);
            assert_eq!((older.old_layout, older.new_layout), layouts);
            assert_eq!((newer.old_layout, newer.new_layout), layouts);
            let image = vk::Image::from_raw(9);
            assert_eq!((older.image, newer.image), (image, image));
            assert_eq!(older.subresource_range.level_count, 4);
            assert_eq!(newer.subresource_range.aspect_mask, range.aspect_mask);
        }
    }
}
