//! The application's own `vkQueueSubmit2` signals a timeline that Syncline's queues wait for.

#![allow(unsafe_code, reason = "submits to the driver")]

use std::time::Duration;

use syncline::prelude::*;
use syncline::vulkan;
use syncline::vulkan::ash::vk;

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> syncline::Result<()> {
    let device = vulkan::Instance::load()?.open_first()?; // or `adopt` the application's own
    println!("{}", device.info().name);
    let queue = device.queue(QueueKind::Compute, "own")?;
    let other = device.queue(QueueKind::Compute, "syncline")?;
    let line = device.timeline("line")?;

    let functions = device.raw().clone();
    let submit = move |raw: vulkan::RawSubmission<'_>| {
        let waits: Vec<_> = raw.wait_infos().collect();
        let signals: Vec<_> = raw.signal_infos().collect();
        let info = vk::SubmitInfo2::default() // with command buffers of the application
            .wait_semaphore_infos(&waits)
            .signal_semaphore_infos(&signals);
        // SAFETY: the queue is locked, and the handles live until the submission has finished.
        unsafe { functions.queue_submit2(raw.queue, &[info], vk::Fence::null()) }
    };
    // Held: nothing signals 1 yet. The caller is not blocked.
    queue.submit_raw(&[line.at(1)], &[line.signal_at(2)], submit)?;
    // This submission releases it. `submit` is called on this thread, before the call returns.
    other.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;

    line.at(2).wait(PATIENCE)?;
    println!("the line is at {}", line.value()?);
    queue.idle(PATIENCE)?;
    other.idle(PATIENCE)
}
