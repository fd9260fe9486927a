//! An application on wgpu. CUDA makes frames, and wgpu submissions wait for them and shade them.
//!
//! The host does not wait in between. wgpu owns its Vulkan device and queue. Syncline makes only
//! semaphores and memory on that device.
//!
//! What to copy: `gpu.rs` and the loop in `run`. `gpu.rs` opens wgpu's device with the extensions
//! for sharing, adopts it, makes wgpu buffers of shared buffers, and adds a wait and a signal to a
//! wgpu submission. `shader.rs` is usual wgpu code.

mod gpu;
mod producer;
mod shader;

use std::process::ExitCode;

use clap::Parser;
use syncline::Slots;
use syncline::backend::Device as _;
use syncline_recipes::{Arguments, BYTES, SLOTS, Stop, Verdict, end, link};

use gpu::Gpu;
use producer::{Producer, first_cuda};
use shader::{Frame, Shader, shaded};

fn main() -> ExitCode {
    end(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let cuda = first_cuda().map_err(|error| error.to_string());
    let uuid = cuda.as_ref().ok().and_then(|cuda| cuda.info().uuid);
    let gpu = Gpu::open(arguments.device.as_deref(), uuid)?;
    let cuda = cuda.as_ref().map_err(String::as_str);
    let link = link(&gpu.adopted, cuda, arguments.producer)?;
    let producer = Producer::new(link.right())?;
    let (drawable, drawn) = (link.timeline("drawable")?, link.timeline("drawn")?);
    // wgpu's buffers are dropped first, then the shared memory, then the device.
    let slots = Slots::new(drawn.wait_only(), SLOTS)?;
    let buffers = (0..SLOTS)
        .map(|_| link.buffer(BYTES))
        .collect::<Result<Vec<_>, _>>()?;
    println!("memory: {}", buffers[0].how());
    let frames: Vec<_> = buffers
        .iter()
        .map(|buffer| Frame::new(&gpu, buffer.left()))
        .collect();
    let shader = Shader::new(&gpu, &frames);

    let mut verdict = Verdict::default();
    let mut submissions = Vec::new();
    let mut verify = |frame: u64, submission: wgpu::SubmissionIndex| {
        let words = frames[slots.frame(frame)?.index()].read(&gpu, submission)?;
        verdict.compare(frame as u32, words.into_iter(), shaded);
        Ok::<_, Stop>(())
    };
    for frame in 1..=u64::from(arguments.frames) {
        // The producer waits until the last frame in this buffer has been shaded.
        let slot = slots.frame(frame)?;
        let free = [slot.free()];
        let waits = if arguments.no_sync { &[] } else { &free[..] };
        let memory = buffers[slot.index()].right();
        producer.produce(frame, memory, arguments, waits, drawable.signal_at(frame))?;

        let commands = shader.commands(&gpu, slot.index(), &frames[slot.index()])?;
        let wait = (!arguments.no_sync).then(|| drawable.at(frame));
        let mut claim = drawn.claim(frame)?;
        submissions.push(gpu.submit(commands, wait, &drawn, &mut claim)?);

        if submissions.len() == SLOTS {
            verify(frame + 1 - SLOTS as u64, submissions.remove(0))?;
        }
    }
    let left = submissions.len() as u64;
    for (place, submission) in (0..).zip(submissions) {
        verify(u64::from(arguments.frames) + 1 - left + place, submission)?;
    }
    producer.idle()?;
    Ok(verdict)
}
