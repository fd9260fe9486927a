//! The frames of each process.

use std::sync::atomic::Ordering::Relaxed;

use syncline::prelude::*;
use syncline::vulkan::{Contents, ash::vk::ImageLayout};
use syncline::{Buffer, Image, Queue, Recorder, Result, SignalOnly, WaitOnly};

use super::{INFO, PATIENCE};

const FRAMES: u64 = 5;

/// Fills the image with the number of each frame.
pub(crate) fn write(
    queue: &Queue,
    image: &Image,
    read: &WaitOnly,
    written: &SignalOnly,
    no_sync: bool,
) -> Result<()> {
    for n in 1..=FRAMES {
        let (from, to) = (host_visible(queue)?, image.clone());
        let texels = from.words().unwrap_or_default().iter();
        texels.for_each(|texel| texel.store(n as u32, Relaxed));
        // Without the waits both may run in any order. `--no-sync` takes the worst one.
        let free = read.at(if no_sync { n + 1 } else { n });
        let work = move |recorder: &mut Recorder<'_>| recorder.copy_to_image(&from, &to, 0);
        queue.submit(&[free], work, &[written.signal_at(n)])?;
    }
    read.at(FRAMES + 1).wait(PATIENCE)?;
    queue.idle(PATIENCE)
}

/// Takes the new image, which has no contents, and then reads each frame.
pub(crate) fn read(
    queue: &Queue,
    image: &Image,
    read: &SignalOnly,
    written: &WaitOnly,
    no_sync: bool,
) -> Result<()> {
    let (new, seen) = (image.clone(), host_visible(queue)?);
    let take = move |recorder: &mut Recorder<'_>| {
        let recorder = recorder.vulkan()?;
        recorder.acquire_image(new.vulkan()?, Contents::Discard, ImageLayout::GENERAL)
    };
    queue.submit(&[], take, &[read.signal_at(1)])?;
    for n in 1..=FRAMES {
        let (from, to) = (image.clone(), seen.clone());
        let ready = if no_sync { Point::EMPTY } else { written.at(n) };
        let work = move |recorder: &mut Recorder<'_>| recorder.copy_from_image(&from, 0, &to);
        queue.submit(&[ready], work, &[read.signal_at(n + 1)])?;
        queue.idle(PATIENCE)?;
        let texels = seen.words().unwrap_or_default().iter();
        let right = texels.filter(|texel| texel.load(Relaxed) == n as u32);
        println!(
            "frame {n}: {} of {} texels are right",
            right.count(),
            640 * 360
        );
    }
    queue.idle(PATIENCE)
}

/// Memory for all texels, which the host can read and write.
fn host_visible(queue: &Queue) -> Result<Buffer> {
    Buffer::host_visible(&queue.device(), INFO.level_size(0))
}
