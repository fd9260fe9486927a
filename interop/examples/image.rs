//! An image that Vulkan makes, and that CUDA and Vulkan write and read in turn.
//!
//! One timeline orders both sides.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use syncline::image::{Format, ImageInfo, ImageUsage};
use syncline::prelude::*;
use syncline::vulkan::{Contents, ash::vk::ImageLayout};

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> syncline::Result<()> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let (cuda, vulkan) = inventory.pair()?;
    let link = share(&cuda, &vulkan)?;
    let line = link.timeline("line")?;
    let (compute, graphics) = (
        cuda.queue(QueueKind::Compute, "writes")?,
        vulkan.queue(QueueKind::Graphics, "reads")?,
    );

    let info = ImageInfo::d2(Format::Rgba8Unorm, 640, 360, ImageUsage::SAMPLED);
    let image = link.image(&info)?;
    // A new image is undefined. Vulkan takes it first, and the submission releases it at its end.
    let new = image.right().clone();
    graphics.submit(
        &[],
        move |commands| commands.acquire_image(&new, Contents::Discard, ImageLayout::GENERAL),
        &[line.signal_at(1)],
    )?;

    // A kernel would write a surface instead: `image.left().surface(0)?`.
    let source = cuda.host_buffer(info.level_size(0))?;
    for (word, texel) in (0..).zip(source.as_words().unwrap_or_default()) {
        texel.store(word, Relaxed);
    }
    let to = image.left().clone();
    compute.submit(
        &[line.at(1)],
        move |stream| stream.copy_buffer_to_image(&source, &to, 0),
        &[line.signal_at(2)],
    )?;

    // Acquired from CUDA, and released at the end. A shader would sample it: see `acquire_image`.
    let seen = vulkan.host_buffer(info.level_size(0), Default::default())?;
    let (from, target) = (image.right().clone(), seen.clone());
    graphics.submit(
        &[line.at(2)],
        move |commands| commands.copy_image_to_buffer(&from, 0, &target),
        &[line.signal_at(3)],
    )?;
    line.at(3).wait(PATIENCE)?;
    let texels = (0..).zip(seen.as_words().unwrap_or_default());
    let right = texels.filter(|(word, texel)| texel.load(Relaxed) == *word);
    println!("{} of {} texels are right", right.count(), 640 * 360);
    Ok(())
}
