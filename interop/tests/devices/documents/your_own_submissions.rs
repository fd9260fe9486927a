use std::time::Duration;
use syncline::prelude::*;
use syncline::{Error, Point, Timeline, vulkan};
use vulkan::ash::vk;

const PATIENCE: Duration = Duration::from_secs(30);

/// Calls `vkQueueSubmit` itself. The submission waits for `wait` and signals `value` of `timeline`.
pub fn submit(
    device: &vulkan::Device,
    queue: &vulkan::Queue,
    commands: vk::CommandBuffer,
    wait: Point<'_>,
    timeline: &Timeline,
    value: u64,
) -> syncline::Result<()> {
    // 1. Only this claim may signal the value. The value before it becomes pending first.
    let mut claim = timeline.claim(value)?;
    claim.wait_ready(PATIENCE)?;
    // 2. The awaited value becomes pending, too.
    wait.wait_pending(PATIENCE)?;
    // 3. The submission waits for both, because another queue may signal the value before its own.
    let own = device.semaphore_of(timeline)?;
    let (waits, befores) = ([device.semaphore(wait)?, own], [wait.value(), claim.predecessor()]);
    let (signals, values) = ([own], [claim.value()]);
    let (stages, buffers) = ([vk::PipelineStageFlags::ALL_COMMANDS; 2], [commands]);
    let mut values = vk::TimelineSemaphoreSubmitInfo::default()
        .wait_semaphore_values(&befores)
        .signal_semaphore_values(&values);
    let submit = vk::SubmitInfo::default()
        .wait_semaphores(&waits)
        .wait_dst_stage_mask(&stages)
        .command_buffers(&buffers)
        .signal_semaphores(&signals)
        .push_next(&mut values);
    let guard = queue.lock(); // the lock that Syncline takes to use this VkQueue
    // SAFETY: all handles are of this device and live until the submission has finished. The
    // guard keeps other threads from the VkQueue.
    unsafe { device.raw().queue_submit(guard.raw(), &[submit], vk::Fence::null()) }
        .map_err(Error::work)?;
    drop(guard);
    // 4. The value is pending now. Submissions that were held for it go to their drivers.
    claim.submitted_on(device.id())
}
