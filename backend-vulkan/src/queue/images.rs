//! Images in a submission: acquiring, copying and releasing them.
#![allow(unsafe_code, reason = "talks to the driver")]

use ash::vk;
use syncline_core::{Error, QueueKind, Result};

use crate::memory::buffer::Buffer;
use crate::memory::image::{Contents, Image};
use crate::memory::ownership::ImageBarrier;
use crate::queue::recording::Recording;

/// The images that a submission has acquired, and releases at its end.
#[derive(Default)]
pub(crate) struct AcquiredImages {
    /// With the layout that each has now.
    held: Vec<(Image, vk::ImageLayout)>,
    /// Those that are released at the end of the commands, until the submission is submitted.
    released: Vec<(Image, vk::ImageLayout)>,
}

impl AcquiredImages {
    /// True if no image is to be released.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn layout(&mut self, image: &Image) -> Option<&mut vk::ImageLayout> {
        let mut held = self.held.iter_mut();
        let (_, layout) = held.find(|(held, _)| held.raw() == image.raw())?;
        Some(layout)
    }

    /// One for each image that is acquired.
    pub(crate) fn barriers_to_release(&self, family: u32) -> impl Iterator<Item = ImageBarrier> {
        let held = self.held.iter();
        held.map(move |(image, layout)| image.release_barrier(family, *layout))
    }

    /// Notes that these barriers are recorded.
    pub(crate) fn note_released(&mut self) {
        self.released.append(&mut self.held);
    }

    /// Notes that the driver has the submission.
    #[inline]
    pub(crate) fn submitted(&mut self) {
        for (image, layout) in self.released.drain(..) {
            image.note_use(layout);
        }
    }

    pub(crate) fn discard(&mut self) {
        self.held.clear();
        self.released.clear();
    }
}

impl Recording {
    /// Acquires an image, or changes the layout of one that is acquired already.
    pub(crate) fn acquire_image(
        &mut self,
        image: &Image,
        contents: Contents,
        layout: vk::ImageLayout,
    ) -> Result<()> {
        self.require_device(image.device(), image.object())?;
        image.require_layout(layout)?;
        if self.images().layout(image).is_some() {
            return self.change_layout(image, layout);
        }
        image.require_contents(contents)?;
        let commands = self.command_buffer()?;
        let family = self.queue().family();
        let between = image.layout_between(contents, layout);
        let first = image.acquire_barrier(family, contents, between.unwrap_or(layout));
        self.transfer_ownership(commands, [], [first]);
        if let Some(between) = between {
            self.transfer_ownership(commands, [], [image.transition(between, layout)]);
        }
        self.images().held.push((image.clone(), layout));
        self.keep(image.kept());
        Ok(())
    }

    /// Brings an image that is acquired into `layout`.
    fn change_layout(&mut self, image: &Image, layout: vk::ImageLayout) -> Result<()> {
        let commands = self.command_buffer()?;
        if let Some(held) = self.images().layout(image) {
            let before = std::mem::replace(held, layout);
            if before != layout {
                self.transfer_ownership(commands, [], [image.transition(before, layout)]);
            }
        }
        Ok(())
    }

    /// True if the queue family is for graphics.
    fn has_graphics(&self) -> bool {
        let (queues, family) = (self.queue().device().queues(), self.queue().family());
        let mut families = queues.iter().map(|queue| queue.family());
        families.any(|of| (of.index, of.kind) == (family, QueueKind::Graphics))
    }

    /// Notes the layout of an image. See `Recorder::note_layout`.
    ///
    /// # Safety
    /// Same as `Recorder::note_layout`.
    pub(crate) unsafe fn note_layout(
        &mut self,
        image: &Image,
        layout: vk::ImageLayout,
    ) -> Result<()> {
        let Some(held) = self.images().layout(image) else {
            let asked = format!("be left in {layout:?}");
            let reason = "the submission has not acquired it";
            return Err(Error::unsupported(image.object(), asked, reason));
        };
        *held = layout;
        Ok(())
    }

