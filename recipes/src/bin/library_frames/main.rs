//! Frames of another library, which has a semaphore of its own for each frame.
//!
//! The other library (`decoder.rs`) makes frames on the application's device, by raw calls of
//! Vulkan. The application reads each frame by a submission of its own, which Syncline orders.
#![allow(unsafe_code, reason = "the handles of the other library are raw")]

mod decoder;

use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use ash::vk;
use clap::Parser;
use decoder::{Decoder, Frame, Words, begin, command_buffers, region};
use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan::{self, AdoptInfo};
use syncline::{QueueKind, Timeline};
use syncline_recipes::{Arguments, LIMIT, Renderer, SLOTS, Stop, Verdict, end, produced};

/// Delay of each frame with `--no-sync`.
const LATE: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    end(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let renderer = Arc::new(Renderer::new(arguments.device.as_deref(), None)?);
    if arguments.producer.is_some() {
        return Err("the other library is the producer".into());
    }
    // SAFETY: all handles belong together and live as long as the renderer, which is the owner. The
    // other library and this program use the queue under the lock of the adopted device.
    let device = unsafe {
        vulkan::Device::adopt(AdoptInfo {
            entry: renderer.entry.clone(),
            instance: renderer.instance.clone(),
            physical: renderer.physical,
            device: renderer.device.clone(),
            queues: vec![(renderer.family, 0, renderer.queue)],
            owner: Some(renderer.clone()),
            enabled: renderer.enabled,
        })
    }?;
    println!("consumer: Vulkan on {}", device.info().name);
    println!("producer: another library on the same device");
    let queue = device.queue(QueueKind::Compute, "frames")?;
    // FFmpeg has such a function for its caller, too: `lock_queue`.
    let shared = queue.clone();
    let decoder = Decoder::new(
        &renderer.instance,
        renderer.physical,
        &renderer.device,
        renderer.family,
        Box::new(move |call| {
            let guard = shared.lock().map_err(|_| vk::Result::ERROR_UNKNOWN)?;
            call(guard.raw())
        }),
    )?;
    let consumer = Consumer::new(&renderer, device, queue, &decoder, !arguments.no_sync)?;
    let verdict = play(&decoder, &consumer, arguments);
    consumer.destroy(&renderer)?;
    decoder.destroy();
    verdict
}

