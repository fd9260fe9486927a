//! Records which submission waited for which signal, and how long each step took.

use std::time::Duration;

use syncline::host;
use syncline::prelude::*;
use syncline::trace::Trace;

fn main() -> syncline::Result<()> {
    let device = host::Device::new();
    println!("on {}", device.info().name);
    let producer = device.queue(QueueKind::Compute, "producer")?;
    let consumer = device.queue(QueueKind::Compute, "consumer")?;
    let frames = device.timeline("frames")?;
    let trace = Trace::new();
    trace.follow(&producer)?;
    trace.follow(&consumer)?;
    for n in 1..=3 {
        consumer.submit(
            &[frames.at(2 * n - 1)],
            |_| Ok(()),
            &[frames.signal_at(2 * n)],
        )?;
        producer.submit(
            &[frames.at(2 * n - 2)],
            |_| Ok(()),
            &[frames.signal_at(2 * n - 1)],
        )?;
    }
    frames.at(6).wait(Duration::from_secs(10))?;
    let recording = trace.finish(Duration::from_secs(10));
    for track in &recording.tracks {
        println!("{}: {} submissions", track.queue, track.submissions.len());
    }
    println!(
        "{} waits were released by a signal",
        recording.arrows().len()
    );
    Ok(())
}
