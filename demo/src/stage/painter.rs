//! The stage that draws the scene with Vulkan's graphics pipeline.

#![allow(unsafe_code, reason = "drawing is raw Vulkan, as in an application")]

use std::sync::Arc;

use ash::vk;
use syncline::Result;
use syncline::vulkan::{self, Buffer, Contents, Recorder};

use super::vulkan::{buffers, discard, images};
use super::{Between, Consumer};
use crate::scene::View;
use crate::scene::image::{Image, Memory, whole};
use crate::scene::renderer::{HEIGHTS, Renderer};

/// The layout of an image of heights.
pub const LAYOUT: vk::ImageLayout = vk::ImageLayout::GENERAL;

/// Draws the image of a slot.
pub(crate) struct Painter {
    view: View,
    readbacks: Vec<Buffer>,
    /// Dropped before the images that it draws.
    renderer: Renderer,
    heights: Heights,
}

/// What the renderer draws.
enum Heights {
    /// The shared images themselves.
    Images(Vec<vulkan::Image>),
    /// An image of its own, into which it copies a shared buffer first.
    Buffers(Vec<Buffer>, Image),
}

impl Painter {
    pub(crate) fn new(
        device: &vulkan::Device,
        view: View,
        slots: Between,
        readbacks: Vec<syncline::Buffer>,
    ) -> Result<Self> {
        let memory = Memory::new(device)?;
        let heights = match slots {
            Between::Images(shared) => Heights::Images(images(&shared)?),
            Between::Buffers(slots) => Heights::Buffers(buffers(slots)?, image(&memory, view)?),
        };
        let raw: Vec<_> = match &heights {
            Heights::Images(images) => images.iter().map(vulkan::Image::raw).collect(),
            Heights::Buffers(_, image) => vec![image.raw],
        };
        // SAFETY: the images are as required, and are dropped after the renderer.
        let renderer = unsafe { Renderer::new(&memory, view, &raw, LAYOUT)? };
        Ok(Self {
            view,
            readbacks: buffers(readbacks)?,
            renderer,
            heights,
        })
    }

    /// Copies a slot to the image.
    fn copy(&self, recorder: &mut Recorder<'_>, slot: &Buffer, image: &Image) -> Result<()> {
        let commands = recorder.command_buffer()?;
        recorder.acquire(slot)?;
        // SAFETY: the command buffer is being recorded. The stage, which the submission keeps, has
        // the image and the buffer, which have the same size.
        unsafe { copy(recorder.device(), commands, self.view, slot.raw(), image) };
        recorder.order()
    }
}

impl Consumer for Painter {
    /// Records the first use of the shared images, which have no contents yet.
    fn begin(&self, recorder: &mut syncline::Recorder<'_>) -> Result<()> {
        match &self.heights {
            Heights::Images(images) => discard(images, recorder.vulkan()?),
            Heights::Buffers(..) => Ok(()),
        }
    }

    fn record(
        self: Arc<Self>,
        recorder: &mut syncline::Recorder<'_>,
        slot: usize,
        readback: usize,
    ) -> Result<()> {
        let recorder = recorder.vulkan()?;
        let commands = recorder.command_buffer()?;
        let source = match &self.heights {
            Heights::Images(images) => {
                recorder.acquire_image(&images[slot], Contents::Keep, LAYOUT)?;
                slot
            }
            Heights::Buffers(slots, image) => {
                self.copy(recorder, &slots[slot], image)?;
                0
            }
        };
        // SAFETY: the command buffer is being recorded. The submission keeps the stage, which has
        // the buffer. The queue has graphics, and its submissions execute in order.
        unsafe {
            let to = self.readbacks[readback].raw();
            self.renderer.record(commands, source, to);
        }
        recorder.keep(self);
        Ok(())
    }
}

/// An image of heights that is not shared.
///
/// # Errors
/// A refused call.
pub fn image(memory: &Arc<Memory>, view: View) -> Result<Image> {
    let side = view.side.cast_unsigned();
    let usage = vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_DST;
    Image::new(memory, HEIGHTS, [side, side], usage)
}

/// Records the copy of a slot to such an image. Only a later barrier shows it to shaders.
///
/// # Safety
/// The command buffer is being recorded for the queue that draws the image. The slot has as many
/// words as the image has texels, and may be read. The submission keeps both.
pub unsafe fn copy(
    raw: &ash::Device,
    commands: vk::CommandBuffer,
    view: View,
    slot: vk::Buffer,
    image: &Image,
) {
    let fresh = vk::ImageMemoryBarrier::default()
        .dst_access_mask(vk::AccessFlags::TRANSFER_WRITE)
        .new_layout(LAYOUT)
        .image(image.raw)
        .subresource_range(whole(HEIGHTS));
    let all = vk::BufferImageCopy::default()
        .image_subresource(vk::ImageSubresourceLayers {
            aspect_mask: vk::ImageAspectFlags::COLOR,
            layer_count: 1,
            ..Default::default()
        })
        .image_extent(vk::Extent3D {
            width: view.side.cast_unsigned(),
            height: view.side.cast_unsigned(),
            depth: 1,
        });
    // The vertices of the last frame read the image that the copy overwrites.
    let (reads, copies) = (
        vk::PipelineStageFlags::VERTEX_SHADER,
        vk::PipelineStageFlags::TRANSFER,
    );
    let none = vk::DependencyFlags::empty();
    // SAFETY: the caller guarantees it. The queue has graphics, and so the stages.
    unsafe {
        raw.cmd_pipeline_barrier(commands, reads, copies, none, &[], &[], &[fresh]);
        raw.cmd_copy_buffer_to_image(commands, slot, image.raw, LAYOUT, &[all]);
    }
}
