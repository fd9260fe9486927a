use std::time::Duration;
use syncline::prelude::*;
use syncline::{Queue, Timeline, vulkan};
use vulkan::ash::vk;

const PATIENCE: Duration = Duration::from_secs(30);

/// Renders with the application's own `vkQueueSubmit2`, then lets CUDA read the result.
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
        let waits: Vec<_> = raw.wait_infos().collect();
        let signals: Vec<_> = raw.signal_infos().collect();
        let buffers = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
        let info = vk::SubmitInfo2::default()
            .wait_semaphore_infos(&waits)
            .command_buffer_infos(&buffers)
            .signal_semaphore_infos(&signals);
        // SAFETY: the queue is locked. All handles live until the submission has finished.
        unsafe { functions.queue_submit2(raw.queue, &[info], vk::Fence::null()) }
    })?;
    frames.at(n).wait(PATIENCE)
}
