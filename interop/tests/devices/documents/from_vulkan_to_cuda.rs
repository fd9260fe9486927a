use std::time::Duration;
use syncline::prelude::*;
use syncline::{Queue, Timeline, vulkan};
use vulkan::ash::vk;

const PATIENCE: Duration = Duration::from_secs(30);

/// Renders with the application's own `vkQueueSubmit`, then lets CUDA read the result.
pub fn render_then_compute(
    device: &vulkan::Device,
    queue: &vulkan::Queue,
    commands: vk::CommandBuffer,
    compute: &Queue, // of CUDA, or of any other device
    frames: &Timeline, // of syncline::connect(&device, &compute_device)
    n: u64,
) -> syncline::Result<()> {
    // The reader may submit first. Its submission is held until the renderer's is with the driver.
    compute.submit(&[frames.at(n)], |_| Ok(()), &[])?;

    let functions = device.raw().clone();
    queue.submit_raw(&[], &[frames.signal_at(n)], move |raw| {
        let buffers = [commands];
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(raw.wait_values)
            .signal_semaphore_values(raw.signal_values);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(raw.waits)
            .wait_dst_stage_mask(raw.wait_stages)
            .command_buffers(&buffers)
            .signal_semaphores(raw.signals)
            .push_next(&mut values);
        // SAFETY: the queue is locked. All handles live until the submission has finished.
        unsafe { functions.queue_submit(raw.queue, &[info], vk::Fence::null()) }
    })?;
    frames.at(n).wait(PATIENCE)
}
