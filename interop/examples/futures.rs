//! Points as futures, on a tokio runtime. No thread blocks while the device works.

use std::time::Duration;

use syncline::prelude::*;
use syncline::wait::future;

#[tokio::main(flavor = "current_thread")]
async fn main() -> syncline::Result<()> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let device = inventory.select("0")?.open()?;
    println!("{} {}", device.info().backend, device.info().name);
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let (uploads, frames) = (device.timeline("uploads")?, device.timeline("frames")?);

    queue.submit(&[], |_| Ok(()), &[uploads.signal_at(1)])?;
    queue.submit(&[uploads.at(1)], |_| Ok(()), &[frames.signal_at(1)])?;
    uploads.at(1).await?;
    println!("uploaded");
    future::all(&[uploads.at(1), frames.at(1)]).await?;
    println!("shown");

    // A signal that nothing makes: the runtime's own time-out ends the wait.
    let missing = tokio::time::timeout(Duration::from_millis(20), frames.at(2)).await;
    println!("frame 2 came: {}", missing.is_ok());
    queue.idle(Duration::from_secs(30))
}
