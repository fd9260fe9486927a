//! The recorder, into which work records command buffers.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use ash::vk;
use syncline_core::backend::InvariantLifetime;
use syncline_core::{Error, Result, error::Object};

use crate::memory::buffer::Buffer;
use crate::memory::image::{Contents, Image};
use crate::queue::recording::{Recording, SubmitRaw};
use crate::timeline::raw_binary::{RawBinary, Role};
use crate::timeline::semaphore::Semaphore;
use crate::timing::stamp::Stamp;

/// Records the work of one submission: command buffers, and semaphores for `vkQueueSubmit`.
///
/// Work of one queue executes in the order of its submissions. Each command buffer from
/// [`Recorder::command_buffer`] ends with a barrier. It makes the buffer's writes visible to
/// everything after it on the queue, and to the host. Command buffers that are passed to
/// [`Recorder::execute`] get no barrier.
///
/// Times are written after that barrier and need no barrier of their own, which would wait until
/// the time is in memory.
pub struct Recorder<'a> {
    recording: &'a mut Recording,
    of_submission: InvariantLifetime<'a>,
}

impl<'a> Recorder<'a> {
    pub(crate) const fn new(recording: &'a mut Recording) -> Self {
        Self {
            recording,
            of_submission: PhantomData,
        }
    }

