//! The application's own `vkQueueSubmit` signals a timeline that Syncline's queues wait for.

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
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(raw.wait_values)
            .signal_semaphore_values(raw.signal_values);
        let info = vk::SubmitInfo::default() // with command buffers of the application
            .wait_semaphores(raw.waits)
            .wait_dst_stage_mask(raw.wait_stages)
            .signal_semaphores(raw.signals)
            .push_next(&mut values);
        // SAFETY: the queue is locked, and the handles live until the submission has finished.
        unsafe { functions.queue_submit(raw.queue, &[info], vk::Fence::null()) }
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
