//! The application's own passes: two shaders, which read and write images.

use std::{io::Cursor, sync::Arc};

use syncline::vulkan::ash::{util::read_spv, vk};
use syncline::vulkan::{Buffer, Contents, Device, Image, Recorder};
use syncline::{Error, Result};

use crate::SIZE;

pub(crate) struct Passes {
    device: Device,
    bindings: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    pool: vk::DescriptorPool,
    views: Vec<vk::ImageView>,
    sets: Vec<vk::DescriptorSet>,
    pipelines: Vec<vk::Pipeline>,
    /// The scene and the filtered image of each slot.
    images: Vec<[Image; 2]>,
}

impl Passes {
    /// After a failure the program ends, and nothing is destroyed.
    pub(crate) fn new(device: &Device, images: Vec<[Image; 2]>) -> Result<Self> {
        build(device, images).map_err(Error::work)
    }

    /// Paints the scene of a slot. Nothing is kept of either image, which may be new.
    pub(crate) fn paint(
        self: &Arc<Self>,
        commands: &mut Recorder<'_>,
        slot: usize,
        frame: u64,
    ) -> Result<()> {
        self.run(commands, 0, slot, frame, Contents::Discard)
    }

    /// Shows the scene of a slot and its filtered image, and copies that to a buffer of the host.
    pub(crate) fn show(
        self: &Arc<Self>,
        commands: &mut Recorder<'_>,
        slot: usize,
        frame: u64,
        picture: &Buffer,
    ) -> Result<()> {
        self.run(commands, 1, slot, frame, Contents::Keep)?;
        commands.order()?; // the pass before the copy
        commands.copy_image_to_buffer(&self.images[slot][0], 0, picture)
    }

    fn run(
        self: &Arc<Self>,
        commands: &mut Recorder<'_>,
        pass: usize,
        slot: usize,
        frame: u64,
        contents: Contents,
    ) -> Result<()> {
        for image in &self.images[slot] {
            // From CUDA, until the end of the submission.
            commands.acquire_image(image, contents, vk::ImageLayout::GENERAL)?;
        }
        let (raw, buffer) = (self.device.raw(), commands.command_buffer()?);
        let (compute, sets) = (vk::PipelineBindPoint::COMPUTE, [self.sets[slot]]);
        let (stage, frame) = (vk::ShaderStageFlags::COMPUTE, (frame as i32).to_ne_bytes());
        // SAFETY: the commands are being recorded, and everything is of this device and kept.
        unsafe {
            raw.cmd_bind_pipeline(buffer, compute, self.pipelines[pass]);
            raw.cmd_bind_descriptor_sets(buffer, compute, self.layout, 0, &sets, &[]);
            raw.cmd_push_constants(buffer, self.layout, stage, 0, &frame);
            raw.cmd_dispatch(buffer, SIZE / 16, SIZE / 16, 1);
        }
        commands.keep(self.clone());
        Ok(())
    }
}

fn build(device: &Device, images: Vec<[Image; 2]>) -> Result<Passes, vk::Result> {
    let (raw, count) = (device.raw(), images.len() as u32);
    let (ty, stage) = (
        vk::DescriptorType::STORAGE_IMAGE,
        vk::ShaderStageFlags::COMPUTE,
    );
    // SAFETY: the descriptions are valid, all objects are of this device, and the code is that of a
    // compiler.
    unsafe {
        let binding = vk::DescriptorSetLayoutBinding::default().descriptor_type(ty);
        let binding = binding.descriptor_count(1).stage_flags(stage);
        let both = [binding, binding.binding(1)];
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&both);
        let bindings = raw.create_descriptor_set_layout(&info, None)?;
        let constants = [vk::PushConstantRange::default().stage_flags(stage).size(4)];
        let layouts = vec![bindings; images.len()];
        let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts[..1]);
        let info = info.push_constant_ranges(&constants);
        let layout = raw.create_pipeline_layout(&info, None)?;
        let size = vk::DescriptorPoolSize::default().ty(ty);
        let sizes = [size.descriptor_count(2 * count)];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(count);
        let pool = raw.create_descriptor_pool(&info.pool_sizes(&sizes), None)?;
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool);
        let sets = raw.allocate_descriptor_sets(&info.set_layouts(&layouts))?;
        let mut views = Vec::new();
        for (set, images) in sets.iter().zip(&images) {
            for (binding, image) in (0..).zip(images) {
                let mut range = vk::ImageSubresourceRange::default();
                (range.level_count, range.layer_count) = (1, 1);
                range.aspect_mask = vk::ImageAspectFlags::COLOR;
                let info = vk::ImageViewCreateInfo::default().image(image.raw());
                let info = info.view_type(vk::ImageViewType::TYPE_2D);
                let info = info
                    .format(vk::Format::R8G8B8A8_UINT)
                    .subresource_range(range);
                let view = raw.create_image_view(&info, None)?;
                let info = vk::DescriptorImageInfo::default().image_view(view);
                let infos = [info.image_layout(vk::ImageLayout::GENERAL)];
                let write = vk::WriteDescriptorSet::default().dst_set(*set);
                let write = write
                    .dst_binding(binding)
                    .descriptor_type(ty)
                    .image_info(&infos);
                raw.update_descriptor_sets(&[write], &[]);
                views.push(view);
            }
        }
        let pipeline = |bytes: &[u8]| {
            let code = read_spv(&mut Cursor::new(bytes)).unwrap_or_default();
            let info = vk::ShaderModuleCreateInfo::default().code(&code);
            let module = raw.create_shader_module(&info, None)?;
            let shader = vk::PipelineShaderStageCreateInfo::default().stage(stage);
            let shader = shader.module(module).name(c"main");
            let info = vk::ComputePipelineCreateInfo::default()
                .layout(layout)
                .stage(shader);
            let made = raw.create_compute_pipelines(Default::default(), &[info], None);
            raw.destroy_shader_module(module, None);
            made.map_err(|(_, code)| code)
        };
        let mut pipelines = pipeline(include_bytes!("paint.comp.spv"))?;
        pipelines.append(&mut pipeline(include_bytes!("show.comp.spv"))?);
        let device = device.clone();
        Ok(Passes {
            device,
            bindings,
            layout,
            pool,
            views,
            sets,
            pipelines,
            images,
        })
    }
}

impl Drop for Passes {
    fn drop(&mut self) {
        let raw = self.device.raw();
        // SAFETY: every submission that uses them has kept this.
        unsafe {
            for pipeline in &self.pipelines {
                raw.destroy_pipeline(*pipeline, None);
            }
            for view in &self.views {
                raw.destroy_image_view(*view, None);
            }
            raw.destroy_descriptor_pool(self.pool, None);
            raw.destroy_pipeline_layout(self.layout, None);
            raw.destroy_descriptor_set_layout(self.bindings, None);
        }
    }
}
