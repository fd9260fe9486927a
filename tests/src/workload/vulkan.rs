//! Work for Vulkan queues, of transfer commands alone: they run on every queue family.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan::{Buffer, Device, Recorder};
use syncline::{DeviceId, QueueKind, Result};

/// The buffer that `busy` fills over and over, in bytes.
const SCRATCH: u64 = 16 << 20;

/// What keeps each device busy, and for how long one fill does.
static SCRATCHES: Mutex<Option<HashMap<DeviceId, (Buffer, Duration)>>> = Mutex::new(None);

pub(super) fn fill(recorder: &mut Recorder, buffer: &Buffer, value: u32) -> Result<()> {
    recorder.fill_buffer(buffer, value)
}

pub(super) fn copy(recorder: &mut Recorder, from: &Buffer, to: &Buffer) -> Result<()> {
    recorder.copy_buffer(from, to)
}

/// Measures how long the device takes for one fill, over so many that submitting and waiting count
/// for little; the shortest of a few runs, so that `busy` errs on the long side.
pub(super) fn prepare(device: &Device) -> Result<()> {
    const ENOUGH: Duration = Duration::from_millis(8);
    let scratch = device.device_buffer(SCRATCH, Default::default())?;
    let queue = device.queue(QueueKind::Compute, "calibration")?;
    let run = |fills: u32| -> Result<Duration> {
        let buffer = scratch.clone();
        let work = move |recorder: &mut Recorder| {
            (0..fills).try_for_each(|word| recorder.fill_buffer(&buffer, word))
        };
        let start = Instant::now();
        queue.submit(&[], work, &[])?;
        queue.idle(Duration::from_secs(10))?;
        Ok(start.elapsed())
    };
    let mut fills = 1;
    while run(fills)? < ENOUGH && fills < 1 << 16 {
        fills *= 2;
    }
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        shortest = shortest.min(run(fills)? / fills);
    }
    let shortest = shortest.max(Duration::from_nanos(100));
    let mut scratches = SCRATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    scratches
        .get_or_insert_default()
        .insert(device.id(), (scratch, shortest));
    Ok(())
}

pub(super) fn busy(device: &Device, recorder: &mut Recorder, time: Duration) -> Result<()> {
    let scratch = {
        let scratches = SCRATCHES.lock().unwrap_or_else(PoisonError::into_inner);
        scratches
            .as_ref()
            .and_then(|scratches| scratches.get(&device.id()).cloned())
    };
    let Some((buffer, one)) = scratch else {
        return Err(super::unprepared());
    };
    let fills = time.as_nanos().div_ceil(one.as_nanos());
    (0..fills).try_for_each(|word| recorder.fill_buffer(&buffer, word as u32))
}