/// Decodes on a thread of the other library, and reads on this one.
fn play(decoder: &Decoder, consumer: &Consumer, arguments: &Arguments) -> Result<Verdict, Stop> {
    let (free, to_fill): (Sender<usize>, Receiver<usize>) = mpsc::channel();
    let (full, to_read): (Sender<(u32, usize)>, _) = mpsc::channel();
    for slot in 0..SLOTS {
        free.send(slot)?;
    }
    thread::scope(|scope| {
        let decodes = scope.spawn(move || {
            for number in 0..arguments.frames {
                // Ends early if the reader has failed.
                let Ok(slot) = to_fill.recv() else { break };
                let frame = &decoder.frames[slot];
                if arguments.no_sync {
                    let _ = full.send((number, slot));
                    decoder.decode(frame, number, LATE)?;
                } else {
                    decoder.decode(frame, number, Duration::ZERO)?;
                    let _ = full.send((number, slot));
                }
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        });
        let mut verdict = Verdict::default();
        let read = to_read.iter().try_for_each(|(number, slot)| {
            consumer.read(&decoder.frames[slot], slot, number)?;
            verdict.compare(number, consumer.words[slot].read(), produced);
            // The decoder may have ended.
            let _ = free.send(slot);
            Ok::<_, Stop>(())
        });
        drop(free);
        let decoded = decodes.join().map_err(|_| "the decoder panicked")?;
        read?;
        decoded.map_err(|error| error.to_string())?;
        Ok(verdict)
    })
}

/// Reads frames by submissions of its own.
struct Consumer {
    device: vulkan::Device,
    queue: vulkan::Queue,
    /// The timeline of each frame, over the semaphore of the other library.
    lines: Vec<Timeline>,
    /// Where each frame is read to.
    words: Vec<Words>,
    commands: Vec<vk::CommandBuffer>,
    pool: vk::CommandPool,
    /// What is signalled in place of the frame's timeline with `--no-sync`.
    read: Timeline,
    waits: bool,
    /// The family of the queue.
    family: u32,
}

impl Consumer {
    fn new(
        renderer: &Renderer,
        device: vulkan::Device,
        queue: vulkan::Queue,
        decoder: &Decoder,
        waits: bool,
    ) -> Result<Self, Stop> {
        let raw = &renderer.device;
        let adopt = |frame: &Arc<Frame>| {
            // SAFETY: a timeline semaphore of this device, which lives longer than the timeline.
            // The other library signals it under the frame's lock. `read` has promised these
            // signals when it submits one of its own.
            let (port, value) = unsafe { device.adopt_semaphore(frame.semaphore, false) }?;
            let mut port = Some(port);
            Timeline::new("frame", value, |_| Ok(port.take().into_iter().collect()))
        };
        let lines = decoder.frames.iter().map(adopt);
        let lines = lines.collect::<syncline::Result<Vec<_>>>()?;
        // SAFETY: the physical device is of this instance.
        let types = unsafe {
            let instance = &renderer.instance;
            instance.get_physical_device_memory_properties(renderer.physical)
        };
        let words = (0..SLOTS).map(|_| Words::new(raw, &types));
        let words = words.collect::<Result<Vec<_>, _>>()?;
        let (pool, commands) = command_buffers(raw, renderer.family)?;
        let read = device.timeline("read")?;
        Ok(Self {
            device,
            queue,
            lines,
            words,
            commands,
            pool,
            read,
            waits,
            family: renderer.family,
        })
    }

    /// Copies a frame into `words`, and waits for it.
    fn read(&self, frame: &Frame, slot: usize, number: u32) -> Result<(), Stop> {
        let (line, raw) = (&self.lines[slot], self.device.raw().clone());
        let (image, commands) = (frame.image, self.commands[slot]);
        let buffer = self.words[slot].buffer;
        let to = (vk::ImageLayout::TRANSFER_SRC_OPTIMAL, self.family);
        if !self.waits {
            let done = u64::from(number) + 1;
            let from = (vk::ImageLayout::UNDEFINED, self.family);
            let signal = self.read.signal_at(done);
            self.queue.submit_raw(&[], &[signal], move |submission| {
                submit(&raw, &submission, commands, image, from, to, buffer)
            })?;
            return Ok(self.read.at(done).wait(LIMIT)?);
        }
        // 1. The lock of the other library. It holds the lock, too, while it submits.
        let mut state = frame.state.lock().unwrap_or_else(PoisonError::into_inner);
        // 2. All values up to this one are with the driver.
        line.signalled_by_others(state.value)?;
        // 3. A submission that waits for the value and signals the next one.
        let (wait, next) = (line.at(state.value), state.value + 1);
        let from = (state.layout, state.family);
        let submitted =
            self.queue
                .submit_raw(&[wait], &[line.signal_at(next)], move |submission| {
                    submit(&raw, &submission, commands, image, from, to, buffer)
                })?;
        // 4. From here on the value will be signalled, even if the submission does not run (E2).
        state.value = next;
        // No time limit, because the lock may not be released before.
        submitted.wait_submitted(Duration::MAX)?;
        (state.layout, state.family) = to;
        // 5. The signal is pending, so the other library may wait for it.
        drop(state);
        Ok(line.at(next).wait(LIMIT)?)
    }

    /// Destroys what it has made, once nothing uses it.
    fn destroy(self, renderer: &Renderer) -> Result<(), Stop> {
        self.queue.idle(LIMIT)?;
        let guard = self.queue.lock()?;
        // SAFETY: the queue is locked, and no submission is made after that.
        unsafe {
            renderer.device.queue_wait_idle(guard.raw())?;
            for words in &self.words {
                words.destroy(&renderer.device);
            }
            renderer.device.destroy_command_pool(self.pool, None);
        }
        drop(guard);
        Ok(())
    }
}

/// Records the copy of an image to `buffer`, and submits it. `from` and `to` are layouts and queue
/// families.
fn submit(
    device: &ash::Device,
    submission: &vulkan::RawSubmission<'_>,
    commands: vk::CommandBuffer,
    image: vk::Image,
    from: (vk::ImageLayout, u32),
    to: (vk::ImageLayout, u32),
    buffer: vk::Buffer,
) -> Result<(), vk::Result> {
    let seen = vk::MemoryBarrier::default()
        .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
        .dst_access_mask(vk::AccessFlags::HOST_READ);
    let (waits, signals): (Vec<_>, Vec<_>) = (
        submission.wait_infos().collect(),
        submission.signal_infos().collect(),
    );
    let recorded = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
    let info = vk::SubmitInfo2::default()
        .wait_semaphore_infos(&waits)
        .command_buffer_infos(&recorded)
        .signal_semaphore_infos(&signals);
    // SAFETY: the queue is locked, and the commands are free. All objects live until the program
    // has waited for the submission.
    unsafe {
        begin(device, commands, image, from, to)?;
        device.cmd_copy_image_to_buffer(commands, image, to.0, buffer, &[region()]);
        device.cmd_pipeline_barrier(
            commands,
            vk::PipelineStageFlags::TRANSFER,
            vk::PipelineStageFlags::HOST,
            vk::DependencyFlags::empty(),
            &[seen],
            &[],
            &[],
        );
        device.end_command_buffer(commands)?;
        device.queue_submit2(submission.queue, &[info], vk::Fence::null())
    }
}
