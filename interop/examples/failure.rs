//! The error of a wait that no signal can end, and how a failure travels along waits.

use std::time::Duration;

use syncline::host;
use syncline::prelude::*;

fn main() -> syncline::Result<()> {
    let device = host::Device::new();
    println!("on {}", device.info().name);
    let queue = device.queue(QueueKind::Compute, "shade")?;
    let (uploads, frames) = (device.timeline("uploads")?, device.timeline("frames")?);

    // Nothing signals the upload, so the submission is held.
    queue.submit(&[uploads.at(1)], |_| Ok(()), &[frames.signal_at(1)])?;
    if let Err(error) = frames.at(1).wait(Duration::from_millis(10)) {
        println!("{error}");
    }

    // The uploading code gives up. Every wait behind the upload ends with its cause.
    uploads.fail(Error::work("the file is missing"));
    if let Err(error) = frames.at(1).wait(Duration::from_secs(10)) {
        println!("{error}");
        println!("because {}", error.root());
    }
    queue.idle(Duration::from_secs(10)) // the queue goes on
}
