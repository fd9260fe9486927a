//! The pipeline of [`syncline_demo`] from CUDA to Vulkan by hand.
//!
//! The same kernels run, and the same commands draw. Calls of the drivers record the work and order
//! it. Syncline makes the shared memory, which no frame does.
#![allow(unsafe_code, reason = "calls the drivers, as the baseline")]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

use ash::vk;
use cudarc::driver::sys;
use syncline::backend::Device as _;
use syncline::image::{Format, ImageInfo, ImageUsage};
use syncline::vulkan::{self, Contents, Device, Queue};
use syncline::{Buffer, Link, QueueKind};
use syncline_demo::compute::{
    FRAME_BUFFER, GROUP_SIDE, STEPS_PER_FRAME, StepParams, WAVE_PTX, group_count, prev_buffer,
};
use syncline_demo::scene::View;
use syncline_demo::scene::image::{Image, Memory};
use syncline_demo::scene::renderer::Renderer;
use syncline_demo::stage::painter::{self, LAYOUT};
use syncline_demo::{READBACKS, SLOTS, pixels};

use super::cuda::{self, call};
use super::vulkan::{Hand, Semaphore, submit};
use crate::side::{Outcome, Stop};

const ALL: vk::PipelineStageFlags = vk::PipelineStageFlags::ALL_COMMANDS;

/// One pipeline. Its parts are dropped in this order, after its last work.
pub(crate) struct ByHand {
    view: View,
    stream: cuda::Stream,
    /// As CUDA imports them.
    externals: [cuda::External; 2],
    _cuda: cuda::Hand,
    field: [syncline::cuda::Buffer; 2],
    step: syncline::cuda::Function,
    recording: Recording,
    renderer: Renderer,
    slots: Shared,
    readbacks: Vec<Buffer>,
    /// Reaches n when frame n is in its slot, and when it is drawn.
    produced: Semaphore,
    consumed: Semaphore,
    /// Owns the semaphores.
    hand: Hand,
}

/// What the two APIs share.
#[derive(Clone, Copy)]
pub(crate) enum Slots {
    Images,
    Buffers,
}

/// The slots, as each of the two APIs has them.
enum Shared {
    Images(Vec<(syncline::cuda::Image, vulkan::Image)>),
    /// And the image into which Vulkan copies each of them first.
    Buffers(Vec<(syncline::cuda::Buffer, vulkan::Buffer)>, Image),
}

impl Shared {
    fn new(link: &Link, slots: Slots, view: View, memory: &Arc<Memory>) -> Outcome<Self> {
        let size = view.field();
        let image = || -> Outcome<_> {
            let usage = ImageUsage::SAMPLED;
            let image = link.image(&ImageInfo::d2(
                Format::R32Sint,
                size.width,
                size.height,
                usage,
            ))?;
            Ok((
                image.left().cuda()?.clone(),
                image.right().vulkan()?.clone(),
            ))
        };
        let buffer = || -> Outcome<_> {
            let buffer = link.buffer(size.bytes())?;
            Ok((
                buffer.left().cuda()?.clone(),
                buffer.right().vulkan()?.clone(),
            ))
        };
        Ok(match slots {
            Slots::Images => Self::Images((0..SLOTS).map(|_| image()).collect::<Outcome<_>>()?),
            Slots::Buffers => {
                let slots = (0..SLOTS).map(|_| buffer()).collect::<Outcome<_>>()?;
                Self::Buffers(slots, painter::image(memory, view)?)
            }
        })
    }
}

/// A command buffer for each frame in flight.
struct Recording {
    device: Device,
    pool: vk::CommandPool,
    buffers: Vec<vk::CommandBuffer>,
    /// Keeps its place among the driver's queues.
    queue: Queue,
}

fn failed(call: &'static str) -> impl FnOnce(vk::Result) -> Stop {
    move |code| Stop::Failed(format!("{call} returned {code:?}"))
}