    /// A recorder of the same submission by value, valid as long as this one is borrowed.
    pub fn reborrow(&mut self) -> Recorder<'_> {
        Recorder::new(self.recording)
    }

    /// The device's functions, for recording commands.
    #[must_use]
    pub fn device(&self) -> &ash::Device {
        self.recording.device()
    }

    /// The raw command buffer that this submission records into.
    ///
    /// The buffer is of the queue's family and was begun with `ONE_TIME_SUBMIT`. The queue ends,
    /// submits and reuses it. The application must not do that, and must not use the buffer after
    /// the work.
    ///
    /// The application ends what it begins in the buffer, such as a render pass, before it calls
    /// another method of this type or returns. The engine does not know which pipelines, descriptor
    /// sets and buffers the commands use. So the application [keeps](Recorder::keep) them.
    ///
    /// # Errors
    /// A driver error.
    pub fn command_buffer(&mut self) -> Result<vk::CommandBuffer> {
        self.recording.command_buffer()
    }

    /// Executes the application's own primary command buffers after what is recorded so far.
    ///
    /// # Safety
    /// They are executable primary command buffers of this device and queue family. They and what
    /// they use live until the submission has finished (see [`Recorder::keep`]).
    ///
    /// # Errors
    /// A driver error.
    pub unsafe fn execute(&mut self, buffers: &[vk::CommandBuffer]) -> Result<()> {
        // SAFETY: the caller guarantees it.
        unsafe { self.recording.execute(buffers) }
    }

    /// Sets the pipeline stages that wait for the submission's waits.
    ///
    /// By default all stages wait (`VK_PIPELINE_STAGE_ALL_COMMANDS_BIT`). Other stages may start
    /// earlier. An empty mask changes nothing.
    ///
    /// # Safety
    /// The queue family supports the stages. Commands in other stages need none of the waits.
    pub unsafe fn wait_stage(&mut self, stages: vk::PipelineStageFlags) {
        if !stages.is_empty() {
            // SAFETY: the caller guarantees it.
            unsafe { self.recording.set_wait_stage(stages) };
        }
    }

    /// Adds a wait for a binary semaphore, for example the one that `vkAcquireNextImageKHR`
    /// signals.
    ///
    /// # Safety
    /// It is a binary semaphore of this device whose signal is pending, and no other wait consumes
    /// that signal. It lives until the submission has finished. The queue family supports the
    /// stages.
    pub unsafe fn wait_binary(&mut self, semaphore: vk::Semaphore, stages: vk::PipelineStageFlags) {
        // SAFETY: the caller guarantees it.
        unsafe { self.recording.wait_binary(semaphore, stages) };
    }

    /// Signals a binary semaphore after the work, for example the one that `vkQueuePresentKHR`
    /// waits for.
    ///
    /// This signal does not wait for the values of other queues that must precede the submission's
    /// timeline signals.
    ///
    /// A [skipped](syncline_core::Submitted::end) submission does not signal the semaphore,
    /// although the queue's position advances. Anything that waits for the semaphore then, such as
    /// `vkQueuePresentKHR`, waits forever. So check
    /// [`wait_submitted`](syncline_core::Submitted::wait_submitted) first.
    ///
    /// # Safety
    /// It is a binary semaphore of this device. It is unsignalled, without a pending signal
    /// operation, when the submission executes. It lives until the submission has finished.
    pub unsafe fn signal_binary(&mut self, semaphore: vk::Semaphore) {
        // SAFETY: the caller guarantees it.
        unsafe { self.recording.signal_binary(semaphore) };
    }

    /// Signals a `VkFence` with the submission. A later call replaces the fence.
    ///
    /// A skipped submission does not signal it: see [`Recorder::signal_binary`].
    ///
    /// # Safety
    /// `fence` is an unsignalled fence of this device that no other submission uses. It lives until
    /// the submission has finished.
    pub unsafe fn fence(&mut self, fence: vk::Fence) {
        // SAFETY: the caller guarantees it.
        unsafe { self.recording.set_fence(fence) };
    }

    /// Keeps `object` alive until the submission has finished.
    pub fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.recording.keep(object);
    }

    /// Sets every word of `buffer` to `word` with `vkCmdFillBuffer`. The submission keeps the
    /// buffer.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or a driver error.
    pub fn fill_buffer(&mut self, buffer: &Buffer, word: u32) -> Result<()> {
        self.recording
            .require_device(buffer.device(), buffer.object())?;
        self.acquire(buffer)?;
        let commands = self.command_buffer()?;
        // SAFETY: the command buffer is begun. All queue families here support transfers. The
        // buffer is of this device, has the transfer usages, and is kept until the submission has
        // finished.
        unsafe {
            self.device().cmd_fill_buffer(
                commands,
                buffer.raw(),
                buffer.offset(),
                buffer.size_to_fill(),
                word,
            );
        }
        self.recording.barrier(commands);
        self.recording.keep(buffer.kept());
        Ok(())
    }

    /// Copies the start of `from` to the start of `to` with `vkCmdCopyBuffer`.
    ///
    /// Copies as many bytes as the smaller buffer has. The submission keeps both buffers.
    ///
    /// Vulkan allows no copy between regions that overlap
    /// (VUID-vkCmdCopyBuffer-pRegions-00117). Imported memory may be that of any other exported or
    /// imported allocation, so a copy between two such allocations is refused. Copy over a buffer
    /// that is not shared. If the memory is known to be different, [acquire](Recorder::acquire)
    /// both buffers, and record the copy into the [command buffer](Recorder::command_buffer).
    ///
    /// # Errors
    /// [`Error::WrongDevice`]. [`Error::Unsupported`] if the regions overlap in one allocation.
    /// Also if they are in two allocations that both [are shared](Buffer::is_shared), and at least
    /// one was imported. A driver error.
    pub fn copy_buffer(&mut self, from: &Buffer, to: &Buffer) -> Result<()> {
        for buffer in [from, to] {
            self.recording
                .require_device(buffer.device(), buffer.object())?;
        }
        let size = from.size().min(to.size());
        if from.may_alias(to, size) {
            let (asked, reason) = match from.allocation().raw() == to.allocation().raw() {
                true => ("be copied onto itself".into(), "the regions would overlap"),
                false => (
                    format!("be copied to {}", to.object()),
                    "one of them was imported, and both may use the same memory",
                ),
            };
            return Err(Error::unsupported(from.object(), asked, reason));
        }
        self.acquire(from)?;
        self.acquire(to)?;
        let commands = self.command_buffer()?;
        let region = vk::BufferCopy::default()
            .src_offset(from.offset())
            .dst_offset(to.offset())
            .size(size);
        // SAFETY: the command buffer is begun. All queue families here support transfers. The two
        // regions have different memory (see `Buffer::may_alias`). The buffers are of this device,
        // have the transfer usages, and are kept until the submission has finished. The region is
        // not empty and lies within both.
        unsafe {
            self.device()
                .cmd_copy_buffer(commands, from.raw(), to.raw(), &[region]);
        }
        self.recording.barrier(commands);
        self.recording.keep(from.kept());
        self.recording.keep(to.kept());
        Ok(())
    }

    /// Acquires a shared buffer from the other API, for everything recorded after this.
    ///
    /// The buffer is released at the end of the submission, and not earlier: the other API may use
    /// it only after the submission's signals. Call this before shaders access a shared buffer.
    /// The methods of this type acquire their buffers themselves. Bytes that the submission has
    /// acquired before, by this buffer or another one, are not acquired again. Does nothing for a
    /// buffer that is not [shared](Buffer::is_shared). The submission keeps the buffer.
    ///
    /// Command buffers for [`Recorder::execute`] that transfer the same memory belong into another
    /// submission.
    ///
    /// See the ownership transfer to `VK_QUEUE_FAMILY_EXTERNAL` (Vulkan 1.3, 7.7.4).
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or a driver error.
    pub fn acquire(&mut self, buffer: &Buffer) -> Result<()> {
        self.recording.acquire(buffer)
    }

    /// Acquires an image from the other API, in `layout`, for everything recorded after this.
    ///
    /// All levels and layers are acquired. The image is released at the end of the submission, and
    /// not earlier: the other API may use it only after the submission's signals. An image that the
    /// submission has acquired before keeps its contents, whatever `contents` says, and its layout
    /// becomes `layout`. The submission keeps the image.
    ///
    /// See the ownership transfer to `VK_QUEUE_FAMILY_EXTERNAL` (Vulkan 1.3, 7.7.4).
    ///
    /// # Errors
    /// [`Error::WrongDevice`]. [`Error::Unsupported`] if the contents of a new image are to be kept
    /// (X9), and for a layout that the usage of the image does not allow. The layouts are those of
    /// Vulkan 1.0 that keep contents. A driver error.
    pub fn acquire_image(
        &mut self,
        image: &Image,
        contents: Contents,
        layout: vk::ImageLayout,
    ) -> Result<()> {
        self.recording.acquire_image(image, contents, layout)
    }

    /// Notes that the application's own commands leave an acquired image in `layout`.
    ///
    /// For example the final layout of a render pass. The image is released from that layout. This
    /// call records no command.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless this submission has acquired the image.
    ///
    /// # Safety
    /// The whole image is in that layout after what is recorded so far.
    pub unsafe fn note_layout(&mut self, image: &Image, layout: vk::ImageLayout) -> Result<()> {
        // SAFETY: the caller guarantees it.
        unsafe { self.recording.note_layout(image, layout) }
    }

    /// Copies the start of a buffer to all layers of a level, with `vkCmdCopyBufferToImage`.
    ///
    /// The rows in the buffer have no gaps, and one layer follows the other
    /// ([`ImageInfo::level_size`]). Acquires both, and discards the contents of an image that is
    /// new or has one level. An image that the submission has acquired before keeps its layout. The
    /// submission keeps both.
    ///
    /// [`ImageInfo::level_size`]: syncline_core::image::ImageInfo::level_size
    ///
    /// # Errors
    /// [`Error::WrongDevice`]. [`Error::Unsupported`] for a level that the image does not have, for
    /// a buffer that is smaller than the level, for one whose offset is not a multiple of a texel,
    /// and if a queue without graphics copies to an image of depth. Also if both have bytes of one
    /// allocation in common, or may have them: see [`Recorder::copy_buffer`]. Memory of one buffer
    /// or image alone has no bytes of another one. A driver error.
    pub fn copy_buffer_to_image(&mut self, from: &Buffer, to: &Image, level: u32) -> Result<()> {
        self.recording.copy_buffer_to_image(from, to, level)
    }

    /// Copies all layers of a level to the start of a buffer, with `vkCmdCopyImageToBuffer`.
    ///
    /// See [`Recorder::copy_buffer_to_image`].
    ///
    /// # Errors
    /// Same errors as [`Recorder::acquire_image`] and [`Recorder::copy_buffer_to_image`].
    pub fn copy_image_to_buffer(&mut self, from: &Image, level: u32, to: &Buffer) -> Result<()> {
        self.recording.copy_image_to_buffer(from, level, to)
    }

    /// Adds a barrier between everything recorded so far and everything recorded later.
    ///
    /// Writes before the barrier are visible after it.
    ///
    /// # Errors
    /// A driver error.
    pub fn order(&mut self) -> Result<()> {
        let commands = self.command_buffer()?;
        self.recording.barrier(commands);
        Ok(())
    }

    /// Hands `submit` to [`Recording::set_raw_work`]: the application makes the driver's call.
    pub(crate) fn set_raw_work(&mut self, submit: SubmitRaw) -> Result<()> {
        self.recording.set_raw_work(submit)
    }

    /// The name of the queue.
    pub(crate) fn queue(&self) -> &Object {
        self.recording.object()
    }

    /// See [`Recording::note_use`].
    pub(crate) fn note_use(
        &mut self,
        semaphore: &Arc<RawBinary>,
        role: Role,
        fence: Option<(Arc<Semaphore>, u64)>,
    ) {
        self.recording.note_use(semaphore, role, fence);
    }

    /// See [`Recording::write_time`].
    pub(crate) fn write_time(&mut self, stamp: &Arc<Stamp>) {
        self.recording.write_time(stamp);
    }
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vulkan Recorder ({:?})", self.recording)
    }
}
