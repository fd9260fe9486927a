//! A producer is up to three frames ahead of its consumer. Needs no GPU and no driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use syncline::prelude::*;
use syncline::{Slots, host};

fn main() -> syncline::Result<()> {
    let device = host::Device::new();
    println!("on {}", device.info().name);
    let producer = device.queue(QueueKind::Compute, "producer")?;
    let consumer = device.queue(QueueKind::Compute, "consumer")?;
    // The producer signals n when frame n is in its slot, the consumer when the slot is free again.
    let (filled, freed) = (device.timeline("filled")?, device.timeline("freed")?);
    let buffers: Arc<[AtomicU64; 3]> = Arc::default(); // or of CUDA, Vulkan, or both
    let slots = Slots::new(freed.wait_only(), buffers.len())?;

    for n in 1..=5 {
        let slot = slots.frame(n)?;
        let (at, to, from) = (slot.index(), buffers.clone(), buffers.clone());
        let fill = move || to[at].store(n * n, Relaxed);
        let show = move || println!("frame {n} is {:?}", from[at]);
        producer.submit(
            &[slot.free()], // reached for frames 1 to 3, then `freed.at(n - 3)`
            |worker| {
                worker.run(fill);
                Ok(())
            },
            &[filled.signal_at(n)],
        )?;
        consumer.submit(
            &[filled.at(n)],
            |worker| {
                worker.run(show);
                Ok(())
            },
            &[freed.signal_at(n)],
        )?;
    }
    freed.at(5).wait(Duration::from_secs(10))
}