impl Recording {
    fn new(device: &Device) -> Outcome<Self> {
        let queue = device.queue(QueueKind::Graphics, "draw by hand")?;
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(queue.family());
        // SAFETY: a valid description, and a family of which the device has queues.
        let pool = unsafe { device.raw().create_command_pool(&info, None) }
            .map_err(failed("vkCreateCommandPool"))?;
        let mut recording = Self {
            device: device.clone(),
            pool,
            buffers: Vec::new(),
            queue,
        };
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .command_buffer_count(READBACKS as u32);
        // SAFETY: the pool belongs to this.
        recording.buffers = unsafe { device.raw().allocate_command_buffers(&info) }
            .map_err(failed("vkAllocateCommandBuffers"))?;
        Ok(recording)
    }

    /// Records the commands of a frame. The last frame that used the buffer has finished.
    fn record(
        &self,
        frame: u32,
        work: impl FnOnce(vk::CommandBuffer),
    ) -> Outcome<vk::CommandBuffer> {
        let commands = self.buffers[frame as usize % READBACKS];
        let raw = self.device.raw();
        let begin = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the buffers of the pool can be begun again, and no submission uses this one any
        // more.
        unsafe { raw.begin_command_buffer(commands, &begin) }
            .map_err(failed("vkBeginCommandBuffer"))?;
        work(commands);
        // SAFETY: begun above.
        unsafe { raw.end_command_buffer(commands) }.map_err(failed("vkEndCommandBuffer"))?;
        Ok(commands)
    }

    /// Acquires an image from CUDA.
    fn acquire(&self, commands: vk::CommandBuffer, image: &vulkan::Image, contents: Contents) {
        let barrier = image.acquire_barrier(self.queue.family(), contents, LAYOUT);
        self.barrier(commands, ALL, &[], &[], &[barrier.into()]);
    }

    /// Releases an image to CUDA.
    fn release(&self, commands: vk::CommandBuffer, image: &vulkan::Image) {
        let barrier = image.release_barrier(self.queue.family(), LAYOUT);
        self.barrier(commands, ALL, &[], &[], &[barrier.into()]);
    }

    /// Acquires a buffer from CUDA, or releases it to CUDA.
    fn transfer(&self, commands: vk::CommandBuffer, barrier: Option<vulkan::OwnershipBarrier>) {
        if let Some(barrier) = barrier {
            self.barrier(commands, ALL, &[], &[barrier.into()], &[]);
        }
    }

