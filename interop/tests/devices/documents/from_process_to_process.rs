use std::time::Duration;
use syncline::backend::{Device as _, Queue as _};
use syncline::negotiate::Party;
use syncline::process::Endpoint;
use syncline::{Device, QueueKind};

const PATIENCE: Duration = Duration::from_secs(30);

/// Runs in both processes, each with its own device. The producer passes `signals`.
pub fn frames(
    device: &Device,
    endpoint: &Endpoint,
    signals: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let party = Party::of(device);
    let id = party.id();
    let plan = endpoint.negotiate(if signals { party.signals() } else { party.waits() }, PATIENCE)?;
    println!("{plan}"); // the mechanism, the reason for it, and the rights of each process
    // Both processes call this, and each gets its side of one timeline.
    let made = plan.make_across("frames", 0, &[device.clone()], &[endpoint], PATIENCE)?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    if signals {
        let frames = made.signal_only(id)?; // it cannot wait
        queue.submit(&[], |_| Ok(()), &[frames.signal_at(1)])?;
        queue.idle(PATIENCE)?;
    } else {
        let frames = made.wait_only(id)?; // it cannot signal
        queue.submit(&[frames.at(1)], |_| Ok(()), &[])?;
        frames.at(1).wait(PATIENCE)?; // an error with PeerLost if the producer has died
        queue.idle(PATIENCE)?;
    }
    Ok(())
}
