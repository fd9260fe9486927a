//! Memory that CUDA makes. Vulkan imports it, and both use ranges of it.
//!
//! Vulkan's buffers are at offsets in the imported memory. One timeline orders both sides.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use syncline::prelude::*;

const PATIENCE: Duration = Duration::from_secs(30);
const BYTES: u64 = 4 << 20;
/// Offsets and sizes of what CUDA writes, and of what Vulkan writes.
const INPUT: (u64, u64) = (64 << 10, 256 << 10);
const OUTPUT: (u64, u64) = (2 << 20, 256 << 10);

fn main() -> syncline::Result<()> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let (cuda, vulkan) = inventory.pair()?;
    let link = share(&cuda, &vulkan)?;
    let line = link.timeline("line")?;

    // An error of the import returns the handle, and `?` drops it.
    let (memory, handle) = cuda.export_buffer(BYTES)?;
    let imported = vulkan.import_allocation(handle)?;
    // Aligned as the driver asks. `imported.range` takes any multiple of 4.
    let input = imported.buffer(INPUT.0, INPUT.1, Default::default())?;
    let output = imported.buffer(OUTPUT.0, OUTPUT.1, Default::default())?;

    let words = memory.view(INPUT.0, INPUT.1)?;
    cuda.queue(QueueKind::Compute, "writes")?.submit(
        &[],
        move |stream| stream.memset_d32(&words, 7),
        &[line.signal_at(1)],
    )?;
    vulkan.queue(QueueKind::Compute, "copies")?.submit(
        &[line.at(1)],
        // The recorder acquires both ranges from CUDA, and releases them at the end.
        move |commands| commands.copy_buffer(&input, &output),
        &[line.signal_at(2)],
    )?;
    let (words, seen) = (
        memory.view(OUTPUT.0, OUTPUT.1)?,
        cuda.host_buffer(OUTPUT.1)?,
    );
    let target = seen.clone();
    cuda.queue(QueueKind::Compute, "reads")?.submit(
        &[line.at(2)],
        move |stream| stream.copy(&words, &target),
        &[line.signal_at(3)],
    )?;
    line.at(3).wait(PATIENCE)?;
    let words = seen.as_words().unwrap_or_default();
    let right = words.iter().filter(|word| word.load(Relaxed) == 7).count();
    println!("{right} of {} words are 7", words.len());
    Ok(())
}
