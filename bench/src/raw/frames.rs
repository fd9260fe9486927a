//! The pipeline of [`syncline_demo`] from CUDA to Vulkan by hand.
//!
//! The same kernels run, and the same commands draw. Calls of the drivers share the images, and
//! record and order the work.
#![allow(unsafe_code, reason = "calls the drivers, as the baseline")]

use std::ffi::c_void;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::Arc;

use ash::vk;
use syncline::backend::Device as _;
use syncline::vulkan::{self, Device, Queue, QueueGuard};
use syncline::{Buffer, Link, QueueKind};

use super::cuda;
use super::vulkan::{Hand, Semaphore};
use crate::side::{Outcome, Stop};
use syncline_demo::compute::{
    FRAME_BUFFER, GROUP_SIDE, STEPS_PER_FRAME, StepParams, WAVE_PTX, group_count, prev_buffer,
};
use syncline_demo::scene::View;
use syncline_demo::scene::image::{self, Memory, whole};
use syncline_demo::scene::renderer::{HEIGHTS, Renderer};
use syncline_demo::stage::painter::{self, LAYOUT};
use syncline_demo::{READBACKS, SLOTS, pixels};

const ALL: vk::PipelineStageFlags = vk::PipelineStageFlags::ALL_COMMANDS;

const HANDLES: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

/// One pipeline. Its parts are dropped in this order, after its last work.
pub(crate) struct ByHand {
    view: View,
    /// The same images as `images`.
    arrays: Vec<cuda::Image>,
    stream: cuda::Stream,
    /// As CUDA imports them.
    externals: [cuda::External; 2],
    cuda: cuda::Hand,
    field: [syncline::cuda::Buffer; 2],
    step: syncline::cuda::Function,
    recording: Recording,
    renderer: Renderer,
    images: Vec<Image>,
    /// In place of the images.
    buffers: Option<Buffers>,
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

/// Shared buffers, and the image into which Vulkan copies each of them first.
///
/// Syncline makes their memory, which no frame does.
struct Buffers {
    left: Vec<syncline::cuda::Buffer>,
    right: Vec<vulkan::Buffer>,
    image: image::Image,
}

impl Buffers {
    fn new(link: &Link, memory: &Arc<Memory>, view: View) -> Outcome<Self> {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for _ in 0..SLOTS {
            let buffer = link.buffer(view.field().bytes())?;
            left.push(buffer.left().cuda()?.clone());
            right.push(buffer.right().vulkan()?.clone());
        }
        let image = painter::image(memory, view)?;
        Ok(Self { left, right, image })
    }
}

/// An image in exportable memory of its own.
struct Image {
    device: Device,
    raw: vk::Image,
    memory: vk::DeviceMemory,
    bytes: u64,
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

impl Image {
    fn new(device: &Device, [width, height]: [u32; 2]) -> Outcome<Self> {
        let raw = device.raw();
        // After a failure, dropping it destroys the objects made so far.
        let mut made = Self {
            device: device.clone(),
            raw: vk::Image::null(),
            memory: vk::DeviceMemory::null(),
            bytes: 0,
        };
        let transfers = vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST;
        let mut external = vk::ExternalMemoryImageCreateInfo::default().handle_types(HANDLES);
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(HEIGHTS)
            .extent(vk::Extent3D {
                width,
                height,
                depth: 1,
            })
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(vk::ImageTiling::OPTIMAL)
            .usage(transfers | vk::ImageUsageFlags::SAMPLED)
            .sharing_mode(vk::SharingMode::EXCLUSIVE)
            .push_next(&mut external);
        // SAFETY: a valid description of an image that Syncline shares, too.
        made.raw = unsafe { raw.create_image(&info, None) }.map_err(failed("vkCreateImage"))?;
        // SAFETY: the image and the physical device are of this device.
        let (needs, memory) = unsafe {
            let instance = device.instance();
            (
                raw.get_image_memory_requirements(made.raw),
                instance.get_physical_device_memory_properties(device.physical()),
            )
        };
        let is_local = |kind: &vk::MemoryType| {
            let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
            kind.property_flags.contains(local)
        };
        let kinds = (0..).zip(memory.memory_types_as_slice());
        let kind = kinds
            .filter(|(at, kind)| needs.memory_type_bits & 1 << at != 0 && is_local(kind))
            .map(|(at, _)| at)
            .next()
            .ok_or_else(|| Stop::Failed("no memory for a shared image".into()))?;
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(HANDLES);
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().image(made.raw);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(kind)
            .push_next(&mut export)
            .push_next(&mut dedicated);
        made.bytes = needs.size;
        // SAFETY: as the image needs it. It is bound once, to memory of its own.
        unsafe {
            made.memory = raw
                .allocate_memory(&info, None)
                .map_err(failed("vkAllocateMemory"))?;
            raw.bind_image_memory(made.raw, made.memory, 0)
                .map_err(failed("vkBindImageMemory"))?;
        }
        Ok(made)
    }

