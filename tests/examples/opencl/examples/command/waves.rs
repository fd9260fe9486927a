//! The producer of the demo, in OpenCL C.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use syncline::Result;
use syncline_conformance::Subject as _;
use syncline_demo::compute::{FRAME_BUFFER, STEPS_PER_FRAME, StepParams, prev_buffer};
use syncline_demo::{Producer, SLOTS, Size};
use syncline_opencl::{Arg, Buffer, Device, Kernel, Recorder};

use crate::work::OpenCl;

/// The field of waves.
pub(crate) struct Waves {
    size: Size,
    step: Arc<Kernel>,
    field: Vec<Buffer>,
    slots: Vec<Buffer>,
    /// For the delay.
    busy: OpenCl,
}

impl Waves {
    pub(crate) fn new(device: &Device, size: Size) -> Result<Self> {
        // SAFETY: both buffers have as many words as there are cells and items.
        #[allow(unsafe_code, reason = "vouches for a kernel")]
        let step = unsafe { device.kernel(include_str!("step.cl"), c"advance")? };
        let words = (size.bytes() / 4) as usize;
        let buffers = |count| {
            (0..count)
                .map(|_| device.buffer(words))
                .collect::<Result<_>>()
        };
        Ok(Self {
            size,
            step,
            field: buffers(2)?,
            slots: buffers(SLOTS)?,
            busy: OpenCl::new(device.clone())?,
        })
    }
}

impl Producer<Device> for Waves {
    fn record(
        self: Arc<Self>,
        recorder: &mut Recorder<'_>,
        frame: u32,
        slot: usize,
        late: Option<Duration>,
    ) -> Result<()> {
        let Size { width, height } = self.size;
        for number in frame * STEPS_PER_FRAME..(frame + 1) * STEPS_PER_FRAME {
            let prev = prev_buffer(number);
            let mut args = vec![
                Arg::Buffer(&self.field[prev]),
                Arg::Buffer(&self.field[1 - prev]),
            ];
            args.extend(StepParams::at(width, height, number).words().map(Arg::Word));
            recorder.launch(&self.step, (width * height) as usize, &args)?;
        }
        if let Some(late) = late {
            self.busy.busy(recorder, late)?;
        }
        recorder.copy(&self.field[FRAME_BUFFER], &self.slots[slot])
    }

    fn read(&self, slot: usize, heights: &[AtomicU32]) -> Result<()> {
        for (to, height) in heights.iter().zip(self.slots[slot].read()?) {
            to.store(height, Ordering::Relaxed);
        }
        Ok(())
    }
}
