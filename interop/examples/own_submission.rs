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
    // Held until `submitted` below, so the order of the calls does not matter.
    other.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;

    let mut claim = line.claim(1)?; // from now on only this claim may signal 1
    claim.wait_ready(PATIENCE)?; // the value before it is pending
    let semaphores = [device.semaphore_of(&line)?]; // the raw `VkSemaphore`
    let (waits, values) = ([claim.predecessor()], [claim.value()]);
    let stages = [vk::PipelineStageFlags::ALL_COMMANDS];
    let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
        .wait_semaphore_values(&waits)
        .signal_semaphore_values(&values);
    let submit = vk::SubmitInfo::default() // with command buffers of the application
        .wait_semaphores(&semaphores)
        .wait_dst_stage_mask(&stages)
        .signal_semaphores(&semaphores)
        .push_next(&mut timeline);
    {
        let guard = queue.lock(); // Syncline uses this `VkQueue`, too
        // SAFETY: the handles are of this device and outlive the submission. The guard keeps other
        // threads from the queue.
        unsafe {
            device
                .raw()
                .queue_submit(guard.raw(), &[submit], vk::Fence::null())
        }
        .map_err(Error::work)?;
    }
    claim.submitted()?; // without this call, the drop of the claim withdraws it

    line.at(2).wait(PATIENCE)?;
    println!("the line is at {}", line.value()?);
    queue.idle(PATIENCE)?;
    other.idle(PATIENCE)
}
