//! The scene as a Vulkan graphics pipeline.

#![allow(unsafe_code, reason = "drawing is raw Vulkan, as in an application")]

use std::sync::Arc;

use ash::vk;
use syncline::Result;

use super::View;
use super::image::{Image, Memory, view};
use super::pipeline::{COLOUR, DEPTH, STAGES, area, pass, pipeline};

/// The format of an image of heights.
pub const HEIGHTS: vk::Format = vk::Format::R32_SINT;

/// Draws images of heights into a picture of its own.
pub struct Renderer {
    view: View,
    colour: Image,
    depth: Image,
    /// The views of the images of heights, and the sets with one of them each.
    sources: Vec<(vk::ImageView, vk::DescriptorSet)>,
    set_layout: vk::DescriptorSetLayout,
    pool: vk::DescriptorPool,
    layout: vk::PipelineLayout,
    pass: vk::RenderPass,
    framebuffer: vk::Framebuffer,
    pipeline: vk::Pipeline,
    memory: Arc<Memory>,
}

impl Renderer {
    /// A renderer of `images`, which are in the layout `read` when it draws them.
    ///
    /// # Errors
    /// A refused call.
    ///
    /// # Safety
    /// The images are of the device, have the format [`HEIGHTS`] and the size of the view's field,
    /// and can be sampled. They outlive the renderer.
    pub unsafe fn new(
        memory: &Arc<Memory>,
        of: View,
        images: &[vk::Image],
        read: vk::ImageLayout,
    ) -> Result<Self> {
        let size = [of.width, of.height].map(i32::cast_unsigned);
        let picture = vk::ImageUsageFlags::COLOR_ATTACHMENT | vk::ImageUsageFlags::TRANSFER_SRC;
        let depth = vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT;
        // After a failure, dropping it destroys the objects made so far.
        let mut made = Self {
            view: of,
            colour: Image::new(memory, COLOUR, size, picture)?,
            depth: Image::new(memory, DEPTH, size, depth)?,
            sources: Vec::new(),
            set_layout: vk::DescriptorSetLayout::null(),
            pool: vk::DescriptorPool::null(),
            layout: vk::PipelineLayout::null(),
            pass: vk::RenderPass::null(),
            framebuffer: vk::Framebuffer::null(),
            pipeline: vk::Pipeline::null(),
            memory: memory.clone(),
        };
        made.bind(images, read)?;
        made.pass = pass(memory)?;
        let attachments = [made.colour.view, made.depth.view];
        let info = vk::FramebufferCreateInfo::default()
            .render_pass(made.pass)
            .attachments(&attachments)
            .width(size[0])
            .height(size[1])
            .layers(1);
        // SAFETY: the views are of this device and fit the pass.
        made.framebuffer = unsafe { memory.device.raw().create_framebuffer(&info, None) }
            .map_err(memory.refused("vkCreateFramebuffer"))?;
        made.pipeline = pipeline(memory, &of, made.pass, made.layout)?;
        Ok(made)
    }

    /// Makes the layout of the pipeline, and a descriptor set for each image.
    fn bind(&mut self, images: &[vk::Image], read: vk::ImageLayout) -> Result<()> {
        let memory = self.memory.clone();
        let raw = memory.device.raw();
        let count = images.len() as u32;
        let ty = vk::DescriptorType::SAMPLED_IMAGE;
        let bindings = [vk::DescriptorSetLayoutBinding::default()
            .descriptor_type(ty)
            .descriptor_count(1)
            .stage_flags(vk::ShaderStageFlags::VERTEX)];
        let sizes = [vk::DescriptorPoolSize {
            ty,
            descriptor_count: count,
        }];
        let constants = [vk::PushConstantRange {
            stage_flags: STAGES,
            offset: 0,
            size: 4 * View::WORDS as u32,
        }];
        // SAFETY: every create info points to data that outlives its call, and every handle belongs
        // to `raw`.
        let sets = unsafe {
            let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            self.set_layout = raw
                .create_descriptor_set_layout(&info, None)
                .map_err(memory.refused("vkCreateDescriptorSetLayout"))?;
            let layouts = vec![self.set_layout; images.len()];
            let info = vk::PipelineLayoutCreateInfo::default()
                .set_layouts(&layouts[..1])
                .push_constant_ranges(&constants);
            self.layout = raw
                .create_pipeline_layout(&info, None)
                .map_err(memory.refused("vkCreatePipelineLayout"))?;
            let info = vk::DescriptorPoolCreateInfo::default()
                .max_sets(count)
                .pool_sizes(&sizes);
            self.pool = raw
                .create_descriptor_pool(&info, None)
                .map_err(memory.refused("vkCreateDescriptorPool"))?;
            let info = vk::DescriptorSetAllocateInfo::default()
                .descriptor_pool(self.pool)
                .set_layouts(&layouts);
            raw.allocate_descriptor_sets(&info)
                .map_err(memory.refused("vkAllocateDescriptorSets"))?
        };
        for (&image, set) in images.iter().zip(sets) {
            // SAFETY: see `new`.
            let source = unsafe { view(&memory, image, HEIGHTS) }?;
            self.sources.push((source, set));
            let sources = [vk::DescriptorImageInfo::default()
                .image_view(source)
                .image_layout(read)];
            let write = vk::WriteDescriptorSet::default()
                .dst_set(set)
                .descriptor_type(ty)
                .image_info(&sources);
            // SAFETY: the set is new, and no work uses it yet.
            unsafe { raw.update_descriptor_sets(&[write], &[]) };
        }
        Ok(())
    }

