//! The stages on worker threads. All memory is atomic, so that a missing wait is a wrong picture.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use syncline::{Buffer, Recorder, Result};

use super::{Consumer, Producer, copy};
use crate::Size;
use crate::compute::reference::step;
use crate::compute::{FRAME_BUFFER, STEPS_PER_FRAME, StepParams, prev_buffer};
use crate::scene::View;
use crate::scene::reference::draw;

/// The wave field.
pub(crate) struct Waves {
    size: Size,
    field: [Vec<AtomicU32>; 2],
    slots: Vec<Buffer>,
}

impl Waves {
    pub(crate) fn new(size: Size, slots: Vec<Buffer>) -> Self {
        let still = || (0..size.bytes() / 4).map(|_| AtomicU32::new(0)).collect();
        Self {
            size,
            field: [still(), still()],
            slots,
        }
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
        recorder.host()?.run(move || {
            let Size { width, height } = self.size;
            if let Some(late) = late {
                std::thread::sleep(late);
            }
            for number in frame * STEPS_PER_FRAME..(frame + 1) * STEPS_PER_FRAME {
                let prev = prev_buffer(number);
                let params = StepParams::at(width, height, number);
                step(&self.field[prev], &self.field[1 - prev], &params);
            }
            let words = self.slots[slot].words().unwrap_or_default();
            copy(Some(&self.field[FRAME_BUFFER]), words);
        });
        Ok(())
    }

    fn read(&self, slot: usize, heights: &[AtomicU32]) -> Result<()> {
        copy(self.slots[slot].words(), heights);
        Ok(())
    }
}

/// Draws the scene.
pub(crate) struct Painter {
    view: View,
    slots: Vec<Buffer>,
    readbacks: Vec<Buffer>,
}

impl Painter {
    pub(crate) fn new(view: View, slots: Vec<Buffer>, readbacks: Vec<Buffer>) -> Self {
        Self {
            view,
            slots,
            readbacks,
        }
    }
}

impl Consumer for Painter {
    fn record(
        self: Arc<Self>,
        recorder: &mut Recorder<'_>,
        slot: usize,
        readback: usize,
    ) -> Result<()> {
        recorder.host()?.run(move || {
            let rgba = draw(&self.view, self.slots[slot].words().unwrap_or_default());
            let words = self.readbacks[readback].words().unwrap_or_default();
            for (to, from) in words.iter().zip(rgba) {
                to.store(from, Ordering::Relaxed);
            }
        });
        Ok(())
    }
}
