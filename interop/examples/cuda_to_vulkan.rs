//! CUDA writes memory, and Vulkan reads it on the same GPU, ordered by one semaphore of both.

use std::time::Duration;

use syncline::prelude::*;

const PATIENCE: Duration = Duration::from_secs(30);
const BYTES: u64 = 1 << 16;

fn main() -> syncline::Result<()> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let (cuda, vulkan) = inventory.pair()?; // one GPU, by its UUID
    let link = share(&cuda, &vulkan)?;
    println!("{}: {}", vulkan.info().name, link.mechanism());

    let heights = link.buffer(BYTES)?; // one allocation, which both APIs address
    let picture = vulkan.host_buffer(BYTES, Default::default())?;
    let frames = link.timeline("frames")?;
    let compute = cuda.queue(QueueKind::Compute, "simulate")?;
    let graphics = vulkan.queue(QueueKind::Compute, "shade")?;

    for n in 1..=100 {
        let (simulated, shaded) = (2 * n - 1, 2 * n);
        let words = heights.left().clone();
        compute.submit(
            &[frames.at(simulated - 1)],
            move |stream| stream.memset_d32(&words, n as u32), // or launch kernels
            &[frames.signal_at(simulated)],
        )?;
        let (from, to) = (heights.right().clone(), picture.clone());
        graphics.submit(
            &[frames.at(simulated)],
            move |commands| commands.copy_buffer(&from, &to), // or draw
            &[frames.signal_at(shaded)],
        )?;
    }
    frames.at(200).wait(PATIENCE)?;
    let last = picture
        .as_words()
        .map(|words| words[0].load(std::sync::atomic::Ordering::Relaxed));
    println!("the last frame is {last:?}");
    compute.idle(PATIENCE)?; // before the program ends
    graphics.idle(PATIENCE)
}
