//! Vulkan draws the image by its own commands, CUDA reads it and writes it, and Vulkan reads that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use syncline::prelude::*;
use syncline::vulkan::{Contents, ash::vk};
use syncline::{Result, SharedImage, cuda, vulkan};

use crate::draw::draw;

const PATIENCE: Duration = Duration::from_secs(30);

/// Uses the image on both sides in turn, and compares its texels.
pub(crate) fn exchange(
    link: &Link<vulkan::Device, cuda::Device>,
    image: &SharedImage<vulkan::Device, cuda::Device>,
    graphics: &vulkan::Queue,
    compute: &cuda::Queue,
) -> Result<()> {
    let (line, size) = (link.timeline("picture")?, image.info().level_size(0));
    let own = Commands::new(graphics).map_err(Error::work)?;
    let (commands, order) = (own.buffer, (line.at(0), line.signal_at(1)));
    // SAFETY: a command buffer of this family, which only this call submits. Its owner destroys it.
    unsafe { draw(graphics, commands, Arc::new(own), image.left(), order) }?;

    let (drawn, texels) = (
        link.right().host_buffer(size)?,
        link.right().host_buffer(size)?,
    );
    for (word, texel) in (0..).zip(texels.as_words().unwrap_or_default()) {
        texel.store(word, Relaxed);
    }
    let (of_cuda, to) = (image.right().clone(), drawn.clone());
    compute.submit(
        &[line.at(1)],
        move |stream| {
            stream.copy_image_to_buffer(&of_cuda, 0, &to)?;
            // A kernel would write a surface instead: `of_cuda.surface(0)?`.
            stream.copy_buffer_to_image(&texels, &of_cuda, 0)
        },
        &[line.signal_at(2)],
    )?;

    let seen = link.left().host_buffer(size, Default::default())?;
    let (of_vulkan, to) = (image.left().clone(), seen.clone());
    graphics.submit(
        &[line.at(2)],
        move |recorder| {
            // The layout for shaders that sample what CUDA has written.
            let layout = vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL;
            recorder.acquire_image(&of_vulkan, Contents::Keep, layout)?;
            recorder.copy_image_to_buffer(&of_vulkan, 0, &to)
        },
        &[line.signal_at(3)],
    )?;
    line.at(3).wait(PATIENCE)?;

    let right = |words: Option<&[AtomicU32]>, texel: fn(u32) -> u32| {
        let words = (0..).zip(words.unwrap_or_default());
        let right = words.filter(|(n, word)| word.load(Relaxed) == texel(*n));
        right.count()
    };
    println!(
        "{} texels of Vulkan and {} of CUDA are right, of {}",
        right(drawn.as_words(), |_| u32::MAX),
        right(seen.as_words(), |n| n),
        size / 4
    );
    Ok(())
}

/// A command buffer of the application, for queues of one family.
struct Commands {
    device: vulkan::Device,
    pool: vk::CommandPool,
    buffer: vk::CommandBuffer,
}

impl Commands {
    fn new(queue: &vulkan::Queue) -> std::result::Result<Self, vk::Result> {
        let device = queue.device();
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(queue.family());
        // SAFETY: a family of this device.
        let pool = unsafe { device.raw().create_command_pool(&info, None) }?;
        let mut made = Self {
            device,
            pool,
            buffer: vk::CommandBuffer::null(),
        };
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .command_buffer_count(1);
        // SAFETY: a pool of this device.
        let buffers = unsafe { made.device.raw().allocate_command_buffers(&info) }?;
        made.buffer = buffers[0];
        Ok(made)
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // SAFETY: made above. A submission with the command buffer keeps this until its end.
        unsafe { self.device.raw().destroy_command_pool(self.pool, None) };
    }
}
