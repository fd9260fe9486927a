//! An application that has raw handles only, as C has them, and calls both drivers itself.
//!
//! Syncline borrows the handles. It returns the semaphore and the value that each submission of the
//! application waits for and signals.
//!
//! What to copy: `Borrowed::adopt`, `next_frame`, and how `run` finds out when the handles are no
//! longer in use. `engine.rs` is the application.
#![allow(unsafe_code, reason = "adopts bare handles")]

mod engine;

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use clap::Parser;
use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan::ash::vk::{self, Handle as _};
use syncline::vulkan::{AdoptInfo, Enabled};
use syncline::{Buffer, Slots, Timeline, cuda, vulkan};
use syncline_recipes::{
    Arguments, BYTES, Draw, Host, LIMIT, SLOTS, Stop, Verdict, end, link, produced,
};

use engine::{Engine, Handles, Semaphore};

fn main() -> ExitCode {
    end(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let engine = Engine::start(arguments.device.as_deref())?;
    // Nothing is sent on this channel. It closes when the last object that uses the engine's
    // handles is dropped.
    let (in_use, unused) = channel();
    let verdict = frames(&engine, in_use, arguments);
    // A thread of Syncline may still drop such an object. After the channel has closed, the handles
    // may be destroyed.
    match unused.recv_timeout(LIMIT) {
        Err(RecvTimeoutError::Disconnected) => verdict,
        _ => {
            std::mem::forget(engine);
            Err("the engine's handles are still in use".into())
        }
    }
}

fn frames(
    engine: &Engine,
    in_use: Sender<Infallible>,
    arguments: &Arguments,
) -> Result<Verdict, Stop> {
    let borrowed = Borrowed::adopt(&engine.handles(), &in_use)?;
    drop(in_use);
    let cuda = borrowed.cuda.as_ref().map(|(device, _)| device);
    let cuda = cuda.ok_or_else(|| engine.without_cuda().unwrap_or("not adopted"));
    let link = link(&borrowed.vulkan, cuda, arguments.producer)?;
    let host = Host::new(link.right())?;
    let (drawable, drawn) = (link.timeline("drawable")?, link.timeline("drawn")?);
    let slots = Slots::new(drawn.wait_only(), SLOTS)?;
    let buffers = (0..SLOTS)
        .map(|_| link.buffer(BYTES))
        .collect::<Result<Vec<_>, _>>()?;
    println!("memory: {}", buffers[0].how());
    let readbacks = (0..SLOTS)
        .map(|_| {
            let usage = vk::BufferUsageFlags::empty();
            borrowed.vulkan.host_buffer(BYTES, usage)
        })
        .collect::<Result<Vec<_>, _>>()?;

    let mut verdict = Verdict::default();
    let mut verify = |frame: u64| {
        drawn.at(frame).wait(LIMIT)?;
        let words = readbacks[slots.frame(frame)?.index()]
            .as_words()
            .unwrap_or_default();
        let words = words.iter().map(|word| word.load(Ordering::Relaxed));
        verdict.compare(frame as u32, words, produced);
        Ok::<_, Stop>(())
    };
    let last = u64::from(arguments.frames);
    // After the last frame only the comparison is left.
    for frame in 1..=last + SLOTS as u64 {
        let slot = slots.frame(frame)?;
        if let Some(before) = slot.before() {
            verify(before)?;
        }
        if frame > last {
            continue;
        }
        let buffer = &buffers[slot.index()];
        let free = [slot.free()];
        let waits = if arguments.no_sync { &[] } else { &free[..] };
        match (&host, &borrowed.cuda, buffer.right()) {
            (None, Some((device, stream)), Buffer::Cuda(words)) => {
                // The stream waits by an empty submission of Syncline. After `settle` it is in the
                // stream, so the engine's next command comes after it.
                stream.submit(waits, |_| Ok(()), &[])?;
                stream.settle(LIMIT)?;
                engine.launch(words.pointer(), frame as u32, arguments.late())?;
                // The stream signals after the engine's command.
                let mut claim = drawable.claim(frame)?;
                claim.wait_ready(LIMIT)?;
                let guard = stream.stream();
                // SAFETY: the claim is of this timeline, which is kept, and the stream is live.
                unsafe { device.submit_claimed(&drawable, &mut claim, guard.raw()) }?;
            }
            (Some(host), ..) => {
                let signal = drawable.signal_at(frame);
                host.produce(
                    frame as u32,
                    buffer.right(),
                    arguments.late(),
                    waits,
                    signal,
                )?;
            }
            _ => return Err("the producer's side of the memory is not its own".into()),
        }

        let from = buffer.left();
        let draw = Draw {
            slot: slot.index(),
            from: from.raw(),
            to: readbacks[slot.index()].raw(),
            bytes: BYTES,
            take: from.acquire_barrier(borrowed.family),
            give: from.release_barrier(borrowed.family),
        };
        let wait = (!arguments.no_sync).then_some(&drawable);
        borrowed.next_frame(frame, wait, &drawn, |wait, signal| {
            engine.draw(&draw, wait, signal)
        })?;
    }
    if let Some(host) = &host {
        host.idle(LIMIT)?;
    }
    // Syncline does not know the engine's launches. Each signal behind them says that they
    // finished.
    drawable.at(last).wait(LIMIT)?;
    Ok(verdict)
}

/// Devices and queues that Syncline adopted from the engine. It destroys none of the handles.
struct Borrowed {
    vulkan: vulkan::Device,
    family: u32,
    queue: vulkan::Queue,
    cuda: Option<(cuda::Device, cuda::Queue)>,
}

impl Borrowed {
    /// Adopts the handles. Objects that use a handle keep a clone of `in_use`.
    fn adopt(handles: &Handles, in_use: &Sender<Infallible>) -> Result<Self, Stop> {
        // A handle in C is an address. Handles that are not dispatchable, such as `VkSemaphore`,
        // are numbers.
        let raw = |pointer: *mut std::ffi::c_void| pointer.addr() as u64;
        let family = handles.queue_family;
        let queue = vk::Queue::from_raw(raw(handles.queue));
        // SAFETY: the engine's handles belong together and were created as described. They live
        // until all clones of `in_use` are dropped. The engine uses the queue under its guard only.
        let vulkan = unsafe {
            let mut info = AdoptInfo::from_handles(vulkan::Handles {
                get_instance_proc_addr: Some(handles.get_instance_proc_addr),
                instance: vk::Instance::from_raw(raw(handles.instance)),
                physical: vk::PhysicalDevice::from_raw(raw(handles.physical_device)),
                device: vk::Device::from_raw(raw(handles.device)),
            })?;
            info.queues = vec![(family, handles.queue_index, queue)];
            info.owner = Some(Arc::new(in_use.clone()));
            info.enabled = Enabled {
                host_query_reset: handles.has_host_query_reset,
                external_semaphore_fd: handles.has_external_semaphore_fd,
                external_memory_fd: handles.has_external_memory_fd,
                calibrated_timestamps: handles.has_calibrated_timestamps,
            };
            vulkan::Device::adopt(info)?
        };
        let cuda = if handles.cuda_context.is_null() {
            None
        } else {
            let (context, stream) = (handles.cuda_context.cast(), handles.cuda_stream.cast());
            // SAFETY: as above. The stream is of the context.
            unsafe {
                let device = cuda::Device::adopt_context(context, Some(Arc::new(in_use.clone())))?;
                let owner = Some(Arc::new(in_use.clone()) as _);
                let stream = device.adopt_raw_stream(stream, owner, "the engine's stream")?;
                Some((device, stream))
            }
        };
        Ok(Self {
            queue: vulkan.queue_on(family, handles.queue_index, "the engine's queue")?,
            vulkan,
            family,
            cuda,
        })
    }

    /// Calls `submit`, which makes a submission of the engine's own for `frame`.
    ///
    /// The submission waits for the semaphore of `wait`, if there is one, and signals that of
    /// `signal`.
    fn next_frame(
        &self,
        frame: u64,
        wait: Option<&Timeline>,
        signal: &Timeline,
        submit: impl FnOnce(Option<Semaphore>, Semaphore) -> Result<(), vk::Result>,
    ) -> Result<(), Stop> {
        let bare = |semaphore: vk::Semaphore| Semaphore {
            semaphore: semaphore.as_raw(),
            value: frame,
        };
        let wait = match wait {
            Some(timeline) => {
                // A raw wait may go to the driver only when its signal is pending. CUDA's signal is
                // pending at once, the host's when its work is done.
                timeline.at(frame).wait_pending(LIMIT)?;
                Some(bare(self.vulkan.semaphore(timeline.at(frame))?))
            }
            None => None,
        };
        let mut claim = signal.claim(frame)?;
        claim.wait_ready(LIMIT)?;
        let signal = bare(self.vulkan.semaphore_of(signal)?);
        let guard = self.queue.lock(); // the lock that Syncline takes to use this VkQueue
        submit(wait, signal)?;
        drop(guard);
        Ok(claim.submitted_on(self.vulkan.id())?)
    }
}
