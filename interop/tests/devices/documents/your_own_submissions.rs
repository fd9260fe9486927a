use std::time::Duration;
use syncline::prelude::*;
use syncline::{Error, Point, Timeline, vulkan};
use vulkan::ash::vk;

const PATIENCE: Duration = Duration::from_secs(30);

/// Calls `vkQueueSubmit2` itself. It waits for `wait` and signals `value` of `timeline`.
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
    let at = |semaphore, value| {
        let info = vk::SemaphoreSubmitInfo::default().semaphore(semaphore).value(value);
        info.stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
    };
    let waits = [at(device.semaphore(wait)?, wait.value()), at(own, claim.predecessor())];
    let signals = [at(own, claim.value())];
    let buffers = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
    let submit = vk::SubmitInfo2::default()
        .wait_semaphore_infos(&waits)
        .command_buffer_infos(&buffers)
        .signal_semaphore_infos(&signals);
    let guard = queue.lock()?; // the lock that Syncline takes to use this VkQueue
    // SAFETY: all handles are of this device and live until the submission has finished. The
    // guard keeps other threads from the VkQueue.
    unsafe { device.raw().queue_submit2(guard.raw(), &[submit], vk::Fence::null()) }
        .map_err(Error::work)?;
    drop(guard);
    // 4. The value is pending now. Submissions that were held for it go to their drivers.
    claim.submitted_on(device.id())
}
