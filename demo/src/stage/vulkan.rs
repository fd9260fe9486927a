//! The stages as Vulkan compute shaders.

#![allow(
    unsafe_code,
    reason = "compute pipelines are raw Vulkan, as in an application"
)]

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use ash::vk;
use syncline::Result;
use syncline::vulkan::{self, Buffer, Contents, Recorder};

use super::vulkan_kernel::{Bindings, Kernel};
use super::{Between, Producer, copy};
use crate::Size;
use crate::compute::{
    DELAY_MAX_ITERATIONS, DELAY_SPV, FRAME_BUFFER, STEP_SPV, STEPS_PER_FRAME, StepParams,
    group_count, prev_buffer,
};

/// The buffer usage that the shaders need.
const STORAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::STORAGE_BUFFER;

/// The wave field.
pub(crate) struct Waves {
    size: Size,
    field: [Buffer; 2],
    slots: Vec<Buffer>,
    /// In place of the slots, if there are any.
    images: Vec<vulkan::Image>,
    step: Arc<Kernel>,
    /// Which of the two buffers is `prev`.
    roles: [Bindings; 2],
    delay: Delay,
}

impl Waves {
    pub(crate) fn new(device: &vulkan::Device, size: Size, between: Between) -> Result<Self> {
        let (slots, images) = match between {
            Between::Buffers(slots) => (buffers(slots)?, Vec::new()),
            Between::Images(images) => (Vec::new(), self::images(&images)?),
        };
        let field = [
            device.device_buffer(size.bytes(), STORAGE)?,
            device.device_buffer(size.bytes(), STORAGE)?,
        ];
        let step = Kernel::new(device, STEP_SPV, 2, StepParams::WORDS, 2)?;
        let roles = [
            step.bind(&[&field[0], &field[1]])?,
            step.bind(&[&field[1], &field[0]])?,
        ];
        let delay = Delay::new(device)?;
        Ok(Self {
            size,
            field,
            slots,
            images,
            step,
            roles,
            delay,
        })
    }
}

impl Producer for Waves {
    /// Records the first use of the shared images, which have no contents yet.
    fn begin(&self, recorder: &mut syncline::Recorder<'_>) -> Result<()> {
        discard(&self.images, recorder.vulkan()?)
    }

    fn record(
        self: Arc<Self>,
        recorder: &mut syncline::Recorder<'_>,
        frame: u32,
        slot: usize,
        late: Option<Duration>,
    ) -> Result<()> {
        let recorder = recorder.vulkan()?;
        let Size { width, height } = self.size;
        let commands = recorder.command_buffer()?;
        if frame == 0 {
            for buffer in &self.field {
                recorder.fill_buffer(buffer, 0)?;
            }
        }
        if let Some(late) = late {
            self.delay.record(recorder, commands, late)?;
        }
        for number in frame * STEPS_PER_FRAME..(frame + 1) * STEPS_PER_FRAME {
            let params = StepParams::at(width, height, number);
            let groups = [group_count(width), group_count(height)];
            let bindings = self.roles[prev_buffer(number)];
            self.step.dispatch(
                recorder.device(),
                commands,
                bindings,
                &params.words(),
                groups,
            );
            recorder.order()?;
        }
        // The recorder does not know the buffers and kernels of a dispatch.
        recorder.keep(self.clone());
        let newest = &self.field[FRAME_BUFFER];
        if let Some(image) = self.images.get(slot) {
            return recorder.copy_buffer_to_image(newest, image, 0);
        }
        let slot = &self.slots[slot];
        recorder.acquire(slot)?;
        copy_last(recorder, commands, newest, slot);
        Ok(())
    }

    fn read(&self, slot: usize, heights: &[AtomicU32]) -> Result<()> {
        copy(self.slots[slot].as_words(), heights);
        Ok(())
    }
}

/// Copies all of `from`, as the last command of a submission.
///
/// [`Recorder::copy_buffer`] would add a barrier before the one that ends the recorder's commands.
/// The GPU would then wait once more for its writes.
fn copy_last(recorder: &Recorder<'_>, commands: vk::CommandBuffer, from: &Buffer, to: &Buffer) {
    let region = vk::BufferCopy::default().size(from.size());
    // SAFETY: the command buffer has been begun. These are two different buffers of the stage with
    // transfer usage and of the same size, and the submission keeps both.
    unsafe {
        recorder
            .device()
            .cmd_copy_buffer(commands, from.raw(), to.raw(), &[region]);
    }
}

/// Keeps a queue busy with arithmetic.
struct Delay {
    kernel: Arc<Kernel>,
    bindings: Bindings,
    _word: Buffer,
}

impl Delay {
    fn new(device: &vulkan::Device) -> Result<Self> {
        let word = device.device_buffer(4, STORAGE)?;
        let kernel = Kernel::new(device, DELAY_SPV, 1, 1, 1)?;
        let bindings = kernel.bind(&[&word])?;
        Ok(Self {
            kernel,
            bindings,
            _word: word,
        })
    }

    /// Records about `time` of work on a slow device and less on a fast one.
    ///
    /// Long enough that a consumer without a wait is early.
    fn record(
        &self,
        recorder: &mut Recorder<'_>,
        commands: vk::CommandBuffer,
        time: Duration,
    ) -> Result<()> {
        // A dispatch takes at least some ten milliseconds.
        for _ in 0..=time.as_millis() / 10 {
            let iterations = [DELAY_MAX_ITERATIONS];
            self.kernel.dispatch(
                recorder.device(),
                commands,
                self.bindings,
                &iterations,
                [1, 1],
            );
            recorder.order()?;
        }
        Ok(())
    }
}

/// Acquires new images and discards their contents.
pub(super) fn discard(images: &[vulkan::Image], recorder: &mut Recorder<'_>) -> Result<()> {
    let layout = vk::ImageLayout::GENERAL;
    let mut all = images.iter();
    all.try_for_each(|image| recorder.acquire_image(image, Contents::Discard, layout))
}

pub(super) fn images(images: &[syncline::Image]) -> Result<Vec<vulkan::Image>> {
    images.iter().map(|image| image.vulkan().cloned()).collect()
}

pub(super) fn buffers(memories: Vec<syncline::Buffer>) -> Result<Vec<Buffer>> {
    memories.into_iter().map(Buffer::try_from).collect()
}
