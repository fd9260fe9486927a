//! The pipeline of [`frames`](crate::frames) by hand.
//!
//! The same kernels run on the same kinds of memory. Only calls of the drivers record and order
//! them.
#![allow(unsafe_code, reason = "calls the drivers, as the baseline")]

#[cfg(feature = "cuda")]
use std::ffi::c_void;
use std::sync::Arc;

use ash::vk;
use syncline::backend::Device as _;
use syncline::vulkan::{Buffer, Queue, QueueGuard};
use syncline::{Device, Link, QueueKind, SharedBuffer};

#[cfg(feature = "cuda")]
use super::cuda;
use super::vulkan::{Hand, Semaphore};
#[cfg(feature = "cuda")]
use crate::frames::stage::cuda as cuda_stage;
use crate::frames::stage::{Consumer, Producer, vulkan as stage};
use crate::frames::{READBACKS, SLOTS, Size, compute, pixels};
use crate::side::{Outcome, Stop};
use compute::{FRAME_BUFFER, STEPS_PER_FRAME, StepParams, group_count, prev_buffer};

/// One pipeline.
pub(crate) struct ByHand {
    size: Size,
    producer: Side,
    consumer: Recording,
    shader: Arc<stage::Shader>,
    _slots: Vec<SharedBuffer>,
    readbacks: Vec<syncline::Buffer>,
    produced: Semaphore,
    consumed: Semaphore,
    /// The position of the consumer's queue, if it has one.
    position: Option<Semaphore>,
    /// The hand of the consumer's queue. It owns the semaphores.
    hand: Hand,
}

/// The producer's side.
enum Side {
    Vulkan {
        waves: Arc<stage::Waves>,
        recording: Recording,
        /// The position of this queue, if it has one.
        position: Option<Semaphore>,
        hand: Hand,
    },
    #[cfg(feature = "cuda")]
    Cuda {
        waves: Arc<cuda_stage::Waves>,
        stream: cuda::Stream,
        produced: cuda::External,
        consumed: cuda::External,
        /// Recorded in turns behind the signals; empty without them.
        events: Vec<cuda::Event>,
        hand: cuda::Hand,
    },
}

/// A command buffer for each frame in flight.
struct Recording {
    device: syncline::vulkan::Device,
    family: u32,
    pool: vk::CommandPool,
    buffers: Vec<vk::CommandBuffer>,
    /// Keeps its place among the driver's queues.
    queue: Queue,
}

fn failed(call: &'static str) -> impl FnOnce(vk::Result) -> Stop {
    move |code| Stop::Failed(format!("{call} returned {code:?}"))
}