    /// Draws image `source`, and copies the picture into a buffer, row by row.
    ///
    /// # Safety
    /// The command buffer is being recorded, for a queue with graphics. The buffer is of the device
    /// and has 4 bytes for each pixel. The submission keeps both and the renderer, and no other
    /// submission of the renderer executes at the same time.
    pub unsafe fn record(&self, commands: vk::CommandBuffer, source: usize, to: vk::Buffer) {
        let raw = self.memory.device.raw();
        let area = area(&self.view);
        let mut clear = [vk::ClearValue::default(); 2];
        clear[1].depth_stencil = vk::ClearDepthStencilValue {
            depth: 1.0,
            stencil: 0,
        };
        let begin = vk::RenderPassBeginInfo::default()
            .render_pass(self.pass)
            .framebuffer(self.framebuffer)
            .render_area(area)
            .clear_values(&clear);
        let constants: Vec<u8> = self
            .view
            .words()
            .into_iter()
            .flat_map(i32::to_ne_bytes)
            .collect();
        let sets = [self.sources[source].1];
        let graphics = vk::PipelineBindPoint::GRAPHICS;
        let copy = vk::BufferImageCopy::default()
            .image_subresource(vk::ImageSubresourceLayers {
                aspect_mask: vk::ImageAspectFlags::COLOR,
                layer_count: 1,
                ..Default::default()
            })
            .image_extent(area.extent.into());
        // SAFETY: everything bound lives as long as the renderer; see also above.
        unsafe {
            raw.cmd_begin_render_pass(commands, &begin, vk::SubpassContents::INLINE);
            raw.cmd_bind_pipeline(commands, graphics, self.pipeline);
            raw.cmd_bind_descriptor_sets(commands, graphics, self.layout, 0, &sets, &[]);
            raw.cmd_push_constants(commands, self.layout, STAGES, 0, &constants);
            // A corner more than squares on each side of a strip, and the sky is an instance, too.
            let corners = 2 * (self.view.columns() + 1);
            raw.cmd_draw(commands, corners, self.view.strips() + 1, 0, 0);
            raw.cmd_end_render_pass(commands);
            raw.cmd_copy_image_to_buffer(
                commands,
                self.colour.raw,
                vk::ImageLayout::TRANSFER_SRC_OPTIMAL,
                to,
                &[copy],
            );
        }
    }
}

impl Drop for Renderer {
    fn drop(&mut self) {
        let raw = self.memory.device.raw();
        // SAFETY: every submission that uses the renderer has kept it, so none is left. Null
        // handles are ignored.
        unsafe {
            raw.destroy_pipeline(self.pipeline, None);
            raw.destroy_framebuffer(self.framebuffer, None);
            raw.destroy_render_pass(self.pass, None);
            raw.destroy_pipeline_layout(self.layout, None);
            raw.destroy_descriptor_pool(self.pool, None);
            raw.destroy_descriptor_set_layout(self.set_layout, None);
            for &(view, _) in &self.sources {
                raw.destroy_image_view(view, None);
            }
        }
    }
}
