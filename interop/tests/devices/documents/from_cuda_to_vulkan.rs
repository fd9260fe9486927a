use std::time::Duration;
use syncline::prelude::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> syncline::Result<()> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    // The host backend takes the place of a device that this machine does not have.
    let host = |_| inventory.select("host");
    // An application can also adopt its own CUDA context and its own VkDevice.
    let cuda = inventory.select("cuda").or_else(host)?.open()?;
    let vulkan = inventory.select("vulkan").or_else(host)?.open()?;
    // On one GPU this shares natively. Elsewhere it relays, where `share` would return an error.
    let link = syncline::connect(&cuda, &vulkan);
    println!("{} ({})", link.mechanism(), link.why());
    let frames = link.timeline("frames")?;
    let heights = link.buffer_or_relay(1 << 16)?; // one allocation, or one on each of two GPUs
    let compute = cuda.queue(QueueKind::Compute, "simulate")?;
    let graphics = vulkan.queue(QueueKind::Graphics, "shade")?;

    for n in 1..=300 {
        let memory = heights.left().clone();
        compute.submit(
            &[frames.at(2 * n - 2)],
            move |recorder| recorder.fill(&memory, 7), // or launch: recorder.cuda()?.stream()
            &[frames.signal_at(2 * n - 1)],
        )?;
        if heights.is_relayed() { // two allocations: this thread copies
            frames.at(2 * n - 1).wait(PATIENCE)?;
            heights.relay();
        }
        graphics.submit(&[frames.at(2 * n - 1)], |_| Ok(()), &[frames.signal_at(2 * n)])?;
    }
    frames.at(600).wait(PATIENCE)?; // or wait_any with points of any backends
    compute.idle(PATIENCE)?; // before the program ends
    graphics.idle(PATIENCE)
}
