//! Vulkan paints an image, CUDA filters it, and Vulkan shows it, with three frames in flight.
//!
//! Usage: `filter [--float] [--no-sync] [PICTURE.png]`. What waits or signals is in this file.

#![allow(unsafe_code, reason = "launches a kernel and dispatches shaders")]

mod check;
mod kernel;
mod passes;
#[path = "../vertices/picture.rs"]
mod picture;

use std::{sync::Arc, time::Duration};

use kernel::Filter;
use passes::Passes;
use syncline::image::{Format, ImageInfo, ImageUsage};
use syncline::prelude::*;
use syncline::{Slots, cuda, vulkan};

// Enough for a driver that interprets the kernel on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const FRAMES: u64 = 12;
const SIZE: u32 = 128; // texels on each side

fn main() -> syncline::Result<()> {
    let arguments = picture::Arguments::parse()?;
    let inventory = Inventory::probe(&ProbeOptions::default());
    let (cuda, vulkan) = inventory.pair()?;
    let link = share(&cuda, &vulkan)?;
    println!("{}: {}", vulkan.info().name, link.mechanism());
    let info = ImageInfo::d2(Format::Rgba8Uint, SIZE, SIZE, ImageUsage::STORAGE);
    let (mut ours, mut theirs, mut pictures) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let (scene, filtered) = (link.image(&info)?, link.image(&info)?);
        ours.push([scene.left().clone(), filtered.left().clone()]);
        theirs.push([scene.right().clone(), filtered.right().clone()]);
        pictures.push(vulkan.host_buffer(info.level_size(0), Default::default())?);
    }
    let filter = Arc::new(Filter::new(&cuda, &ours, arguments.float)?);
    let passes = Arc::new(Passes::new(&vulkan, theirs)?);
    let compute = cuda.queue(QueueKind::Compute, "filter")?;
    let paints = vulkan.queue(QueueKind::Graphics, "paint")?;
    let shows = vulkan.queue(QueueKind::Graphics, "show")?;
    let (painted, filtered) = (link.timeline("painted")?, link.timeline("filtered")?);
    let shown = link.timeline("shown")?;
    let (slots, mut wrong) = (Slots::new(shown.wait_only(), 3)?, 0);

    for n in 1..=FRAMES + 3 {
        let slot = slots.frame(n)?;
        let at = slot.index();
        if let Some(before) = slot.before() {
            shown.at(before).wait(PATIENCE)?;
            wrong += picture::wrong(&pictures[at], &check::picture(before));
        }
        if n > FRAMES {
            continue; // only the comparison is left
        }
        // Without the waits all may run in any order. `--no-sync` takes the worst one.
        let (ready, done) = match arguments.no_sync {
            false => (painted.at(n), filtered.at(n)),
            true => (shown.at(n), painted.at(n)),
        };
        let own = passes.clone();
        let paint = move |commands: &mut vulkan::Recorder<'_>| own.paint(commands, at, n);
        paints.submit(&[slot.free()], paint, &[painted.signal_at(n)])?;
        let own = filter.clone();
        let launch = move |stream: &mut cuda::Recorder<'_>| own.launch(stream, at, n);
        compute.submit(&[ready], launch, &[filtered.signal_at(n)])?;
        let (own, to) = (passes.clone(), pictures[at].clone());
        let show = move |commands: &mut vulkan::Recorder<'_>| own.show(commands, at, n, &to);
        shows.submit(&[done], show, &[shown.signal_at(n)])?;
    }
    compute.idle(PATIENCE)?;
    paints.idle(PATIENCE)?;
    shows.idle(PATIENCE)?;
    arguments.end(&pictures[(FRAMES % 3) as usize], wrong, 0)
}
