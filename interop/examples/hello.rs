//! Two queues and one timeline. Needs no GPU and no driver.

use std::time::Duration;

use syncline::host;
use syncline::prelude::*;

fn main() -> syncline::Result<()> {
    let device = host::Device::new();
    println!("on {}", device.info().name);
    let producer = device.queue(QueueKind::Compute, "producer")?;
    let consumer = device.queue(QueueKind::Compute, "consumer")?;
    let frames = device.timeline("frames")?;

    // The consumer may be submitted first. It is held until its signal is pending.
    consumer.submit(
        &[frames.at(1)],
        |worker| {
            worker.run(|| println!("shade frame 1"));
            Ok(())
        },
        &[frames.signal_at(2)],
    )?;
    producer.submit(
        &[],
        |worker| {
            worker.run(|| println!("simulate frame 1"));
            Ok(())
        },
        &[frames.signal_at(1)],
    )?;
    frames.at(2).wait(Duration::from_secs(10))?;
    println!("{} is at {}", frames.object(), frames.value()?);
    Ok(())
}