    /// `vkGetMemoryFdKHR`.
    fn export(&self) -> Outcome<OwnedFd> {
        let (instance, raw) = (self.device.instance(), self.device.raw());
        let functions = ash::khr::external_memory_fd::Device::new(instance, raw);
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(self.memory)
            .handle_type(HANDLES);
        // SAFETY: live memory that was made for handles of this type, on a device with the
        // extension. The new descriptor has this as its only owner.
        unsafe {
            let fd = functions.get_memory_fd(&info);
            Ok(OwnedFd::from_raw_fd(
                fd.map_err(failed("vkGetMemoryFdKHR"))?,
            ))
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let raw = self.device.raw();
        // SAFETY: made here, and no longer used. Null handles are ignored.
        unsafe {
            raw.destroy_image(self.raw, None);
            raw.free_memory(self.memory, None);
        }
    }
}

/// A transfer of an image between CUDA and Vulkan.
#[derive(Clone, Copy)]
enum Step {
    /// From CUDA. The image is new, so it has no contents.
    AcquireNew,
    /// From CUDA.
    Acquire,
    /// To CUDA.
    Release,
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

    /// Acquires an image from CUDA, or releases it to CUDA.
    fn hand_over(&self, commands: vk::CommandBuffer, image: &Image, step: Step) {
        let own = self.queue.family();
        let all = vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE;
        let barrier = vk::ImageMemoryBarrier::default()
            .image(image.raw)
            .subresource_range(whole(HEIGHTS))
            .old_layout(match step {
                Step::AcquireNew => vk::ImageLayout::UNDEFINED,
                Step::Acquire | Step::Release => LAYOUT,
            })
            .new_layout(LAYOUT);
        let barrier = match step {
            Step::AcquireNew | Step::Acquire => barrier
                .dst_access_mask(all)
                .src_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL)
                .dst_queue_family_index(own),
            Step::Release => barrier
                .src_access_mask(all)
                .src_queue_family_index(own)
                .dst_queue_family_index(vk::QUEUE_FAMILY_EXTERNAL),
        };
        self.barrier(commands, ALL, &[], &[], &[barrier]);
    }

    /// Copies a buffer to the image after it. The buffer is acquired, and the copy visible.
    fn copy(&self, commands: vk::CommandBuffer, view: View, buffers: &Buffers, slot: usize) {
        let (raw, slot) = (self.device.raw(), &buffers.right[slot]);
        self.transfer(commands, slot.acquire_barrier(self.queue.family()));
        // SAFETY: the buffer is being recorded for the queue that draws. The pipeline has the slot
        // and the image, which have the same size.
        unsafe { painter::copy(raw, commands, view, slot.raw(), &buffers.image) };
        let copied = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::SHADER_READ);
        self.barrier(commands, ALL, &[copied], &[], &[]);
    }

    /// Acquires a buffer from CUDA, or releases it to CUDA.
    fn transfer(&self, commands: vk::CommandBuffer, barrier: Option<vulkan::OwnershipBarrier>) {
        if let Some(barrier) = barrier {
            self.barrier(commands, ALL, &[], &[barrier.into()], &[]);
        }
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
        // SAFETY: the hand has waited for all submissions. The buffers are destroyed with their
        // pool.
        unsafe { self.device.raw().destroy_command_pool(self.pool, None) };
    }
}

impl ByHand {
    /// A pipeline from CUDA on the left of `link` to Vulkan on the right.
    pub(crate) fn new(link: &Link, view: View, slots: Slots) -> Outcome<Self> {
        let (left, right) = (link.left(), link.right());
        let (syncline::Device::Cuda(other), syncline::Device::Vulkan(device)) = (left, right)
        else {
            return Err(Stop::Skipped("this pair has no pipeline by hand".into()));
        };
        let readbacks = (0..READBACKS)
            .map(|_| Buffer::host_visible(right, view.picture().bytes()))
            .collect::<Result<Vec<_>, _>>()?;
        let (side, bytes) = (view.side.cast_unsigned(), view.field().bytes());
        let memory = Memory::new(device)?;
        let (mut images, mut buffers) = (Vec::new(), None);
        match slots {
            Slots::Buffers => buffers = Some(Buffers::new(link, &memory, view)?),
            Slots::Images => {
                for _ in 0..SLOTS {
                    images.push(Image::new(device, [side; 2])?);
                }
            }
        }
        let own = buffers.iter().map(|buffers| buffers.image.raw);
        let raws: Vec<_> = images.iter().map(|image| image.raw).chain(own).collect();
        // SAFETY: images of this device, with the format, the size and the usage. They are dropped
        // after the renderer.
        let renderer = unsafe { Renderer::new(&memory, view, &raws, LAYOUT)? };
        let recording = Recording::new(device)?;
        let queue = &recording.queue;
        let hand = Hand::new(device, queue.family(), queue.index());
        let (produced, consumed) = (hand.semaphore(true)?, hand.semaphore(true)?);
        let cuda = cuda::Hand::new(other)?;
        let arrays = images.iter().map(|image| {
            let extent = [side as usize; 2];
            cuda::Image::import(&cuda, image.export()?, image.bytes, extent)
        });
        let made = Self {
            view,
            arrays: arrays.collect::<Outcome<_>>()?,
            stream: cuda.stream()?,
            externals: [
                cuda.import(hand.export(produced)?)?,
                cuda.import(hand.export(consumed)?)?,
            ],
            cuda,
            field: [other.buffer(bytes)?, other.buffer(bytes)?],
            step: other.module(WAVE_PTX)?.function(c"step")?,
            recording,
            renderer,
            images,
            buffers,
            readbacks,
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
            for image in &self.images {
                self.recording.hand_over(commands, image, Step::AcquireNew);
                self.recording.hand_over(commands, image, Step::Release);
            }
        })?;
        let none = (&[][..], &[][..]);
        self.hand
            .submit_commands(&self.hand.lock()?, &[commands], none, none)?;
        self.hand.settle()
    }