    /// See `Recorder::copy_buffer_to_image`.
    pub(crate) fn copy_buffer_to_image(
        &mut self,
        from: &Buffer,
        to: &Image,
        level: u32,
    ) -> Result<()> {
        let region = self.copied(to, from, level)?;
        let contents = match to.has_contents() && to.info().levels > 1 {
            true => Contents::Keep,
            false => Contents::Discard,
        };
        let before = self.begin_copy(from, to, contents)?;
        let (commands, general) = (self.command_buffer()?, vk::ImageLayout::GENERAL);
        // SAFETY: the command buffer is begun. The region lies within the buffer and the image,
        // which is in this layout. Both are of this device, have the transfer usages, and are kept
        // until the submission has finished.
        unsafe {
            self.device().cmd_copy_buffer_to_image(
                commands,
                from.raw(),
                to.raw(),
                general,
                &[region],
            );
        }
        self.end_copy(from, to, before)
    }

    /// See `Recorder::copy_image_to_buffer`.
    pub(crate) fn copy_image_to_buffer(
        &mut self,
        from: &Image,
        level: u32,
        to: &Buffer,
    ) -> Result<()> {
        let region = self.copied(from, to, level)?;
        let before = self.begin_copy(to, from, Contents::Keep)?;
        let (commands, general) = (self.command_buffer()?, vk::ImageLayout::GENERAL);
        // SAFETY: as in `copy_buffer_to_image`.
        unsafe {
            self.device().cmd_copy_image_to_buffer(
                commands,
                from.raw(),
                general,
                to.raw(),
                &[region],
            );
        }
        self.end_copy(to, from, before)
    }

    /// The region that holds all layers of a level, if it fits the image and the buffer.
    fn copied(&self, image: &Image, buffer: &Buffer, level: u32) -> Result<vk::BufferImageCopy> {
        self.require_device(image.device(), image.object())?;
        self.require_device(buffer.device(), buffer.object())?;
        let info = image.info();
        let asked = || format!("copy level {level} to or from {}", buffer.object());
        let refuse = |reason| Err(Error::unsupported(image.object(), asked(), reason));
        if level >= info.levels {
            return refuse(format!("it has {} levels", info.levels));
        }
        // VUID-vkCmdCopyBufferToImage-commandBuffer-07739 and
        // VUID-vkCmdCopyImageToBuffer-commandBuffer-10216.
        if info.format.is_depth() && !self.has_graphics() {
            return refuse("its format is of depth, and the queue is not for graphics".into());
        }
        let (needed, has) = (info.level_size(level), buffer.size());
        if needed > has {
            return refuse(format!(
                "the level has {needed} bytes, and the buffer {has}"
            ));
        }
        // Depth and transfer queues need a multiple of 4, which each offset is.
        let texel = info.format.block_size();
        if !buffer.offset().is_multiple_of(texel.into()) {
            let offset = buffer.offset();
            return refuse(format!(
                "the buffer begins at {offset}, which is no multiple of {texel}"
            ));
        }
        // VUID-vkCmdCopyBufferToImage-pRegions-00173 and
        // VUID-vkCmdCopyImageToBuffer-pRegions-00184.
        if let Some(reason) = buffer.alias_of_image(image, needed) {
            return refuse(reason);
        }
        let extent = info.extent.level(level);
        let layers = vk::ImageSubresourceLayers::default()
            .aspect_mask(image.aspect())
            .mip_level(level)
            .layer_count(info.layers);
        let region = vk::BufferImageCopy::default()
            .buffer_offset(buffer.offset())
            .image_subresource(layers)
            .image_extent(vk::Extent3D {
                width: extent.width,
                height: extent.height,
                depth: extent.depth,
            });
        Ok(region)
    }

    /// Acquires both, the image in the layout of copies. Returns the layout to give back to it.
    fn begin_copy(
        &mut self,
        buffer: &Buffer,
        image: &Image,
        contents: Contents,
    ) -> Result<vk::ImageLayout> {
        let general = vk::ImageLayout::GENERAL;
        let before = self.images().layout(image).copied();
        self.acquire_image(image, contents, general)?;
        self.acquire(buffer)?;
        Ok(before.unwrap_or(general))
    }

    /// Makes the copy visible, and gives the image its layout back.
    fn end_copy(&mut self, buffer: &Buffer, image: &Image, layout: vk::ImageLayout) -> Result<()> {
        let commands = self.command_buffer()?;
        self.barrier(commands);
        self.keep(buffer.kept());
        self.change_layout(image, layout)
    }
}
