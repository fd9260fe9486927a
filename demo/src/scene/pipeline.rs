//! The render pass and the graphics pipeline of the scene.

#![allow(unsafe_code, reason = "pipelines are raw Vulkan, as in an application")]

use ash::vk;
use syncline::Result;

use super::image::Memory;
use super::{FRAGMENT_SPV, VERTEX_SPV, View};
use crate::compute::spirv_words;

/// The format of the picture.
pub(crate) const COLOUR: vk::Format = vk::Format::R8G8B8A8_UNORM;

/// The format of the depth buffer. Every device has it.
pub(crate) const DEPTH: vk::Format = vk::Format::D16_UNORM;

/// `VIEWPORT` of the vertex shader. Every device has viewports of this size.
const VIEWPORT: f32 = 4096.0;

/// Stages that read the push constants.
pub(crate) const STAGES: vk::ShaderStageFlags = vk::ShaderStageFlags::from_raw(
    vk::ShaderStageFlags::VERTEX.as_raw() | vk::ShaderStageFlags::FRAGMENT.as_raw(),
);

/// A pass over a picture and a depth buffer, whose earlier contents are lost.
///
/// It begins after earlier copies of the picture. Copies after the pass see the picture.
pub(crate) fn pass(memory: &Memory) -> Result<vk::RenderPass> {
    let attachments = [
        vk::AttachmentDescription::default()
            .format(COLOUR)
            .samples(vk::SampleCountFlags::TYPE_1)
            // The sky covers all of it.
            .load_op(vk::AttachmentLoadOp::DONT_CARE)
            .final_layout(vk::ImageLayout::TRANSFER_SRC_OPTIMAL),
        vk::AttachmentDescription::default()
            .format(DEPTH)
            .samples(vk::SampleCountFlags::TYPE_1)
            .load_op(vk::AttachmentLoadOp::CLEAR)
            .store_op(vk::AttachmentStoreOp::DONT_CARE)
            .final_layout(vk::ImageLayout::DEPTH_STENCIL_ATTACHMENT_OPTIMAL),
    ];
    let colour = [vk::AttachmentReference {
        attachment: 0,
        layout: vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL,
    }];
    let depth = vk::AttachmentReference {
        attachment: 1,
        layout: vk::ImageLayout::DEPTH_STENCIL_ATTACHMENT_OPTIMAL,
    };
    let subpass = vk::SubpassDescription::default()
        .pipeline_bind_point(vk::PipelineBindPoint::GRAPHICS)
        .color_attachments(&colour)
        .depth_stencil_attachment(&depth);
    let tests =
        vk::PipelineStageFlags::EARLY_FRAGMENT_TESTS | vk::PipelineStageFlags::LATE_FRAGMENT_TESTS;
    let output = vk::PipelineStageFlags::COLOR_ATTACHMENT_OUTPUT;
    let written = vk::AccessFlags::COLOR_ATTACHMENT_WRITE
        | vk::AccessFlags::DEPTH_STENCIL_ATTACHMENT_READ
        | vk::AccessFlags::DEPTH_STENCIL_ATTACHMENT_WRITE;
    let dependencies = [
        vk::SubpassDependency::default()
            .src_subpass(vk::SUBPASS_EXTERNAL)
            .src_stage_mask(output | tests | vk::PipelineStageFlags::TRANSFER)
            .src_access_mask(written)
            .dst_stage_mask(output | tests)
            .dst_access_mask(written),
        vk::SubpassDependency::default()
            .dst_subpass(vk::SUBPASS_EXTERNAL)
            .src_stage_mask(output)
            .src_access_mask(vk::AccessFlags::COLOR_ATTACHMENT_WRITE)
            .dst_stage_mask(vk::PipelineStageFlags::TRANSFER)
            .dst_access_mask(vk::AccessFlags::TRANSFER_READ),
    ];
    let info = vk::RenderPassCreateInfo::default()
        .attachments(&attachments)
        .subpasses(std::slice::from_ref(&subpass))
        .dependencies(&dependencies);
    // SAFETY: the structure is valid.
    unsafe { memory.device.raw().create_render_pass(&info, None) }
        .map_err(memory.refused("vkCreateRenderPass"))
}

