//! An application with a cudarc context and a renderer on `ash`. Both are its own.
//!
//! CUDA makes frames, and the renderer's own `vkQueueSubmit2` uses them. Neither side waits on the
//! host for the other.
//!
//! What to copy: `adopt` and `Compute::adopt`, which adopt both in Syncline, and the loop in `run`.
#![allow(unsafe_code, reason = "adopts, launches and submits")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::Parser;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan::ash::vk;
use syncline::{Buffer, Point, Signal, Slots, cuda, vulkan};
use syncline_recipes::{
    Arguments, BLOCK, BYTES, Draw, Host, LIMIT, PTX, Renderer, SLOTS, Stop, Verdict, WORDS, end,
    link, produced,
};

fn main() -> ExitCode {
    end(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    // The application's own: CUDA, if there is any, and a renderer on the same GPU.
    let compute = Compute::new().map_err(|error| error.to_string());
    let cuda = compute.as_ref().map(|compute| &compute.device);
    let uuid = cuda.ok().and_then(|cuda| cuda.info().uuid);
    let renderer = Arc::new(Renderer::new(arguments.device.as_deref(), uuid)?);

    // Adopted by Syncline: a device for each, and a link between them.
    let vulkan = adopt(&renderer)?;
    let link = link(&vulkan, cuda.map_err(String::as_str), arguments.producer)?;
    let producer = match Host::new(link.right())? {
        Some(host) => Producer::Host(host),
        None => Producer::Cuda(compute?),
    };
    let buffers = (0..SLOTS)
        .map(|_| link.buffer(BYTES))
        .collect::<Result<Vec<_>, _>>()?;
    println!("memory: {}", buffers[0].how());
    // One timeline for each direction. One side signals it, with the number of the frame.
    let (drawable, drawn) = (link.timeline("drawable")?, link.timeline("drawn")?);
    let slots = Slots::new(drawn.wait_only(), SLOTS)?;
    let graphics = vulkan.queue_on(renderer.family, 0, "the renderer's")?;
    let readbacks = (0..SLOTS)
        .map(|_| vulkan.host_buffer(BYTES, vk::BufferUsageFlags::empty()))
        .collect::<Result<Vec<_>, _>>()?;

    let mut verdict = Verdict::default();
    let mut verify = |frame: u64| {
        // After the draw has finished, the host can read what it wrote.
        drawn.at(frame).wait(LIMIT)?;
        let words = readbacks[slots.frame(frame)?.index()]
            .as_words()
            .unwrap_or_default();
        let words = words.iter().map(|word| word.load(Ordering::Relaxed));
        verdict.compare(frame as u32, words, produced);
        Ok::<_, Stop>(())
    };
    let frames = u64::from(arguments.frames);
    // After the last frame only the comparison is left.
    for frame in 1..=frames + SLOTS as u64 {
        let slot = slots.frame(frame)?;
        // Compares the frame that had the slot before, so that all slots are in use at once.
        if let Some(before) = slot.before() {
            verify(before)?;
        }
        if frame > frames {
            continue;
        }
        let buffer = &buffers[slot.index()];

        // The producer waits until the last frame in this buffer has been drawn.
        let free = [slot.free()];
        let waits = if arguments.no_sync { &[] } else { &free[..] };
        producer.produce(
            frame,
            buffer.right(),
            arguments,
            waits,
            drawable.signal_at(frame),
        )?;

        // The renderer submits itself. Its submission waits for this frame, and a claim announces
        // its signal.
        let from = buffer.left();
        let commands = renderer.record(&Draw {
            slot: slot.index(),
            from: from.raw(),
            to: readbacks[slot.index()].raw(),
            bytes: BYTES,
            take: from.acquire_barrier(renderer.family),
            give: from.release_barrier(renderer.family),
        })?;
        let wait = if arguments.no_sync {
            None
        } else {
            // A raw wait may go to the driver only when its signal is pending. CUDA's signal is
            // pending at once, the host's when its work is done.
            drawable.at(frame).wait_pending(LIMIT)?;
            Some((vulkan.semaphore(drawable.at(frame))?, frame))
        };
        let mut claim = drawn.claim(frame)?;
        claim.wait_ready(LIMIT)?;
        let signal = (vulkan.semaphore_of(&drawn)?, claim.value());
        let guard = graphics.lock()?; // the lock that Syncline takes to use this VkQueue
        renderer.submit(guard.raw(), commands, wait, signal)?;
        drop(guard);
        claim.submitted_on(vulkan.id())?;
    }
    // All submissions must finish before the program ends.
    producer.idle()?;
    graphics.idle(LIMIT)?;
    Ok(verdict)
}

/// Adopts the renderer's device and queue. Both stay the renderer's.
///
/// Syncline destroys neither. The renderer lives until the last object of the adopted device is
/// dropped.
fn adopt(renderer: &Arc<Renderer>) -> syncline::Result<vulkan::Device> {
    let info = vulkan::AdoptInfo {
        entry: renderer.entry.clone(),
        instance: renderer.instance.clone(),
        physical: renderer.physical,
        device: renderer.device.clone(),
        queues: vec![(renderer.family, 0, renderer.queue)],
        owner: Some(renderer.clone()),
        enabled: renderer.enabled,
    };
    // SAFETY: the renderer created all of it as described, and the owner keeps the renderer. It
    // submits under the queue's guard only.
    unsafe { vulkan::Device::adopt(info) }
}

/// The application's CUDA stream and kernel, and the device and queue that Syncline adopted.
struct Compute {
    stream: Arc<CudaStream>,
    kernel: CudaFunction,
    device: cuda::Device,
    queue: cuda::Queue,
}

impl Compute {
    fn new() -> Result<Self, Box<dyn Error>> {
        // cudarc panics without a driver, so Syncline checks for one first.
        cuda::Driver::load()?;
        let context = CudaContext::new(0)?;
        let stream = context.new_stream()?;
        let kernel = context
            .load_module(Ptx::from_src(PTX))?
            .load_function("produce")?;
        Self::adopt(&context, stream, kernel)
    }

    /// Adopts the context and the stream. The adopted objects keep them alive.
    fn adopt(
        context: &Arc<CudaContext>,
        stream: Arc<CudaStream>,
        kernel: CudaFunction,
    ) -> Result<Self, Box<dyn Error>> {
        let device = cuda::Device::adopt(context)?;
        // SAFETY: the stream is never captured.
        let queue = unsafe { device.adopt_stream(&stream, "the application's stream") }?;
        Ok(Self {
            stream,
            kernel,
            device,
            queue,
        })
    }
}

enum Producer {
    Cuda(Compute),
    Host(Host),
}

impl Producer {
    fn produce(
        &self,
        frame: u64,
        memory: &Buffer,
        arguments: &Arguments,
        waits: &[Point<'_>],
        signal: Signal<'_>,
    ) -> Result<(), Stop> {
        let (frame, late) = (frame as u32, arguments.late());
        match (self, memory) {
            (Self::Cuda(compute), Buffer::Cuda(words)) => {
                let (stream, kernel) = (compute.stream.clone(), compute.kernel.clone());
                let words = words.clone();
                let launch = move |recorder: &mut cuda::Recorder<'_>| {
                    let config = LaunchConfig {
                        grid_dim: (WORDS.div_ceil(BLOCK), 1, 1),
                        block_dim: (BLOCK, 1, 1),
                        shared_mem_bytes: 0,
                    };
                    let (pointer, late) = (words.pointer(), late.as_nanos() as u64);
                    // Syncline does not know what a pointer points to. So the work names the memory
                    // that the kernel uses.
                    recorder.keep(Arc::new(words.clone()));
                    let mut launch = stream.launch_builder(&kernel);
                    launch.arg(&pointer).arg(&WORDS).arg(&frame).arg(&late);
                    // SAFETY: these are the kernel's parameters. It writes WORDS words of memory
                    // that is kept.
                    unsafe { launch.launch(config) }.map_err(syncline::Error::work)?;
                    Ok(())
                };
                compute.queue.submit(waits, launch, &[signal])?;
            }
            (Self::Host(host), memory) => host.produce(frame, memory, late, waits, signal)?,
            _ => return Err("the producer's side of the memory is not its own".into()),
        }
        Ok(())
    }

    fn idle(&self) -> syncline::Result<()> {
        match self {
            Self::Cuda(compute) => compute.queue.idle(LIMIT),
            Self::Host(host) => host.idle(LIMIT),
        }
    }
}
