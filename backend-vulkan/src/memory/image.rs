//! Images that another API or another `VkDevice` may use too.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use ash::vk;
use syncline_core::image::{ImageInfo, ImageUsage};
use syncline_core::{Error, Result, error::Object};

use crate::device::inner::Inner;
use crate::memory::allocation::Allocation;
use crate::memory::ownership::ImageBarrier;
use crate::memory::unbound::{Ownership, Resource};

/// Whether the acquisition of an image keeps its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Keeps what the other API has left.
    Keep,
    /// The contents are undefined afterwards. The first submission that uses a new image says so.
    Discard,
}

/// A `VkImage` in shared memory. Cheap to clone.
///
/// Between submissions it has the layout `VK_IMAGE_LAYOUT_GENERAL` and belongs to
/// `VK_QUEUE_FAMILY_EXTERNAL`. So submissions of any queue family can acquire it
/// ([`Recorder::acquire_image`](crate::Recorder::acquire_image)). The last handle destroys the
/// `VkImage`, and frees its [`Allocation`] if nothing else is in it.
#[derive(Clone)]
pub struct Image(Arc<Bound>);

/// Stands for an image that no submission here has acquired.
const ELSEWHERE: vk::ImageLayout = vk::ImageLayout::PREINITIALIZED;

/// A `VkImage` in its memory.
struct Bound {
    allocation: Allocation,
    object: Object,
    raw: vk::Image,
    /// Where it begins in the allocation.
    at: u64,
    /// The bytes that the driver requires for it.
    size: u64,
    info: ImageInfo,
    /// The layout that the last submission here has left it in, before the release.
    ///
    /// [`ELSEWHERE`] before the first submission.
    left_in: AtomicI32,
    /// False until a submission has discarded the contents of a new image.
    ///
    /// The imports of an image within this process share it.
    has_contents: Arc<AtomicBool>,
    ownership: Ownership,
}

impl Image {
    /// An image of Syncline, which is bound to the memory at `place`. The last handle destroys it.
    ///
    /// `is_import` says that the memory may have contents of another device.
    pub(crate) fn made(
        allocation: Allocation,
        raw: vk::Image,
        place: Range<u64>,
        info: ImageInfo,
        is_import: bool,
    ) -> Self {
        Self(Arc::new(Bound {
            allocation,
            object: Object::new("image", ""),
            raw,
            at: place.start,
            size: place.end - place.start,
            info,
            left_in: AtomicI32::new(ELSEWHERE.as_raw()),
            has_contents: Arc::new(AtomicBool::new(is_import)),
            ownership: Ownership::Ours,
        }))
    }

