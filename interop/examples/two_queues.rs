//! Two queues of a device that is chosen at run time: two CUDA streams, for example.
//!
//! Usage: `two_queues [DEVICE]`, where DEVICE is `cuda`, `vulkan`, `host`, a part of a name or an
//! index.

use std::time::Duration;

use syncline::Buffer;
use syncline::prelude::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> syncline::Result<()> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let device = match std::env::args().nth(1) {
        Some(asked) => inventory.select(&asked)?.open()?,
        None => inventory.select("0")?.open()?,
    };
    println!("{} {}", device.info().backend, device.info().name);
    let [first, second] = ["first", "second"].map(|label| device.queue(QueueKind::Compute, label));
    let (first, second) = (first?, second?);
    let words = Buffer::host_visible(&device, 4096)?;
    let line = device.timeline("line")?;
    for n in 1..=50 {
        for (queue, step) in [(&first, 2 * n - 1), (&second, 2 * n)] {
            let words = words.clone();
            queue.submit(
                &[line.at(step - 1)],
                move |recorder| recorder.fill(&words, step as u32), // on any backend
                &[line.signal_at(step)],
            )?;
        }
    }
    line.at(100).wait(PATIENCE)?;
    let word = words
        .words()
        .map(|words| words[0].load(std::sync::atomic::Ordering::Relaxed));
    println!("the last word written is {word:?}");
    first.idle(PATIENCE)?;
    second.idle(PATIENCE)
}
