//! CUDA writes the vertices of a wave, and Vulkan draws them from the same memory.
//!
//! Usage: `vertices [--float] [--no-sync] [PICTURE.png]`. What waits or signals is in this file.

#![allow(unsafe_code, reason = "launches a kernel and draws")]

mod check;
mod draw;
mod picture;

use std::{sync::Arc, time::Duration};

use draw::Drawing;
use syncline::Slots;
use syncline::prelude::*;

// Enough for a driver that interprets the kernel on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const FRAMES: u64 = 60;
const SIDE: u32 = 256; // vertices on each side of the wave
const SIZE: u32 = 2 * SIDE; // pixels on each side of the picture
const BYTES: u64 = 12 * (SIDE as u64).pow(2); // of the vertices of a frame

fn main() -> syncline::Result<()> {
    let arguments = picture::Arguments::parse()?;
    let inventory = Inventory::probe(&ProbeOptions::default());
    let (cuda, vulkan) = inventory.pair()?;
    let link = share(&cuda, &vulkan)?;
    println!("{}: {}", vulkan.info().name, link.mechanism());
    let (integers, floats) = (include_str!("wave.ptx"), include_str!("sine.ptx"));
    let module = cuda.module(if arguments.float { floats } else { integers })?;
    let kernel = module.function("wave")?;
    let drawing = Arc::new(Drawing::new(&vulkan)?);
    let picture = vulkan.host_buffer(4 * u64::from(SIZE).pow(2), Default::default())?;
    let compute = cuda.queue(QueueKind::Compute, "simulate")?;
    let graphics = vulkan.queue(QueueKind::Graphics, "draw")?;
    let memory = link.buffer(3 * BYTES)?; // three frames in flight
    let (written, drawn) = (link.timeline("written")?, link.timeline("drawn")?);
    let slots = Slots::new(drawn.wait_only(), 3)?;

    for n in 1..=FRAMES {
        let slot = slots.frame(n)?;
        let vertices = memory.view(BYTES * slot.index() as u64, BYTES)?;
        // Without the waits both may run in any order. `--no-sync` takes the worst one.
        let (free, ready) = match arguments.no_sync {
            false => (slot.free(), written.at(n)),
            true => (drawn.at(n), slot.free()),
        };
        let (to, kernel) = (vertices.left().clone(), kernel.clone());
        compute.submit(
            &[free],
            move |stream| {
                let (mut pointer, mut frame) = (to.pointer(), n as u32);
                let params = &mut [(&raw mut pointer).cast(), (&raw mut frame).cast()];
                stream.keep(Arc::new(to));
                // SAFETY: the kernel's parameters. It writes a vertex a thread, which is kept.
                unsafe { stream.launch(&kernel, [SIDE / 16, SIDE / 16, 1], [16, 16, 1], params) }
            },
            &[written.signal_at(n)],
        )?;
        let (from, drawing, to) = (vertices.right().clone(), drawing.clone(), picture.clone());
        graphics.submit(
            &[ready],
            move |commands| drawing.draw(commands, &from, &to),
            &[drawn.signal_at(n)],
        )?;
    }
    compute.idle(PATIENCE)?;
    graphics.idle(PATIENCE)?;
    let wrong = picture::wrong(&picture, &check::picture(FRAMES as u32, arguments.float));
    let allowed = if arguments.float { 1000 } else { 0 }; // the host may round sines otherwise
    arguments.end(&picture, wrong, allowed)
}