    /// An image of the application, which lives as long as `owner`.
    pub(crate) fn adopted(
        allocation: &Allocation,
        raw: vk::Image,
        place: Range<u64>,
        info: ImageInfo,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Bound {
            allocation: allocation.clone(),
            object: Object::new("image", "adopted"),
            raw,
            at: place.start,
            size: place.end - place.start,
            info,
            left_in: AtomicI32::new(ELSEWHERE.as_raw()),
            has_contents: Arc::new(AtomicBool::new(true)),
            ownership: Ownership::theirs(owner),
        }))
    }

    /// The raw image, valid while a handle lives.
    #[must_use]
    pub fn raw(&self) -> vk::Image {
        self.0.raw
    }

    /// The properties of the image, without the usages for transfers.
    #[must_use]
    pub fn info(&self) -> &ImageInfo {
        &self.0.info
    }

    /// The memory that the image is bound to.
    #[must_use]
    pub fn allocation(&self) -> &Allocation {
        &self.0.allocation
    }

    /// Where the image begins in its [`Allocation`], in bytes.
    #[must_use]
    pub fn offset_in_allocation(&self) -> u64 {
        self.0.at
    }

    /// The bytes of the `VkDeviceMemory` in which the image lies.
    pub(crate) fn in_memory(&self) -> Range<u64> {
        let start = self.allocation().offset() + self.0.at;
        start..start + self.0.size
    }

    /// The name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// What a submission keeps of the image.
    pub(crate) fn kept(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.clone()
    }

    pub(crate) fn device(&self) -> &Arc<Inner> {
        self.allocation().inner()
    }

    /// The part of a format that an image of this crate has.
    pub(crate) fn aspect(&self) -> vk::ImageAspectFlags {
        match self.info().format.is_depth() {
            true => vk::ImageAspectFlags::DEPTH,
            false => vk::ImageAspectFlags::COLOR,
        }
    }

    fn left_in(&self) -> vk::ImageLayout {
        vk::ImageLayout::from_raw(self.0.left_in.load(Ordering::Relaxed))
    }

    /// False for a new image whose contents no submission has discarded.
    pub(crate) fn has_contents(&self) -> bool {
        self.0.has_contents.load(Ordering::Relaxed)
    }

    /// This image, just made, of the same memory as `exported` in another `VkDevice`.
    pub(crate) fn imported_of(mut self, exported: &Self) -> Self {
        if let Some(bound) = Arc::get_mut(&mut self.0) {
            bound.has_contents = exported.0.has_contents.clone();
        }
        self
    }

    /// Notes that a submission was submitted which releases the image from `layout`.
    pub(crate) fn note_use(&self, layout: vk::ImageLayout) {
        self.0.left_in.store(layout.as_raw(), Ordering::Relaxed);
        self.0.has_contents.store(true, Ordering::Relaxed);
    }

    /// Refuses to keep the contents of a new image, which are undefined (X9).
    pub(crate) fn require_contents(&self, contents: Contents) -> Result<()> {
        if contents == Contents::Discard || self.has_contents() {
            return Ok(());
        }
        let reason = "it is new: the first submission that acquires it discards the contents";
        Err(Error::unsupported(
            self.object(),
            "keep the contents",
            reason,
        ))
    }

    /// Refuses a layout that such an image does not have on every device.
    pub(crate) fn require_layout(&self, layout: vk::ImageLayout) -> Result<()> {
        use vk::ImageLayout as L;
        let needed = match layout {
            L::GENERAL | L::TRANSFER_SRC_OPTIMAL | L::TRANSFER_DST_OPTIMAL => return Ok(()),
            L::SHADER_READ_ONLY_OPTIMAL => ImageUsage::SAMPLED | ImageUsage::INPUT_ATTACHMENT,
            L::COLOR_ATTACHMENT_OPTIMAL => ImageUsage::COLOR_ATTACHMENT,
            L::DEPTH_STENCIL_ATTACHMENT_OPTIMAL | L::DEPTH_STENCIL_READ_ONLY_OPTIMAL => {
                ImageUsage::DEPTH_ATTACHMENT
            }
            _ => ImageUsage::empty(),
        };
        let has = self.info().usage;
        if has.intersects(needed) {
            return Ok(());
        }
        let reason = match needed.is_empty() {
            true => "a recorder brings no image into this layout".to_owned(),
            false => format!("its usage is {has:?}, and the layout needs {needed:?}"),
        };
        let asked = format!("have the layout {layout:?}");
        Err(Error::unsupported(self.object(), asked, reason))
    }

    /// The barrier that acquires the image from the other API, for queues of `family`.
    ///
    /// It belongs at the beginning of the application's own commands, which then find the image in
    /// `layout`. Use [`Contents::Discard`] for the first use of a new image, and call
    /// [`Image::note_contents`] when those commands are submitted.
    #[must_use]
    pub fn acquire_barrier(
        &self,
        family: u32,
        contents: Contents,
        layout: vk::ImageLayout,
    ) -> ImageBarrier {
        let before = match contents {
            Contents::Keep => vk::ImageLayout::GENERAL,
            Contents::Discard => vk::ImageLayout::UNDEFINED,
        };
        ImageBarrier::acquire(self.whole().old_layout(before).new_layout(layout), family)
    }

    /// Notes that the application's own commands have discarded the contents of a new image.
    ///
    /// After that a recorder may keep the contents.
    ///
    /// # Safety
    /// Commands that acquire the image and release it, with the barriers of this type, are
    /// submitted. Later submissions that use the image wait for them.
    pub unsafe fn note_contents(&self) {
        self.note_use(vk::ImageLayout::GENERAL);
    }

    /// The layout to acquire the image in before it is brought into `layout`, if there is one.
    ///
    /// The validation layer ignores barriers that keep a layout, if `synchronization2` is enabled.
    /// So it would take the image to be in the layout before the last release. Its message is the
    /// one for every wrong layout, and its only object is the command buffer. So it cannot be
    /// listed as false without hiding real ones. Applications below the layer would see it, too.
    pub(crate) fn layout_between(
        &self,
        contents: Contents,
        layout: vk::ImageLayout,
    ) -> Option<vk::ImageLayout> {
        let general = vk::ImageLayout::GENERAL;
        let is_ignored = contents == Contents::Keep && layout == general;
        let is_needed = is_ignored && self.left_in() != general;
        is_needed.then_some(vk::ImageLayout::TRANSFER_SRC_OPTIMAL)
    }

    /// The barrier that releases the image to the other API, at the end of the commands.
    ///
    /// `layout` is the one that the commands leave it in. See [`Image::acquire_barrier`].
    #[must_use]
    pub fn release_barrier(&self, family: u32, layout: vk::ImageLayout) -> ImageBarrier {
        let general = vk::ImageLayout::GENERAL;
        ImageBarrier::release(self.whole().old_layout(layout).new_layout(general), family)
    }

    /// The barrier between two layouts within one submission.
    pub(crate) fn transition(&self, old: vk::ImageLayout, new: vk::ImageLayout) -> ImageBarrier {
        ImageBarrier::within(self.whole().old_layout(old).new_layout(new))
    }

    /// A barrier for all levels and layers.
    fn whole(&self) -> vk::ImageMemoryBarrier<'static> {
        let (levels, layers) = (self.info().levels, self.info().layers);
        let range = vk::ImageSubresourceRange::default()
            .aspect_mask(self.aspect())
            .level_count(levels)
            .layer_count(layers);
        vk::ImageMemoryBarrier::default()
            .image(self.raw())
            .subresource_range(range)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let (raw, device) = (Resource::Image(self.raw), self.allocation.inner());
        // SAFETY: created on this device. Nothing uses it, because each submission in flight keeps
        // an `Arc` of this. The memory is freed after this.
        unsafe { self.ownership.end(raw, device) };
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({:?})", self.object(), self.info())
    }
}
