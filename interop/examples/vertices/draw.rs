//! The application's own drawing: points of a vertex buffer, in an image.

use std::{io::Cursor, sync::Arc};

use syncline::image::{Format, ImageInfo, ImageUsage};
use syncline::vulkan::ash::{util::read_spv, vk};
use syncline::vulkan::{Buffer, Contents, Device, Image, Recorder};
use syncline::{Error, Result};

use crate::{SIDE, SIZE};

pub(crate) struct Drawing {
    device: Device,
    pub(crate) image: Image,
    view: vk::ImageView,
    pass: vk::RenderPass,
    target: vk::Framebuffer,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
}

fn area() -> vk::Rect2D {
    let (width, height) = (SIZE, SIZE);
    vk::Rect2D::default().extent(vk::Extent2D { width, height })
}

impl Drawing {
    /// After a failure the program ends, and nothing is destroyed.
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let usage = ImageUsage::COLOR_ATTACHMENT;
        let info = ImageInfo::d2(Format::Rgba8Uint, SIZE, SIZE, usage);
        let (image, _) = device.export_image(&info)?;
        build(device, image).map_err(Error::work)
    }

    /// Draws the vertices, and copies the image to a buffer of the host.
    pub(crate) fn draw(
        self: &Arc<Self>,
        commands: &mut Recorder<'_>,
        vertices: &Buffer,
        picture: &Buffer,
    ) -> Result<()> {
        // From CUDA, until the end of the submission. A draw does not need what was in the image.
        commands.acquire(vertices)?;
        commands.acquire_image(&self.image, Contents::Discard, vk::ImageLayout::GENERAL)?;
        let (raw, buffer) = (self.device.raw(), commands.command_buffer()?);
        let mut clear = [vk::ClearValue::default()];
        clear[0].color.uint32 = [8, 12, 28, 255];
        let begin = vk::RenderPassBeginInfo::default().clear_values(&clear);
        let begin = begin.render_pass(self.pass).framebuffer(self.target);
        let begin = begin.render_area(area());
        // SAFETY: the commands are being recorded, and everything is of this device and kept.
        unsafe {
            raw.cmd_begin_render_pass(buffer, &begin, vk::SubpassContents::INLINE);
            raw.cmd_bind_pipeline(buffer, vk::PipelineBindPoint::GRAPHICS, self.pipeline);
            raw.cmd_bind_vertex_buffers(buffer, 0, &[vertices.raw()], &[vertices.offset()]);
            raw.cmd_draw(buffer, SIDE * SIDE, 1, 0, 0);
            raw.cmd_end_render_pass(buffer);
        }
        commands.keep(self.clone());
        commands.order()?; // the pass before the copy
        commands.copy_image_to_buffer(&self.image, 0, picture)
    }
}

fn build(device: &Device, image: Image) -> Result<Drawing, vk::Result> {
    let (raw, format) = (device.raw(), vk::Format::R8G8B8A8_UINT);
    let (one, general) = (vk::SampleCountFlags::TYPE_1, vk::ImageLayout::GENERAL);
    // SAFETY: the descriptions are valid, all objects are of this device, and the code is that of a
    // compiler.
    unsafe {
        let mut range = vk::ImageSubresourceRange::default();
        (range.level_count, range.layer_count) = (1, 1);
        range.aspect_mask = vk::ImageAspectFlags::COLOR;
        let info = vk::ImageViewCreateInfo::default().image(image.raw());
        let info = info.view_type(vk::ImageViewType::TYPE_2D);
        let info = info.format(format).subresource_range(range);
        let view = raw.create_image_view(&info, None)?;

        let colour = vk::AttachmentDescription::default().format(format);
        let colour = colour.samples(one).load_op(vk::AttachmentLoadOp::CLEAR);
        let colours = [colour.initial_layout(general).final_layout(general)];
        let drawn = [vk::AttachmentReference::default().layout(general)];
        let subpasses = [vk::SubpassDescription::default().color_attachments(&drawn)];
        let info = vk::RenderPassCreateInfo::default().attachments(&colours);
        let pass = raw.create_render_pass(&info.subpasses(&subpasses), None)?;
        let views = [view];
        let info = vk::FramebufferCreateInfo::default().attachments(&views);
        let info = info.render_pass(pass).width(SIZE).height(SIZE).layers(1);
        let target = raw.create_framebuffer(&info, None)?;

        let module = |bytes: &[u8]| {
            let code = read_spv(&mut Cursor::new(bytes)).unwrap_or_default();
            raw.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&code), None)
        };
        let modules = [
            module(include_bytes!("wave.vert.spv"))?,
            module(include_bytes!("wave.frag.spv"))?,
        ];
        let stage = vk::PipelineShaderStageCreateInfo::default().name(c"main");
        let vertex = stage.stage(vk::ShaderStageFlags::VERTEX).module(modules[0]);
        let fragment = stage.stage(vk::ShaderStageFlags::FRAGMENT);
        let stages = [vertex, fragment.module(modules[1])];
        let bindings = [vk::VertexInputBindingDescription::default().stride(12)];
        let attribute = vk::VertexInputAttributeDescription::default();
        let attributes = [attribute.format(vk::Format::R32G32B32_SINT)];
        let vertices = vk::PipelineVertexInputStateCreateInfo::default()
            .vertex_binding_descriptions(&bindings)
            .vertex_attribute_descriptions(&attributes);
        let points = vk::PipelineInputAssemblyStateCreateInfo::default();
        let viewport = vk::Viewport::default().width(SIZE as f32);
        let (viewports, scissors) = ([viewport.height(SIZE as f32)], [area()]);
        let viewport = vk::PipelineViewportStateCreateInfo::default();
        let viewport = viewport.viewports(&viewports).scissors(&scissors);
        let raster = vk::PipelineRasterizationStateCreateInfo::default().line_width(1.0);
        let samples = vk::PipelineMultisampleStateCreateInfo::default().rasterization_samples(one);
        let blend = vk::PipelineColorBlendAttachmentState::default();
        let blends = [blend.color_write_mask(vk::ColorComponentFlags::RGBA)];
        let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blends);
        let layout = raw.create_pipeline_layout(&Default::default(), None)?;
        let info = vk::GraphicsPipelineCreateInfo::default()
            .stages(&stages)
            .vertex_input_state(&vertices)
            .input_assembly_state(&points)
            .viewport_state(&viewport)
            .rasterization_state(&raster)
            .multisample_state(&samples)
            .color_blend_state(&blend)
            .layout(layout)
            .render_pass(pass);
        let made = raw.create_graphics_pipelines(Default::default(), &[info], None);
        for module in modules {
            raw.destroy_shader_module(module, None);
        }
        Ok(Drawing {
            device: device.clone(),
            image,
            view,
            pass,
            target,
            layout,
            pipeline: made.map_err(|(_, code)| code)?[0],
        })
    }
}

impl Drop for Drawing {
    fn drop(&mut self) {
        let raw = self.device.raw();
        // SAFETY: every submission that uses them has kept this.
        unsafe {
            raw.destroy_pipeline(self.pipeline, None);
            raw.destroy_pipeline_layout(self.layout, None);
            raw.destroy_framebuffer(self.target, None);
            raw.destroy_render_pass(self.pass, None);
            raw.destroy_image_view(self.view, None);
        }
    }
}
