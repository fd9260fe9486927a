//! The application's shader, in wgpu.

use syncline::vulkan;
use syncline_recipes::{BYTES, LIMIT, Stop, WORDS, produced};

use crate::gpu::Gpu;

const SHADER: &str = "
    @group(0) @binding(0) var<storage, read> frame: array<u32>;
    @group(0) @binding(1) var<storage, read_write> picture: array<u32>;

    @compute @workgroup_size(64)
    fn shade(@builtin(global_invocation_id) at: vec3<u32>) {
        if at.x < arrayLength(&frame) {
            picture[at.x] = (frame[at.x] * 3u) ^ 0x5aa5f00du;
        }
    }";

/// The word that the shader writes.
pub(crate) const fn shaded(frame: u32, index: u32) -> u32 {
    produced(frame, index).wrapping_mul(3) ^ 0x5aa5_f00d
}

/// A shared buffer as wgpu uses it, and the buffer in which the host reads the result.
pub(crate) struct Frame {
    shared: vulkan::Buffer,
    buffer: wgpu::Buffer,
    readback: wgpu::Buffer,
}

impl Frame {
    pub(crate) fn new(gpu: &Gpu, shared: &vulkan::Buffer) -> Self {
        let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ;
        Self {
            shared: shared.clone(),
            buffer: gpu.import(shared),
            readback: buffer(gpu, usage),
        }
    }

    /// Reads what the submission made of the frame.
    pub(crate) fn read(
        &self,
        gpu: &Gpu,
        submission: wgpu::SubmissionIndex,
    ) -> Result<Vec<u32>, Stop> {
        let all = self.readback.slice(..);
        all.map_async(wgpu::MapMode::Read, |_| ());
        gpu.device.poll(wgpu::PollType::Wait {
            submission_index: Some(submission),
            timeout: Some(LIMIT),
        })?;
        let view = all.get_mapped_range()?;
        let (words, _) = view.as_chunks::<4>();
        let words = words.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        drop(view);
        self.readback.unmap();
        Ok(words)
    }
}

fn buffer(gpu: &Gpu, usage: wgpu::BufferUsages) -> wgpu::Buffer {
    gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: BYTES,
        usage,
        mapped_at_creation: false,
    })
}

/// The shader, with the buffers that it reads and writes bound for each frame.
pub(crate) struct Shader {
    pipeline: wgpu::ComputePipeline,
    frames: Vec<wgpu::BindGroup>,
    picture: wgpu::Buffer,
}

impl Shader {
    pub(crate) fn new(gpu: &Gpu, frames: &[Frame]) -> Self {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
        let picture = buffer(gpu, usage);
        let module = gpu
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some("shade"),
                source: wgpu::ShaderSource::Wgsl(SHADER.into()),
            });
        let pipeline = gpu
            .device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some("shade"),
                layout: None,
                module: &module,
                entry_point: None,
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            });
        let bind = |frame: &Frame| {
            let buffers = [&frame.buffer, &picture];
            let entries = [0, 1].map(|binding| wgpu::BindGroupEntry {
                binding,
                resource: buffers[binding as usize].as_entire_binding(),
            });
            gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &pipeline.get_bind_group_layout(0),
                entries: &entries,
            })
        };
        Self {
            frames: frames.iter().map(bind).collect(),
            pipeline,
            picture,
        }
    }

    /// Takes the buffer from CUDA, shades its content, and gives the buffer back.
    ///
    /// Copies the result to a buffer that the host reads.
    pub(crate) fn commands(
        &self,
        gpu: &Gpu,
        slot: usize,
        frame: &Frame,
    ) -> Result<[wgpu::CommandBuffer; 3], Stop> {
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.frames[slot], &[]);
        pass.dispatch_workgroups(WORDS / 64, 1, 1);
        drop(pass);
        encoder.copy_buffer_to_buffer(&self.picture, 0, &frame.readback, 0, BYTES);
        Ok([
            gpu.transfer(|family| frame.shared.acquire_barrier(family))?,
            encoder.finish(),
            gpu.transfer(|family| frame.shared.release_barrier(family))?,
        ])
    }
}