    /// Acquires a buffer, and copies it to the image, where shaders see the copy.
    fn copy(&self, commands: vk::CommandBuffer, view: View, slot: &vulkan::Buffer, to: &Image) {
        self.transfer(commands, slot.acquire_barrier(self.queue.family()));
        // SAFETY: the buffer is being recorded for the queue that draws. The pipeline has the slot
        // and the image, which have the same size.
        unsafe { painter::copy(self.device.raw(), commands, view, slot.raw(), to) };
        let copied = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::SHADER_READ);
        self.barrier(commands, ALL, &[copied], &[], &[]);
    }

    /// Makes all writes visible to the host.
    fn show(&self, commands: vk::CommandBuffer) {
        let memory = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
            .dst_access_mask(vk::AccessFlags::HOST_READ);
        let host = vk::PipelineStageFlags::HOST;
        self.barrier(commands, host, &[memory], &[], &[]);
    }

    fn barrier(
        &self,
        commands: vk::CommandBuffer,
        then: vk::PipelineStageFlags,
        memory: &[vk::MemoryBarrier<'_>],
        buffers: &[vk::BufferMemoryBarrier<'_>],
        images: &[vk::ImageMemoryBarrier<'_>],
    ) {
        let none = vk::DependencyFlags::empty();
        // SAFETY: the buffer is being recorded, and the images belong to the pipeline.
        unsafe {
            let raw = self.device.raw();
            raw.cmd_pipeline_barrier(commands, ALL, then, none, memory, buffers, images);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: the pipeline has waited for all submissions. The buffers are destroyed with their
        // pool.
        unsafe { self.device.raw().destroy_command_pool(self.pool, None) };
    }
}

impl ByHand {
    /// A pipeline from CUDA on the left of `link` to Vulkan on the right.
    pub(crate) fn new(link: &Link, view: View, slots: Slots) -> Outcome<Self> {
        let (syncline::Device::Cuda(other), syncline::Device::Vulkan(device)) =
            (link.left(), link.right())
        else {
            return Err(Stop::Skipped("this pair has no pipeline by hand".into()));
        };
        let readbacks =
            (0..READBACKS).map(|_| Buffer::host_visible(link.right(), view.picture().bytes()));
        let memory = Memory::new(device)?;
        let slots = Shared::new(link, slots, view, &memory)?;
        let images: Vec<_> = match &slots {
            Shared::Images(images) => images.iter().map(|(_, image)| image.raw()).collect(),
            Shared::Buffers(_, image) => vec![image.raw],
        };
        // SAFETY: images of this device, with the format, the size and the usage. They are dropped
        // after the renderer.
        let renderer = unsafe { Renderer::new(&memory, view, &images, LAYOUT)? };
        let recording = Recording::new(device)?;
        let hand = Hand::new(device, &recording.queue)?;
        let (produced, consumed) = (hand.semaphore(true)?, hand.semaphore(true)?);
        let cuda = cuda::Hand::new(other)?;
        let field = || other.buffer(view.field().bytes());
        let made = Self {
            view,
            stream: cuda.stream()?,
            externals: [
                cuda.import(hand.export(produced)?)?,
                cuda.import(hand.export(consumed)?)?,
            ],
            _cuda: cuda,
            field: [field()?, field()?],
            step: other.module(WAVE_PTX)?.function("step")?,
            recording,
            renderer,
            slots,
            readbacks: readbacks.collect::<Result<_, _>>()?,
            produced,
            consumed,
            hand,
        };
        made.begin()?;
        Ok(made)
    }

    /// Brings the new images into their layout, and gives them to CUDA.
    fn begin(&self) -> Outcome<()> {
        let commands = self.recording.record(0, |commands| {
            if let Shared::Images(images) = &self.slots {
                for (_, image) in images {
                    self.recording.acquire(commands, image, Contents::Discard);
                    self.recording.release(commands, image);
                }
            }
        })?;
        self.submit(commands, (&[], &[]), (&[], &[]))?;
        self.hand.settle()
    }

    fn submit(
        &self,
        commands: vk::CommandBuffer,
        waits: (&[vk::Semaphore], &[u64]),
        signals: (&[vk::Semaphore], &[u64]),
    ) -> Outcome<()> {
        let queue = self.hand.queue();
        submit(&self.recording.device, queue, &[commands], waits, signals)
    }

    /// Makes `frames` frames beginning with number `first`, which is the next, and waits for the
    /// last.
    pub(crate) fn advance(&self, first: u32, frames: u32) -> Outcome<()> {
        let end = first + frames;
        for frame in first..end {
            if let Some(oldest) = frame.checked_sub(READBACKS as u32) {
                self.hand.wait(self.consumed.raw, u64::from(oldest) + 1)?;
            }
            self.simulate(frame)?;
            self.hand.expect(self.produced, u64::from(frame) + 1);
            self.draw(frame)?;
            self.hand.expect(self.consumed, u64::from(frame) + 1);
        }
        self.hand.wait(self.consumed.raw, end.into())
    }

    /// The pixels of a frame that has finished and is not overwritten yet.
    pub(crate) fn frame(&self, frame: u32) -> Vec<u32> {
        pixels(&self.readbacks, frame)
    }

    fn simulate(&self, frame: u32) -> Outcome<()> {
        fn pointer<T>(value: &mut T) -> *mut c_void {
            std::ptr::from_mut(value).cast()
        }
        let (number, slot) = (u64::from(frame) + 1, frame as usize % SLOTS);
        let ([produced, consumed], stream) = (self.externals, self.stream);
        // The last frame in this slot has been drawn.
        if let Some(free @ 1..) = number.checked_sub(SLOTS as u64) {
            cuda::wait_external(&[consumed], &[cuda::wait_params(free)], stream)?;
        }
        if frame == 0 {
            for field in &self.field {
                cuda::clear(field, stream)?;
            }
        }
        let size = self.view.field();
        let [x, y] = [size.width, size.height].map(group_count);
        for number in frame * STEPS_PER_FRAME..(frame + 1) * STEPS_PER_FRAME {
            let prev = prev_buffer(number);
            let mut fields = [self.field[prev].pointer(), self.field[1 - prev].pointer()];
            let mut words = StepParams::at(size.width, size.height, number).words();
            let fields = fields.iter_mut().map(pointer);
            let mut params: Vec<_> = fields.chain(words.iter_mut().map(pointer)).collect();
            let (step, params) = (self.step.raw(), params.as_mut_ptr());
            let (side, none) = (GROUP_SIDE, null_mut());
            // SAFETY: `step` takes two pointers to width * height words each, then the words of
            // StepParams in their order. The buffers belong to the pipeline, which ends after its
            // stream.
            unsafe {
                call!(cuLaunchKernel(
                    step, x, y, 1, side, side, 1, 0, stream, params, none
                ))
            }?;
        }
        let from = &self.field[FRAME_BUFFER];
        match &self.slots {
            Shared::Images(images) => {
                let [width, height] = [size.width, size.height].map(|side| side as usize);
                let array = images[slot].0.array(0)?;
                let mut copy = MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
                let at = copy.as_mut_ptr();
                // SAFETY: in bounds of the structure, whose zeros are valid except for the two
                // types. The buffer has this many words, and the image this extent.
                unsafe {
                    (*at).srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
                    (*at).srcDevice = from.pointer();
                    ((*at).srcPitch, (*at).srcHeight) = (4 * width, height);
                    (*at).dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_ARRAY;
                    (*at).dstArray = array;
                    ((*at).WidthInBytes, (*at).Height, (*at).Depth) = (4 * width, height, 1);
                    call!(cuMemcpy3DAsync_v2(at, stream))?;
                }
            }
            Shared::Buffers(buffers, _) => {
                let (to, bytes) = (&buffers[slot].0, from.size() as usize);
                let (to, from) = (to.pointer(), from.pointer());
                // SAFETY: two buffers of this size.
                unsafe { call!(cuMemcpyDtoDAsync_v2(to, from, bytes, stream)) }?;
            }
        }
        cuda::signal_external(&[produced], &[cuda::signal_params(number)], stream)
    }

    fn draw(&self, frame: u32) -> Outcome<()> {
        let (number, slot) = (u64::from(frame) + 1, frame as usize % SLOTS);
        let picture = self.readbacks[frame as usize % READBACKS].vulkan()?.raw();
        let recording = &self.recording;
        let commands = recording.record(frame, |commands| {
            let source = match &self.slots {
                Shared::Images(images) => {
                    recording.acquire(commands, &images[slot].1, Contents::Keep);
                    slot
                }
                Shared::Buffers(buffers, image) => {
                    recording.copy(commands, self.view, &buffers[slot].1, image);
                    0
                }
            };
            // SAFETY: the buffer is being recorded for a queue with graphics, whose submissions
            // execute in order. All this belongs to the pipeline. The picture has 4 bytes for each
            // pixel.
            unsafe { self.renderer.record(commands, source, picture) };
            match &self.slots {
                Shared::Images(images) => recording.release(commands, &images[slot].1),
                Shared::Buffers(buffers, _) => {
                    let family = recording.queue.family();
                    recording.transfer(commands, buffers[slot].1.release_barrier(family));
                }
            }
            recording.show(commands);
        })?;
        let (waits, signals) = ([self.produced.raw], [self.consumed.raw]);
        self.submit(commands, (&waits, &[number]), (&signals, &[number]))
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        // The code after this frees memory that the drivers may still use after a failure. If the
        // last frame never ends, the process reports the failure and ends.
        let _ = self.hand.settle();
        let _ = cuda::finish(self.stream);
    }
}
