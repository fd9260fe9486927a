use std::time::Duration;
use syncline::{Error, Point, Timeline, vulkan};
use vulkan::ash::vk;

const PATIENCE: Duration = Duration::from_secs(30);

/// A `vkQueueSubmit` of the application's own, which waits for `wait` and signals `value` of `timeline`.
pub fn submit(
    device: &vulkan::Device,
    queue: &vulkan::Queue,
    commands: vk::CommandBuffer,
    wait: Point<'_>,
    timeline: &Timeline,
    value: u64,
) -> syncline::Result<()> {
    // 1. The value is ours to signal, and nothing overtakes what comes before it.
    let mut claim = timeline.claim(value, 0)?;
    claim.wait_ready(PATIENCE)?;
    // 2. What the submission waits for is on its way, too.
    wait.wait_pending(PATIENCE)?;
    // 3. The submission waits for that, and for the value before its own, which another queue may signal.
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
    let guard = queue.lock(); // the VkQueue, to this thread alone
    // SAFETY: all of this device, finished before anything of it is destroyed, and no other thread uses the VkQueue now.
    unsafe { device.raw().queue_submit(guard.raw(), &[submit], vk::Fence::null()) }
        .map_err(Error::work)?;
    drop(guard);
    // 4. The value is on its way: what was held for it goes.
    claim.submitted()
}
