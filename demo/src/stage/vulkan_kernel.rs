//! A Vulkan compute shader with storage buffers and push constants.

#![allow(
    unsafe_code,
    reason = "compute pipelines are raw Vulkan, as in an application"
)]

use std::sync::Arc;

use ash::vk;
use syncline::backend::Device as _;
use syncline::vulkan::{self, Buffer};
use syncline::{Error, Result};

use crate::compute::spirv_words;

/// A shader, ready to be dispatched with any of its bindings.
pub(crate) struct Kernel {
    device: vulkan::Device,
    buffers: u32,
    layout: vk::DescriptorSetLayout,
    pool: vk::DescriptorPool,
    pipeline_layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
}

/// The buffers of a dispatch; the kernel owns it.
#[derive(Clone, Copy)]
pub(crate) struct Bindings(vk::DescriptorSet);

impl Kernel {
    /// Compiles `spirv`, with room for `sets` bindings.
    ///
    /// It uses `buffers` storage buffers and `words` 32-bit push constants.
    pub(crate) fn new(
        device: &vulkan::Device,
        spirv: &[u8],
        buffers: u32,
        words: usize,
        sets: u32,
    ) -> Result<Arc<Self>> {
        let raw = device.raw();
        let failed = |call| move |code| native(device, call, code);
        // After a failure, dropping it destroys the objects made so far.
        let mut kernel = Self {
            device: device.clone(),
            buffers,
            layout: vk::DescriptorSetLayout::null(),
            pool: vk::DescriptorPool::null(),
            pipeline_layout: vk::PipelineLayout::null(),
            pipeline: vk::Pipeline::null(),
        };
        let slots: Vec<_> = (0..buffers)
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let size = vk::DescriptorPoolSize {
            ty: vk::DescriptorType::STORAGE_BUFFER,
            descriptor_count: buffers * sets,
        };
        let constants = vk::PushConstantRange {
            stage_flags: vk::ShaderStageFlags::COMPUTE,
            offset: 0,
            size: words as u32 * 4,
        };
        let code = spirv_words(spirv);
        // SAFETY: every create info points to data that outlives its call, and every handle belongs
        // to `raw`.
        unsafe {
            kernel.layout = raw
                .create_descriptor_set_layout(
                    &vk::DescriptorSetLayoutCreateInfo::default().bindings(&slots),
                    None,
                )
                .map_err(failed("vkCreateDescriptorSetLayout"))?;
            kernel.pool = raw
                .create_descriptor_pool(
                    &vk::DescriptorPoolCreateInfo::default()
                        .max_sets(sets)
                        .pool_sizes(std::slice::from_ref(&size)),
                    None,
                )
                .map_err(failed("vkCreateDescriptorPool"))?;
            kernel.pipeline_layout = raw
                .create_pipeline_layout(
                    &vk::PipelineLayoutCreateInfo::default()
                        .set_layouts(std::slice::from_ref(&kernel.layout))
                        .push_constant_ranges(std::slice::from_ref(&constants)),
                    None,
                )
                .map_err(failed("vkCreatePipelineLayout"))?;
            let module = raw
                .create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&code), None)
                .map_err(failed("vkCreateShaderModule"))?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main");
            let info = vk::ComputePipelineCreateInfo::default()
                .stage(stage)
                .layout(kernel.pipeline_layout);
            let made = raw.create_compute_pipelines(vk::PipelineCache::null(), &[info], None);
            raw.destroy_shader_module(module, None);
            let made =
                made.map_err(|(_, code)| native(device, "vkCreateComputePipelines", code))?;
            kernel.pipeline = made.into_iter().next().unwrap_or_default();
        }
        Ok(Arc::new(kernel))
    }

    /// Bindings of whole buffers, in the order of the shader's binding numbers.
    pub(crate) fn bind(&self, buffers: &[&Buffer]) -> Result<Bindings> {
        debug_assert_eq!(buffers.len(), self.buffers as usize);
        let raw = self.device.raw();
        let info = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(self.pool)
            .set_layouts(std::slice::from_ref(&self.layout));
        // SAFETY: pool and layout are this kernel's.
        let sets = unsafe { raw.allocate_descriptor_sets(&info) }
            .map_err(|code| native(&self.device, "vkAllocateDescriptorSets", code))?;
        let set = sets.into_iter().next().unwrap_or_default();
        let ranges: Vec<_> = buffers
            .iter()
            .map(|buffer| {
                vk::DescriptorBufferInfo::default()
                    .buffer(buffer.raw())
                    .range(vk::WHOLE_SIZE)
            })
            .collect();
        let writes: Vec<_> = ranges
            .iter()
            .zip(0..)
            .map(|(range, binding)| {
                vk::WriteDescriptorSet::default()
                    .dst_set(set)
                    .dst_binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(std::slice::from_ref(range))
            })
            .collect();
        // SAFETY: the set is new and no work uses it yet; the buffers are of this device.
        unsafe { raw.update_descriptor_sets(&writes, &[]) };
        Ok(Bindings(set))
    }

    /// Records one dispatch. `constants` has the length that the kernel was made for.
    pub(crate) fn dispatch(
        &self,
        raw: &ash::Device,
        commands: vk::CommandBuffer,
        bindings: Bindings,
        constants: &[u32],
        groups: [u32; 2],
    ) {
        let bytes: Vec<u8> = constants
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let compute = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: the command buffer is being recorded, and everything bound lives as long as the
        // kernel, which the submission keeps.
        unsafe {
            raw.cmd_bind_pipeline(commands, compute, self.pipeline);
            raw.cmd_bind_descriptor_sets(
                commands,
                compute,
                self.pipeline_layout,
                0,
                &[bindings.0],
                &[],
            );
            let stage = vk::ShaderStageFlags::COMPUTE;
            raw.cmd_push_constants(commands, self.pipeline_layout, stage, 0, &bytes);
            raw.cmd_dispatch(commands, groups[0], groups[1], 1);
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let raw = self.device.raw();
        // SAFETY: every submission that uses the kernel has kept it, so none is left; null handles
        // are ignored.
        unsafe {
            raw.destroy_pipeline(self.pipeline, None);
            raw.destroy_pipeline_layout(self.pipeline_layout, None);
            raw.destroy_descriptor_pool(self.pool, None);
            raw.destroy_descriptor_set_layout(self.layout, None);
        }
    }
}

fn native(device: &vulkan::Device, call: &'static str, code: vk::Result) -> Error {
    Error::native(
        device.object(),
        call,
        code.as_raw().into(),
        format!("{code:?}"),
    )
}
