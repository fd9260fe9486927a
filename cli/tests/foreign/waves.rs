//! The producer of the demo on a clockwork machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use syncline::Result;
use syncline_demo::compute::reference::step;
use syncline_demo::compute::{FRAME_BUFFER, STEPS_PER_FRAME, StepParams, prev_buffer};
use syncline_demo::{Producer, SLOTS, Size};

use crate::clockwork::{Buffer, Device, Recorder};

/// The field of waves.
pub(crate) struct Waves {
    size: Size,
    field: [Buffer; 2],
    slots: [Buffer; SLOTS],
    /// A bug: the heights of one frame never reach their slot.
    forgets: Option<u32>,
}

impl Waves {
    pub(crate) fn new(device: &Device, size: Size, forgets: Option<u32>) -> Self {
        let words = (size.bytes() / 4) as usize;
        Self {
            size,
            field: std::array::from_fn(|_| device.buffer(words)),
            slots: std::array::from_fn(|_| device.buffer(words)),
            forgets,
        }
    }
}

/// One step, as the machine runs it.
fn kernel(memories: &[Arc<[AtomicU32]>], constants: &[u32]) {
    if let ([prev, now], &[width, height, number]) = (memories, constants) {
        step(prev, now, &StepParams::at(width, height, number));
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
            let memories = [&self.field[prev], &self.field[1 - prev]];
            recorder.run(kernel, &memories, vec![width, height, number]);
        }
        recorder.busy(late.unwrap_or_default());
        if self.forgets != Some(frame) {
            recorder.copy(&self.field[FRAME_BUFFER], &self.slots[slot]);
        }
        Ok(())
    }

    fn read(&self, slot: usize, heights: &[AtomicU32]) -> Result<()> {
        for (to, height) in heights.iter().zip(self.slots[slot].read()) {
            to.store(height, Ordering::Relaxed);
        }
        Ok(())
    }
}
