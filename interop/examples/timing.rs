//! How long the work of one submission takes on its device, and when it began on the host's clock.

use std::time::Duration;

use syncline::Stopwatch;
use syncline::prelude::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> syncline::Result<()> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    for found in inventory
        .devices()
        .iter()
        .filter(|found| found.rejected().is_none())
    {
        let device = found.open()?;
        let queue = device.queue(QueueKind::Compute, "queue")?;
        let stopwatch = Stopwatch::new(&device, "work")?;
        stopwatch.time(&queue, &[], |_| Ok(()), &[])?;
        let took = stopwatch.wait(PATIENCE)?;
        let began = stopwatch.start_time()?.to_host()?;
        let name = &found.info().name;
        println!("{name}: {took}, begun at {began} on the host's clock");
        queue.idle(PATIENCE)?;
    }
    Ok(())
}