/// The pipeline that draws the strips of `view` and the sky in one draw call.
pub(crate) fn pipeline(
    memory: &Memory,
    view: &View,
    pass: vk::RenderPass,
    layout: vk::PipelineLayout,
) -> Result<vk::Pipeline> {
    let raw = memory.device.raw();
    let module = |spirv: &[u8]| {
        let code = spirv_words(spirv);
        let info = vk::ShaderModuleCreateInfo::default().code(&code);
        // SAFETY: the code is that of a compiler, which validates.
        unsafe { raw.create_shader_module(&info, None) }
            .map_err(memory.refused("vkCreateShaderModule"))
    };
    // Null, which is ignored, after a failure.
    let modules = [module(VERTEX_SPV), module(FRAGMENT_SPV)];
    let stages = [vk::ShaderStageFlags::VERTEX, vk::ShaderStageFlags::FRAGMENT];
    let stage = |at: usize| {
        vk::PipelineShaderStageCreateInfo::default()
            .stage(stages[at])
            .module(*modules[at].as_ref().unwrap_or(&vk::ShaderModule::null()))
            .name(c"main")
    };
    let stages = [stage(0), stage(1)];
    let made = match &modules {
        [Err(error), _] | [_, Err(error)] => Err(error.clone()),
        _ => build(memory, view, pass, layout, &stages),
    };
    for module in modules.into_iter().flatten() {
        // SAFETY: a pipeline does not need the modules that it is made of.
        unsafe { raw.destroy_shader_module(module, None) };
    }
    made
}

fn build(
    memory: &Memory,
    view: &View,
    pass: vk::RenderPass,
    layout: vk::PipelineLayout,
    stages: &[vk::PipelineShaderStageCreateInfo<'_>],
) -> Result<vk::Pipeline> {
    let vertices = vk::PipelineVertexInputStateCreateInfo::default();
    let assembly = vk::PipelineInputAssemblyStateCreateInfo::default()
        .topology(vk::PrimitiveTopology::TRIANGLE_STRIP);
    let viewports = [vk::Viewport {
        width: VIEWPORT,
        height: VIEWPORT,
        max_depth: 1.0,
        ..Default::default()
    }];
    let scissors = [area(view)];
    let viewport = vk::PipelineViewportStateCreateInfo::default()
        .viewports(&viewports)
        .scissors(&scissors);
    let rasterization = vk::PipelineRasterizationStateCreateInfo::default()
        .cull_mode(vk::CullModeFlags::BACK)
        .front_face(vk::FrontFace::CLOCKWISE)
        .line_width(1.0);
    let samples = vk::PipelineMultisampleStateCreateInfo::default()
        .rasterization_samples(vk::SampleCountFlags::TYPE_1);
    let depth = vk::PipelineDepthStencilStateCreateInfo::default()
        .depth_test_enable(true)
        .depth_write_enable(true)
        .depth_compare_op(vk::CompareOp::LESS);
    let blends = [vk::PipelineColorBlendAttachmentState::default()
        .color_write_mask(vk::ColorComponentFlags::RGBA)];
    let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blends);
    let info = vk::GraphicsPipelineCreateInfo::default()
        .stages(stages)
        .vertex_input_state(&vertices)
        .input_assembly_state(&assembly)
        .viewport_state(&viewport)
        .rasterization_state(&rasterization)
        .multisample_state(&samples)
        .depth_stencil_state(&depth)
        .color_blend_state(&blend)
        .layout(layout)
        .render_pass(pass);
    let raw = memory.device.raw();
    // SAFETY: pass and layout are of this device, and match the shaders.
    let made = unsafe { raw.create_graphics_pipelines(vk::PipelineCache::null(), &[info], None) };
    let failed = memory.refused("vkCreateGraphicsPipelines");
    let made = made.map_err(|(_, code)| failed(code))?;
    Ok(made.into_iter().next().unwrap_or_default())
}

/// All pixels of the picture.
pub(crate) fn area(view: &View) -> vk::Rect2D {
    vk::Rect2D {
        extent: vk::Extent2D {
            width: view.width.cast_unsigned(),
            height: view.height.cast_unsigned(),
        },
        ..Default::default()
    }
}
