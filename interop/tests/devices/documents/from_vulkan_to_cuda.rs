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
    compute: &Queue,                 // CUDA's, or of any other device
    frames: &Timeline,               // of syncline::connect(&device, &compute_device)
    n: u64,
) -> syncline::Result<()> {
    // The reader may come first: it is held until the claim below has been submitted.
    compute.submit(&[frames.at(n)], |_| Ok(()), &[])?;

    let mut claim = frames.claim(n, 0)?;                    // this value is ours to signal
    claim.wait_ready(PATIENCE)?;                            // the value before it is on its way
    let semaphores = [device.semaphore_of(frames)?];        // the raw VkSemaphore
    let (before, values) = ([claim.predecessor()], [claim.value()]);
    let (stages, buffers) = ([vk::PipelineStageFlags::ALL_COMMANDS], [commands]);
    let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
        .wait_semaphore_values(&before)                     // another queue may signal that one
        .signal_semaphore_values(&values);
    let submit = vk::SubmitInfo::default()
        .wait_semaphores(&semaphores)
        .wait_dst_stage_mask(&stages)
        .command_buffers(&buffers)
        .signal_semaphores(&semaphores)
        .push_next(&mut timeline);
    let guard = queue.lock();                               // the VkQueue, under the lock that both sides take
    // SAFETY: all of this device, finished before anything of it is destroyed, and no other thread uses the VkQueue now.
    unsafe { device.raw().queue_submit(guard.raw(), &[submit], vk::Fence::null()) }
        .map_err(Error::work)?;
    drop(guard);
    claim.submitted()?;                                     // now the value is on its way: CUDA is released
    frames.at(n).wait(PATIENCE)
}
