//! The stage that draws the scene with Vulkan's graphics pipeline.

#![allow(unsafe_code, reason = "drawing is raw Vulkan, as in an application")]

use std::sync::Arc;

use ash::vk;
use syncline::Result;
use syncline::vulkan::{self, Buffer, Recorder};

use super::vulkan::buffers;
use crate::frames::scene::View;
use crate::frames::scene::image::{Image, Memory, whole};
use crate::frames::scene::renderer::{HEIGHTS, Renderer};

/// The layout of the image of heights.
const LAYOUT: vk::ImageLayout = vk::ImageLayout::GENERAL;

/// Copies a slot into an image of its own, and draws that.
pub(crate) struct Painter {
    view: View,
    slots: Vec<Buffer>,
    readbacks: Vec<Buffer>,
    /// Dropped before the image, which it draws.
    renderer: Renderer,
    heights: Image,
}

impl Painter {
    pub(crate) fn new(
        device: &vulkan::Device,
        view: View,
        slots: Vec<syncline::Buffer>,
        readbacks: Vec<syncline::Buffer>,
    ) -> Result<Self> {
        let memory = Memory::new(device)?;
        let side = view.side.cast_unsigned();
        let usage = vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_DST;
        let heights = Image::new(&memory, HEIGHTS, [side, side], usage)?;
        // SAFETY: the image is as required, and is dropped after the renderer.
        let renderer = unsafe { Renderer::new(&memory, view, &[heights.raw], LAYOUT)? };
        Ok(Self {
            view,
            slots: buffers(slots)?,
            readbacks: buffers(readbacks)?,
            renderer,
            heights,
        })
    }

    pub(crate) fn record(
        self: &Arc<Self>,
        recorder: &mut Recorder<'_>,
        slot: usize,
        readback: usize,
    ) -> Result<()> {
        let commands = recorder.command_buffer()?;
        let slot = &self.slots[slot];
        recorder.acquire(slot)?;
        // The last frame reads the image that the copy overwrites.
        recorder.order()?;
        let fresh = vk::ImageMemoryBarrier::default()
            .dst_access_mask(vk::AccessFlags::TRANSFER_WRITE)
            .new_layout(LAYOUT)
            .image(self.heights.raw)
            .subresource_range(whole(HEIGHTS));
        let all = vk::BufferImageCopy::default()
            .image_subresource(vk::ImageSubresourceLayers {
                aspect_mask: vk::ImageAspectFlags::COLOR,
                layer_count: 1,
                ..Default::default()
            })
            .image_extent(vk::Extent3D {
                width: self.view.side.cast_unsigned(),
                height: self.view.side.cast_unsigned(),
                depth: 1,
            });
        let copies = vk::PipelineStageFlags::TRANSFER;
        let none = vk::DependencyFlags::empty();
        // SAFETY: the command buffer is being recorded. The stage, which the submission keeps, has
        // the image and the buffer, which have the same size.
        unsafe {
            let raw = recorder.device();
            raw.cmd_pipeline_barrier(commands, copies, copies, none, &[], &[], &[fresh]);
            raw.cmd_copy_buffer_to_image(commands, slot.raw(), self.heights.raw, LAYOUT, &[all]);
        }
        recorder.order()?;
        // SAFETY: as above. The queue has graphics, and its submissions execute in order.
        unsafe {
            let to = self.readbacks[readback].raw();
            self.renderer.record(commands, 0, to);
        }
        recorder.keep(self.clone());
        Ok(())
    }
}
