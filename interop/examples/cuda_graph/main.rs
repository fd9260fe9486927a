//! A CUDA graph with two slots. Vulkan begins in the middle of each launch.

#![allow(unsafe_code, reason = "captures and adopts a graph")]

mod capture;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use syncline::prelude::*;

const PATIENCE: Duration = Duration::from_secs(30);
const FRAMES: u64 = 100;
const BYTES: u64 = 4096;

fn main() -> syncline::Result<()> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let (cuda, vulkan) = inventory.pair()?;
    let link = share(&cuda, &vulkan)?;
    let (ready, shown) = (link.timeline("ready")?, link.timeline("shown")?);
    let (picture, rest) = (link.buffer(BYTES)?, cuda.buffer(BYTES)?);
    let (simulate, show) = (
        cuda.queue(QueueKind::Compute, "simulate")?,
        vulkan.queue(QueueKind::Compute, "show")?,
    );
    let (graph, free, painted) = capture::capture(
        (&cuda, &simulate),
        (&shown, &ready),
        (picture.left(), &rest),
    )?;

    let seen = vulkan.host_buffer(BYTES, Default::default())?;
    for frame in 1..=FRAMES {
        simulate.launch(&graph, &[free.at(frame - 1), painted.at(frame)])?;
        let (from, to) = (picture.right().clone(), seen.clone());
        show.submit(
            &[ready.at(frame)],
            move |commands| commands.copy_buffer(&from, &to),
            &[shown.signal_at(frame)],
        )?;
    }
    shown.at(FRAMES).wait(PATIENCE)?;
    simulate.idle(PATIENCE)?;
    let words = seen.as_words().unwrap_or_default();
    let right = words.iter().filter(|word| word.load(Relaxed) == 7).count();
    let count = words.len();
    println!("frame {}: {right} of {count} words are 7", shown.value()?);
    Ok(())
}
