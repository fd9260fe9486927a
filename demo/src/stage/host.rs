//! The stages on worker threads. All memory is atomic, so that a missing wait is a wrong picture.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use syncline::host::Recorder;
use syncline::{Buffer, Result};

use crate::Size;
use crate::compute::reference::step;
use crate::compute::{FRAME_BUFFER, STEPS_PER_FRAME, StepParams, prev_buffer};
use crate::scene::View;
use crate::scene::reference::draw;

/// The wave field.
pub(crate) struct Waves {
    size: Size,
    field: Arc<[Vec<AtomicU32>; 2]>,
    slots: Arc<[Buffer]>,
}

impl Waves {
    pub(crate) fn new(size: Size, slots: Vec<Buffer>) -> Self {
        let still = || (0..size.bytes() / 4).map(|_| AtomicU32::new(0)).collect();
        Self {
            size,
            field: Arc::new([still(), still()]),
            slots: slots.into(),
        }
    }

    pub(crate) fn record(
        &self,
        recorder: &mut Recorder<'_>,
        frame: u32,
        slot: usize,
        late: Option<Duration>,
    ) -> Result<()> {
        let (size, field, slots) = (self.size, self.field.clone(), self.slots.clone());
        recorder.run(move || {
            if let Some(late) = late {
                std::thread::sleep(late);
            }
            for number in frame * STEPS_PER_FRAME..(frame + 1) * STEPS_PER_FRAME {
                let prev = prev_buffer(number);
                step(
                    &field[prev],
                    &field[1 - prev],
                    &StepParams::at(size.width, size.height, number),
                );
            }
            let words = slots[slot].words().unwrap_or_default();
            for (to, from) in words.iter().zip(&field[FRAME_BUFFER]) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        });
        Ok(())
    }
}

/// Draws the scene.
pub(crate) struct Painter {
    view: View,
    slots: Arc<[Buffer]>,
    readbacks: Arc<[Buffer]>,
}

impl Painter {
    pub(crate) fn new(view: View, slots: Vec<Buffer>, readbacks: Vec<Buffer>) -> Self {
        Self {
            view,
            slots: slots.into(),
            readbacks: readbacks.into(),
        }
    }

    pub(crate) fn record(
        &self,
        recorder: &mut Recorder<'_>,
        slot: usize,
        readback: usize,
    ) -> Result<()> {
        let (view, slots, readbacks) = (self.view, self.slots.clone(), self.readbacks.clone());
        recorder.run(move || {
            let rgba = draw(&view, slots[slot].words().unwrap_or_default());
            let words = readbacks[readback].words().unwrap_or_default();
            for (to, from) in words.iter().zip(rgba) {
                to.store(from, Ordering::Relaxed);
            }
        });
        Ok(())
    }
}