    /// Makes `frames` frames beginning with number `first`, which is the next, and waits for the
    /// last.
    pub(crate) fn advance(&self, first: u32, frames: u32) -> Outcome<()> {
        let queue = self.hand.lock()?;
        let end = first + frames;
        for frame in first..end {
            if let Some(oldest) = frame.checked_sub(READBACKS as u32) {
                self.hand.wait(self.consumed.raw, u64::from(oldest) + 1)?;
            }
            self.simulate(frame)?;
            self.hand.expect(self.produced, u64::from(frame) + 1);
            self.draw(frame, &queue)?;
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
        let (cuda, stream) = (&self.cuda, self.stream);
        let [produced, consumed] = self.externals;
        // The last frame in this slot has been drawn.
        if let Some(free @ 1..) = number.checked_sub(SLOTS as u64) {
            cuda.wait_external(&[consumed], &[cuda::wait_params(free)], stream)?;
        }
        if frame == 0 {
            for field in &self.field {
                cuda.clear(field, stream)?;
            }
        }
        let size = self.view.field();
        for number in frame * STEPS_PER_FRAME..(frame + 1) * STEPS_PER_FRAME {
            let prev = prev_buffer(number);
            let mut fields = [self.field[prev].pointer(), self.field[1 - prev].pointer()];
            let mut words = StepParams::at(size.width, size.height, number).words();
            let mut params: Vec<_> = fields
                .iter_mut()
                .map(pointer)
                .chain(words.iter_mut().map(pointer))
                .collect();
            // SAFETY: `step` takes two pointers to width * height words each, then the words of
            // StepParams in their order. The buffers belong to the pipeline, which ends after its
            // stream.
            unsafe {
                let grid = [group_count(size.width), group_count(size.height), 1];
                let block = [GROUP_SIDE, GROUP_SIDE, 1];
                cuda.launch(&self.step, grid, block, &mut params, stream)
            }?;
        }
        let newest = &self.field[FRAME_BUFFER];
        match &self.buffers {
            Some(buffers) => cuda.copy(newest, &buffers.left[slot], stream)?,
            None => cuda.copy_to_image(newest, &self.arrays[slot], stream)?,
        }
        cuda.signal_external(&[produced], &[cuda::signal_params(number)], stream)
    }

    fn draw(&self, frame: u32, queue: &QueueGuard) -> Outcome<()> {
        let (number, slot) = (u64::from(frame) + 1, frame as usize % SLOTS);
        let syncline::Buffer::Vulkan(picture) = &self.readbacks[frame as usize % READBACKS] else {
            return Err(Stop::Failed("the picture is not of Vulkan".into()));
        };
        let recording = &self.recording;
        let commands = recording.record(frame, |commands| {
            let source = match &self.buffers {
                Some(buffers) => {
                    recording.copy(commands, self.view, buffers, slot);
                    0
                }
                None => {
                    recording.hand_over(commands, &self.images[slot], Step::Acquire);
                    slot
                }
            };
            // SAFETY: the buffer is being recorded for a queue with graphics, whose submissions
            // execute in order. All this belongs to the pipeline. The picture has 4 bytes for each
            // pixel.
            unsafe { self.renderer.record(commands, source, picture.raw()) };
            match &self.buffers {
                Some(buffers) => {
                    let released = buffers.right[slot].release_barrier(recording.queue.family());
                    recording.transfer(commands, released);
                }
                None => recording.hand_over(commands, &self.images[slot], Step::Release),
            }
            recording.show(commands);
        })?;
        let (waits, signals) = ([self.produced.raw], [self.consumed.raw]);
        let (waits, signals) = ((&waits[..], &[number][..]), (&signals[..], &[number][..]));
        self.hand
            .submit_commands(queue, &[commands], waits, signals)
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        // The code after this frees memory that the drivers may still use after a failure. If the
        // last frame never ends, the process reports the failure and ends.
        let _ = self.hand.settle();
        let _ = self.cuda.finish(self.stream);
    }
}
