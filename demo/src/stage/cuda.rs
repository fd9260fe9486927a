//! The stages as CUDA kernels, from PTX that the driver compiles.

#![allow(
    unsafe_code,
    reason = "kernels are launched with raw parameters, as in an application"
)]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use syncline::cuda::{self, Buffer, Function};
use syncline::{Recorder, Result};

use super::{Between, Producer, copy};
use crate::Size;
use crate::compute::{
    FRAME_BUFFER, GROUP_SIDE, STEPS_PER_FRAME, StepParams, WAVE_PTX, group_count, prev_buffer,
};

/// The wave field.
pub(crate) struct Waves {
    size: Size,
    field: [Buffer; 2],
    slots: Vec<Buffer>,
    /// In place of the slots, if there are any.
    #[cfg(feature = "vulkan")]
    images: Vec<syncline::cuda::Image>,
    step: Function,
    delay: Function,
}

impl Waves {
    pub(crate) fn new(device: &cuda::Device, size: Size, between: Between) -> Result<Self> {
        #[cfg(feature = "vulkan")]
        if let Between::Images(images) = &between {
            let images = images.iter().map(|image| image.cuda().cloned());
            let images = images.collect::<Result<_>>()?;
            let without = Self::new(device, size, Between::Buffers(Vec::new()))?;
            return Ok(Self { images, ..without });
        }
        let module = device.module(WAVE_PTX)?;
        let slots = between.buffers()?.into_iter();
        Ok(Self {
            size,
            field: [device.buffer(size.bytes())?, device.buffer(size.bytes())?],
            slots: slots.map(Buffer::try_from).collect::<Result<_>>()?,
            #[cfg(feature = "vulkan")]
            images: Vec::new(),
            step: module.function("step")?,
            delay: module.function("delay")?,
        })
    }
}

impl Producer for Waves {
    fn record(
        self: Arc<Self>,
        recorder: &mut Recorder<'_>,
        frame: u32,
        slot: usize,
        late: Option<Duration>,
    ) -> Result<()> {
        let recorder = recorder.cuda()?;
        if frame == 0 {
            for buffer in &self.field {
                recorder.memset_d32(buffer, 0)?;
            }
        }
        if let Some(late) = late {
            let mut nanoseconds = late.as_nanos() as u64;
            let mut parameters = [pointer(&mut nanoseconds)];
            // SAFETY: `delay` takes one u64.
            unsafe { recorder.launch(&self.delay, [1; 3], [1; 3], &mut parameters)? };
        }
        let Size { width, height } = self.size;
        for number in frame * STEPS_PER_FRAME..(frame + 1) * STEPS_PER_FRAME {
            let prev = prev_buffer(number);
            let mut fields = [self.field[prev].pointer(), self.field[1 - prev].pointer()];
            let mut words = StepParams::at(width, height, number).words();
            let mut parameters: Vec<_> = fields
                .iter_mut()
                .map(pointer)
                .chain(words.iter_mut().map(pointer))
                .collect();
            // SAFETY: `step` takes two pointers to width * height words each, then the words of
            // StepParams in their order.
            unsafe { recorder.launch(&self.step, grid(self.size), BLOCK, &mut parameters)? };
        }
        // The recorder does not know the memory behind a kernel's pointers.
        recorder.keep(self.clone());
        let newest = &self.field[FRAME_BUFFER];
        #[cfg(feature = "vulkan")]
        if let Some(image) = self.images.get(slot) {
            return recorder.copy_buffer_to_image(newest, image, 0);
        }
        recorder.copy(newest, &self.slots[slot])
    }

    fn read(&self, slot: usize, heights: &[AtomicU32]) -> Result<()> {
        copy(self.slots[slot].as_words(), heights);
        Ok(())
    }
}

const BLOCK: [u32; 3] = [GROUP_SIDE, GROUP_SIDE, 1];

const fn grid(size: Size) -> [u32; 3] {
    [group_count(size.width), group_count(size.height), 1]
}

/// A kernel parameter: the driver reads it during the launch call.
fn pointer<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}
