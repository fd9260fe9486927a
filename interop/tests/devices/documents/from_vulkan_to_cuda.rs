use std::time::Duration;
use syncline::backend::Queue as _;
use syncline::{Error, Queue, Timeline, vulkan};
use vulkan::ash::vk;

const PATIENCE: Duration = Duration::from_secs(30);

/// Renders with the engine's own `vkQueueSubmit`, then lets CUDA read the result.
pub fn render_then_compute(
    device: &vulkan::Device,
    queue: &vulkan::Queue,
    commands: vk::CommandBuffer,
    compute: &Queue, // of CUDA, or of any other device
    frames: &Timeline, // of syncline::connect(&device, &compute_device)
    n: u64,
) -> syncline::Result<()> {
    // The reader may submit first. Its submission is held until `claim.submitted()` below.
    compute.submit(&[frames.at(n)], |_| Ok(()), &[])?;

    let mut claim = frames.claim(n)?; // only this claim may signal the value
    claim.wait_ready(PATIENCE)?; // the value before it is pending
    let semaphores = [device.semaphore_of(frames)?]; // the raw VkSemaphore
    let (before, values) = ([claim.predecessor()], [claim.value()]);
    let (stages, buffers) = ([vk::PipelineStageFlags::ALL_COMMANDS], [commands]);
    let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
        .wait_semaphore_values(&before) // another queue may signal that value
        .signal_semaphore_values(&values);
    let submit = vk::SubmitInfo::default()
        .wait_semaphores(&semaphores)
        .wait_dst_stage_mask(&stages)
        .command_buffers(&buffers)
        .signal_semaphores(&semaphores)
        .push_next(&mut timeline);
    let guard = queue.lock(); // the lock that Syncline takes to use this VkQueue
    // SAFETY: all handles are of this device and live until the submission has finished. The
    // guard keeps other threads from the VkQueue.
    unsafe { device.raw().queue_submit(guard.raw(), &[submit], vk::Fence::null()) }
        .map_err(Error::work)?;
    drop(guard);
    claim.submitted()?; // the value is pending now, so CUDA's submission goes
    frames.at(n).wait(PATIENCE)
}
