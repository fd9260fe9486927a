//! Memory that the application has allocated in Vulkan, as engines do, is shared with CUDA.

#![allow(unsafe_code, reason = "allocates and adopts raw memory")]

mod adopt;
mod allocate;
mod draw;
mod picture;

use std::time::Duration;

use adopt::share_block;
use allocate::allocate;
use syncline::image::{Format, ImageInfo, ImageUsage};
use syncline::prelude::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// What the application's image is created with, besides the usages for transfers.
const PICTURE: ImageInfo = ImageInfo::d2(Format::Rgba8Unorm, 64, 48, ImageUsage::SAMPLED);

fn main() -> syncline::Result<()> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let (cuda, vulkan) = inventory.pair()?; // or `adopt` the application's own devices
    let link = share(&vulkan, &cuda)?;
    let block = allocate(&vulkan, &[1 << 16, 4096], &PICTURE).map_err(Error::work)?;
    // SAFETY: allocated as `share_block` demands.
    let shared = unsafe { share_block(&link, block) }?;
    let ([vertices, commands], [image]) = (&shared.buffers[..], &shared.images[..]) else {
        return Ok(());
    };

    let line = link.timeline("line")?;
    let (graphics, compute) = (
        vulkan.queue(QueueKind::Graphics, "graphics")?,
        cuda.queue(QueueKind::Compute, "compute")?,
    );
    // CUDA writes the vertices and the last 64 bytes of the commands. Vulkan reads both.
    let (to, tail) = (vertices.right().clone(), commands.view(4032, 64)?);
    let last = tail.right().clone();
    compute.submit(
        &[],
        move |stream| {
            stream.memset_d32(&to, 7)?;
            stream.memset_d32(&last, 9) // or launch a kernel with `last.pointer()`
        },
        &[line.signal_at(1)],
    )?;
    let seen = vulkan.host_buffer(64, Default::default())?;
    let (from, to) = (tail.left().clone(), seen.clone());
    graphics.submit(
        &[line.at(1)],
        move |recorder| recorder.copy_buffer(&from, &to), // acquires and releases them, too
        &[line.signal_at(2)],
    )?;
    line.at(2).wait(PATIENCE)?;
    let word = seen
        .as_words()
        .map(|words| words[15].load(std::sync::atomic::Ordering::Relaxed));
    println!(
        "vertices of CUDA at {:#x}, the last command is {word:?}",
        vertices.right().pointer()
    );
    picture::exchange(&link, image, &graphics, &compute)?;
    compute.idle(PATIENCE)?;
    graphics.idle(PATIENCE)
}