impl Recording {
    fn new(device: &syncline::vulkan::Device, label: &str) -> Outcome<Self> {
        let queue = device.queue(QueueKind::Compute, label)?;
        let family = queue.family();
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(family);
        // SAFETY: a valid description, and a family of which the device has queues.
        let pool = unsafe { device.raw().create_command_pool(&info, None) }
            .map_err(failed("vkCreateCommandPool"))?;
        let mut recording = Self {
            device: device.clone(),
            family,
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

    fn hand(&self) -> Hand {
        Hand::new(&self.device, self.queue.family(), self.queue.index())
    }

    /// Records the commands of a frame. The last frame that used the buffer has finished.
    fn record(
        &self,
        frame: u32,
        work: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Outcome<vk::CommandBuffer> {
        let commands = self.buffers[frame as usize % READBACKS];
        let raw = self.device.raw();
        let begin = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the buffers of the pool can be begun again, and no submission uses this one any
        // more.
        unsafe { raw.begin_command_buffer(commands, &begin) }
            .map_err(failed("vkBeginCommandBuffer"))?;
        work(raw, commands);
        self.order(commands);
        // SAFETY: begun above.
        unsafe { raw.end_command_buffer(commands) }.map_err(failed("vkEndCommandBuffer"))?;
        Ok(commands)
    }

    /// Orders all work before it before all work after it, and makes it visible to the host.
    fn order(&self, commands: vk::CommandBuffer) {
        let memory = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
            .dst_access_mask(
                vk::AccessFlags::MEMORY_READ
                    | vk::AccessFlags::MEMORY_WRITE
                    | vk::AccessFlags::HOST_READ,
            );
        // SAFETY: the buffer is being recorded.
        unsafe {
            self.device.raw().cmd_pipeline_barrier(
                commands,
                vk::PipelineStageFlags::ALL_COMMANDS,
                vk::PipelineStageFlags::ALL_COMMANDS | vk::PipelineStageFlags::HOST,
                vk::DependencyFlags::empty(),
                &[memory],
                &[],
                &[],
            );
        }
    }

    /// Acquires a buffer shared with CUDA, or releases it.
    fn hand_over(&self, commands: vk::CommandBuffer, buffer: &Buffer, taking: bool) {
        let barrier = if taking {
            buffer.acquire_barrier(self.family)
        } else {
            buffer.release_barrier(self.family)
        };
        let Some(barrier) = barrier else { return };
        let stages = vk::PipelineStageFlags::ALL_COMMANDS;
        // SAFETY: the buffer is being recorded, and the memory belongs to the pipeline.
        unsafe {
            self.device.raw().cmd_pipeline_barrier(
                commands,
                stages,
                stages,
                vk::DependencyFlags::empty(),
                &[],
                &[barrier.into()],
                &[],
            );
        }
    }

    /// `vkCmdCopyBuffer` of the whole buffer.
    fn copy(&self, commands: vk::CommandBuffer, from: &Buffer, to: &Buffer) {
        let region = vk::BufferCopy::default().size(from.size().min(to.size()));
        // SAFETY: the buffer is being recorded. These are two different buffers of the pipeline
        // with transfer usage.
        unsafe {
            self.device
                .raw()
                .cmd_copy_buffer(commands, from.raw(), to.raw(), &[region]);
        }
    }

    /// `vkCmdFillBuffer` with 0.
    fn clear(&self, commands: vk::CommandBuffer, buffer: &Buffer) {
        // SAFETY: the buffer is being recorded, and this is a buffer of the pipeline with transfer
        // usage.
        unsafe {
            self.device
                .raw()
                .cmd_fill_buffer(commands, buffer.raw(), 0, vk::WHOLE_SIZE, 0);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: the hands have waited for all submissions. The buffers are destroyed with their
        // pool.
        unsafe { self.device.raw().destroy_command_pool(self.pool, None) };
    }
}

/// Locks of the queues.
struct Locked {
    producing: Option<QueueGuard>,
    consuming: QueueGuard,
}

impl ByHand {
    /// A pipeline over `link`, whose right side is Vulkan.
    ///
    /// With `besides` it makes the additional calls of the contract: an event behind each signal of
    /// CUDA, and the positions of Vulkan's queues.
    pub(crate) fn new(link: &Link, size: Size, besides: bool) -> Outcome<Self> {
        let slots = (0..SLOTS)
            .map(|_| link.buffer(size.bytes()))
            .collect::<Result<Vec<_>, _>>()?;
        let readbacks = (0..READBACKS)
            .map(|_| syncline::Buffer::host_visible(link.right(), size.bytes()))
            .collect::<Result<Vec<_>, _>>()?;
        let left: Vec<_> = slots.iter().map(|slot| slot.left().clone()).collect();
        let right: Vec<_> = slots.iter().map(|slot| slot.right().clone()).collect();
        let producer = Producer::new(link.left(), size, left)?;
        let consumer = Consumer::shader(link.right(), size, right, readbacks.clone())?;
        let unfit = || Stop::Skipped("this pair has no pipeline by hand".into());
        let (Device::Vulkan(vulkan), Consumer::Shader(shader)) = (link.right(), consumer) else {
            return Err(unfit());
        };
        let recording = Recording::new(vulkan, "shade by hand")?;
        let hand = recording.hand();
        let (produced, consumed, producer) = match (producer, link.left()) {
            (Producer::Vulkan(waves), Device::Vulkan(own)) if own.id() == vulkan.id() => {
                let recording = Recording::new(vulkan, "simulate by hand")?;
                let own = recording.hand();
                let side = Side::Vulkan {
                    waves,
                    position: besides.then(|| own.semaphore(false)).transpose()?,
                    hand: own,
                    recording,
                };
                (hand.semaphore(false)?, hand.semaphore(false)?, side)
            }
            #[cfg(feature = "cuda")]
            (Producer::Cuda(waves), Device::Cuda(cuda)) => {
                let (produced, consumed) = (hand.semaphore(true)?, hand.semaphore(true)?);
                let other = cuda::Hand::new(cuda)?;
                let side = Side::Cuda {
                    waves,
                    stream: other.stream()?,
                    produced: other.import(hand.export(produced)?)?,
                    consumed: other.import(hand.export(consumed)?)?,
                    events: other.events(if besides { READBACKS as u64 } else { 0 }, false)?,
                    hand: other,
                };
                (produced, consumed, side)
            }
            _ => return Err(unfit()),
        };
        Ok(Self {
            size,
            producer,
            consumer: recording,
            shader,
            _slots: slots,
            readbacks,
            produced,
            consumed,
            position: besides.then(|| hand.semaphore(false)).transpose()?,
            hand,
        })
    }

    /// Makes `frames` frames beginning with number `first`, which is the next, and waits for the
    /// last.
    pub(crate) fn advance(&self, first: u32, frames: u32) -> Outcome<()> {
        let consuming = self.hand.lock()?;
        let producing = match &self.producer {
            Side::Vulkan {
                recording, hand, ..
            } => {
                let same = (recording.queue.family(), recording.queue.index())
                    == (consuming.family(), consuming.index());
                (!same).then(|| hand.lock()).transpose()?
            }
            #[cfg(feature = "cuda")]
            Side::Cuda { .. } => None,
        };
        let locked = Locked {
            producing,
            consuming,
        };
        let end = first + frames;
        for frame in first..end {
            if let Some(oldest) = frame.checked_sub(READBACKS as u32) {
                self.hand.poll(self.consumed.raw, u64::from(oldest) + 1)?;
            }
            self.produce(frame, &locked)?;
            self.consume(frame, &locked)?;
            self.hand.expect(self.produced, u64::from(frame) + 1);
            self.hand.expect(self.consumed, u64::from(frame) + 1);
            if let Some(position) = self.position {
                self.hand.expect(position, u64::from(frame) + 1);
            }
        }
        self.hand.poll(self.consumed.raw, end.into())
    }

    /// The pixels of a frame that has finished and is not overwritten yet.
    pub(crate) fn frame(&self, frame: u32) -> Vec<u32> {
        pixels(&self.readbacks, frame)
    }

    fn produce(&self, frame: u32, locked: &Locked) -> Outcome<()> {
        let number = u64::from(frame) + 1;
        let slot = frame as usize % SLOTS;
        // The last frame in this slot has been shaded.
        let free = number.checked_sub(SLOTS as u64).filter(|free| *free > 0);
        match &self.producer {
            Side::Vulkan {
                waves,
                recording,
                position,
                hand,
            } => {
                let commands = recording.record(frame, |raw, commands| {
                    self.simulate(waves, recording, raw, commands, frame, slot);
                })?;
                let queue = locked.producing.as_ref().unwrap_or(&locked.consuming);
                let (wait, value) = ([self.consumed.raw], [free.unwrap_or_default()]);
                let waits = usize::from(free.is_some());
                let waits = (&wait[..waits], &value[..waits]);
                submit(
                    hand,
                    queue,
                    commands,
                    waits,
                    self.produced,
                    *position,
                    number,
                )?;
                if let Some(position) = position {
                    hand.expect(*position, number);
                }
                Ok(())
            }
            #[cfg(feature = "cuda")]
            Side::Cuda {
                waves,
                stream,
                produced,
                consumed,
                events,
                hand,
            } => {
                if let Some(free) = free {
                    hand.wait_external(&[*consumed], &[cuda::wait_params(free)], *stream)?;
                }
                self.simulate_cuda(waves, hand, *stream, frame, slot)?;
                hand.signal_external(&[*produced], &[cuda::signal_params(number)], *stream)?;
                match events.get(frame as usize % READBACKS) {
                    Some(event) => hand.record(*event, *stream),
                    None => Ok(()),
                }
            }
        }
    }

    fn simulate(
        &self,
        waves: &stage::Waves,
        recording: &Recording,
        raw: &ash::Device,
        commands: vk::CommandBuffer,
        frame: u32,
        slot: usize,
    ) {
        let Size { width, height } = self.size;
        let slot = &waves.slots[slot];
        if frame == 0 {
            waves
                .field
                .iter()
                .for_each(|field| recording.clear(commands, field));
            recording.order(commands);
        }
        for number in frame * STEPS_PER_FRAME..(frame + 1) * STEPS_PER_FRAME {
            let params = StepParams::at(width, height, number);
            let groups = [group_count(width), group_count(height)];
            let bindings = waves.roles[prev_buffer(number)];
            waves
                .step
                .dispatch(raw, commands, bindings, &params.words(), groups);
            recording.order(commands);
        }
        recording.hand_over(commands, slot, true);
        recording.copy(commands, &waves.field[FRAME_BUFFER], slot);
        recording.order(commands);
        recording.hand_over(commands, slot, false);
    }

    #[cfg(feature = "cuda")]
    fn simulate_cuda(
        &self,
        waves: &cuda_stage::Waves,
        hand: &cuda::Hand,
        stream: cuda::Stream,
        frame: u32,
        slot: usize,
    ) -> Outcome<()> {
        fn pointer<T>(value: &mut T) -> *mut c_void {
            std::ptr::from_mut(value).cast()
        }
        if frame == 0 {
            for field in &waves.field {
                hand.clear(field, stream)?;
            }
        }
        let Size { width, height } = self.size;
        for number in frame * STEPS_PER_FRAME..(frame + 1) * STEPS_PER_FRAME {
            let prev = prev_buffer(number);
            let mut fields = [waves.field[prev].pointer(), waves.field[1 - prev].pointer()];
            let mut words = StepParams::at(width, height, number).words();
            let mut params: Vec<_> = fields
                .iter_mut()
                .map(pointer)
                .chain(words.iter_mut().map(pointer))
                .collect();
            // SAFETY: `step` takes two pointers to width * height words each, then the words of
            // StepParams in their order. The buffers belong to the pipeline, which ends after its
            // stream.
            unsafe {
                hand.launch(
                    &waves.step,
                    cuda_stage::grid(self.size),
                    cuda_stage::BLOCK,
                    &mut params,
                    stream,
                )
            }?;
        }
        hand.copy(&waves.field[FRAME_BUFFER], &waves.slots[slot], stream)
    }

    fn consume(&self, frame: u32, locked: &Locked) -> Outcome<()> {
        let number = u64::from(frame) + 1;
        let Size { width, height } = self.size;
        let (slot, readback) = (frame as usize % SLOTS, frame as usize % READBACKS);
        let (recording, shader) = (&self.consumer, &self.shader);
        let commands = recording.record(frame, |raw, commands| {
            recording.hand_over(commands, &shader.slots[slot], true);
            // The copy of the last frame reads the memory that this dispatch writes.
            recording.order(commands);
            let groups = [group_count(width), group_count(height)];
            shader.shade.dispatch(
                raw,
                commands,
                shader.sources[slot],
                &[width, height],
                groups,
            );
            recording.order(commands);
            recording.copy(commands, &shader.rgba, &shader.readbacks[readback]);
            recording.order(commands);
            recording.hand_over(commands, &shader.slots[slot], false);
        })?;
        submit(
            &self.hand,
            &locked.consuming,
            commands,
            (&[self.produced.raw], &[number]),
            self.consumed,
            self.position,
            number,
        )
    }
}

/// Makes one submission that signals `number` and the position of the queue, if it has one.
#[inline]
fn submit(
    hand: &Hand,
    queue: &QueueGuard,
    commands: vk::CommandBuffer,
    waits: (&[vk::Semaphore], &[u64]),
    signal: Semaphore,
    position: Option<Semaphore>,
    number: u64,
) -> Outcome<()> {
    match position {
        Some(position) => {
            let signals = [signal.raw, position.raw];
            hand.submit_commands(queue, &[commands], waits, (&signals, &[number, number]))
        }
        None => hand.submit_commands(queue, &[commands], waits, (&[signal.raw], &[number])),
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        // The code after this frees memory that the drivers may still use after a failure. If the
        // last frame never ends, the process reports the failure and ends.
        let _ = self.hand.settle();
        #[cfg(feature = "cuda")]
        if let Side::Cuda { stream, hand, .. } = &self.producer {
            let _ = hand.finish(*stream);
        }
    }
}
