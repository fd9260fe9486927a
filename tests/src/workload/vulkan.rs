//! Work for Vulkan queues. It has transfer commands only, which run on every queue family.

#![allow(unsafe_code, reason = "events are raw")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan::ash::vk;
use syncline::vulkan::{Buffer, Device, Recorder};
use syncline::{Error, QueueKind, Result};

use crate::patience;

/// Size of the buffer that `busy` fills repeatedly, in bytes.
const SCRATCH: u64 = 16 << 20;

/// What keeps a device busy, and the time that one fill takes.
#[derive(Clone, Debug)]
pub(super) struct Scratch {
    device: Device,
    /// Buffers that no submission fills. Two queues that filled one at the same time would have a
    /// data race.
    free: Arc<Mutex<Vec<Buffer>>>,
    one_fill: Duration,
}

/// A `VkEvent` that the host sets.
#[derive(Clone)]
pub struct Latch(Arc<Event>);

struct Event {
    device: Device,
    raw: vk::Event,
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created here. Submissions that wait for it have kept it until they finished.
        unsafe { self.device.raw().destroy_event(self.raw, None) };
    }
}

impl std::fmt::Debug for Latch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Latch({:?})", self.0.raw)
    }
}

/// Measures how long the device takes for one fill, by its own clock if it has one.
///
/// Below the validation layer, recording a fill takes longer than the fill. Measures so many fills
/// that submitting and waiting hardly count. Takes the shortest of a few runs, so that `busy` is
/// rather too long than too short.
pub(super) fn prepare(device: &Device) -> Result<Scratch> {
    const ENOUGH: Duration = Duration::from_millis(8);
    let scratch = device.device_buffer(SCRATCH, Default::default())?;
    let queue = device.queue(QueueKind::Compute, "calibration")?;
    let (begun, ended) = (device.timed_fence("begun"), device.timed_fence("ended"));
    let run = |fills: u32| -> Result<Duration> {
        let buffer = scratch.clone();
        let work = move |recorder: &mut Recorder<'_>| {
            (0..fills).try_for_each(|word| recorder.fill_buffer(&buffer, word))
        };
        let start = Instant::now();
        queue.record(&begun)?;
        queue.submit(&[], work, &[])?;
        queue.record(&ended)?;
        queue.idle(patience())?;
        let on_the_host = start.elapsed();
        let took = ended.elapsed_since(&begun).ok();
        let took = took.and_then(|took| u64::try_from(took).ok());
        Ok(took.map_or(on_the_host, Duration::from_nanos))
    };
    let mut fills = 1;
    while run(fills)? < ENOUGH && fills < 1 << 16 {
        fills *= 2;
    }
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        shortest = shortest.min(run(fills)? / fills);
    }
    Ok(Scratch {
        device: device.clone(),
        free: Arc::new(Mutex::new(vec![scratch])),
        one_fill: shortest.max(Duration::from_nanos(100)),
    })
}

pub(super) fn busy(scratch: &Scratch, recorder: &mut Recorder<'_>, time: Duration) -> Result<()> {
    let free = lock(&scratch.free).pop();
    let buffer = match free {
        Some(buffer) => buffer,
        None => scratch.device.device_buffer(SCRATCH, Default::default())?,
    };
    recorder.keep(Arc::new(Lent {
        buffer: buffer.clone(),
        to: scratch.free.clone(),
    }));
    let fills = time.as_nanos().div_ceil(scratch.one_fill.as_nanos());
    (0..fills).try_for_each(|word| recorder.fill_buffer(&buffer, word as u32))
}

/// A buffer that is returned after the submission that fills it has finished.
struct Lent {
    buffer: Buffer,
    to: Arc<Mutex<Vec<Buffer>>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        lock(&self.to).push(self.buffer.clone());
    }
}

fn lock(free: &Mutex<Vec<Buffer>>) -> MutexGuard<'_, Vec<Buffer>> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn latch(device: &Device) -> Result<Latch> {
    // SAFETY: the device is live, and the event is destroyed on drop.
    let raw =
        unsafe { device.raw().create_event(&Default::default(), None) }.map_err(Error::work)?;
    let device = device.clone();
    Ok(Latch(Arc::new(Event { device, raw })))
}

pub(super) fn block(recorder: &mut Recorder<'_>, latch: &Latch) -> Result<()> {
    recorder.keep(latch.0.clone());
    let commands = recorder.command_buffer()?;
    // SAFETY: the command buffer is begun, outside any render pass. The submission keeps the event.
    unsafe {
        recorder.device().cmd_wait_events(
            commands,
            &[latch.0.raw],
            vk::PipelineStageFlags::HOST,
            vk::PipelineStageFlags::ALL_COMMANDS,
            &[],
            &[],
            &[],
        );
    }
    Ok(())
}

pub(super) fn open(latch: &Latch) -> Result<()> {
    // SAFETY: the event is live, and it is never reset.
    unsafe { latch.0.device.raw().set_event(latch.0.raw) }.map_err(Error::work)
}

/// Signals a semaphore backwards, which loses a device of lavapipe for good.
///
/// Lavapipe goes on with work that it has begun, but shows none of its signals.
pub(super) fn lose(device: &Device) -> Result<()> {
    let mut timeline =
        vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut timeline);
    let raw = device.raw();
    // SAFETY: the device is live. No submission uses the semaphore. The second signal is a wrong
    // use that this driver answers with `VK_ERROR_DEVICE_LOST`, as intended.
    unsafe {
        let semaphore = raw.create_semaphore(&info, None).map_err(Error::work)?;
        let signal = |value| {
            let info = vk::SemaphoreSignalInfo::default();
            raw.signal_semaphore(&info.semaphore(semaphore).value(value))
        };
        let signals = [signal(9), signal(5)];
        raw.destroy_semaphore(semaphore, None);
        match signals {
            [Ok(()), Err(vk::Result::ERROR_DEVICE_LOST)] => Ok(()),
            other => Err(Error::work(std::io::Error::other(format!(
                "a signal backwards was answered with {other:?}"
            )))),
        }
    }
}
