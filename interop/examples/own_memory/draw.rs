//! Own commands draw into an own image, which they take from CUDA and give back.

use std::any::Any;
use std::sync::Arc;

use syncline::prelude::*;
use syncline::vulkan::ash::vk;
use syncline::vulkan::{Contents, Image, ImageBarrier, Queue};
use syncline::{Result, Signal};

/// Makes the image white, by a command buffer and a `vkQueueSubmit2` of the application.
///
/// # Safety
/// The command buffer is of the queue's family. No submission that has not finished has it. It is
/// not freed before `owner` is dropped.
pub(crate) unsafe fn draw(
    queue: &Queue,
    commands: vk::CommandBuffer,
    owner: Arc<dyn Any + Send + Sync>,
    image: &Image,
    (wait, signal): (Point<'_>, Signal<'_>),
) -> Result<()> {
    let (functions, family) = (queue.device().raw().clone(), queue.family());
    let barrier = |barrier: ImageBarrier| {
        // For `vkCmdPipelineBarrier`, `into()` makes a `VkImageMemoryBarrier`.
        let barriers = [barrier.into()];
        let dependency = vk::DependencyInfo::default().image_memory_barriers(&barriers);
        // SAFETY: begun below, and the device has the feature `synchronization2`.
        unsafe { functions.cmd_pipeline_barrier2(commands, &dependency) };
    };
    let layout = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
    let white = vk::ClearColorValue { float32: [1.0; 4] };
    let whole = vk::ImageSubresourceRange::default()
        .aspect_mask(vk::ImageAspectFlags::COLOR)
        .level_count(1)
        .layer_count(1);
    // SAFETY: the caller guarantees the command buffer. The image is in this layout.
    unsafe {
        functions
            .begin_command_buffer(commands, &vk::CommandBufferBeginInfo::default())
            .map_err(Error::work)?;
        // All texels are drawn, so those of CUDA may go. `Contents::Keep` would keep them.
        barrier(image.acquire_barrier(family, Contents::Discard, layout));
        functions.cmd_clear_color_image(commands, image.raw(), layout, &white, &[whole]);
        // From the layout in which the commands leave the image.
        barrier(image.release_barrier(family, layout));
        functions
            .end_command_buffer(commands)
            .map_err(Error::work)?;
    }
    let kept = image.clone();
    queue.submit_raw(&[wait], &[signal], move |raw| {
        // Until the submission has finished.
        raw.keep(owner);
        raw.keep(Arc::new(kept));
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
    Ok(())
}
