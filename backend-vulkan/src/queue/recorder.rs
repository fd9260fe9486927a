//! The recorder, into which work records command buffers.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use ash::vk;
use smallvec::SmallVec;
use syncline_core::backend::{InvariantLifetime, Keep};
use syncline_core::{Object, Result};

use crate::driver::error::{unsupported, wrong_device};
use crate::memory::buffer::Buffer;
use crate::queue::command_pool::{CommandPool, InFlight};
use crate::timeline::binary::RecordedUse;
use crate::timeline::port::Semaphore;
use crate::timing::stamp::Stamp;

/// Records the work of one submission: command buffers, and semaphores for `vkQueueSubmit`.
///
/// Work of one queue executes in the order of its submissions. Each command buffer from
/// [`Recorder::command_buffer`] ends with a barrier. It makes the buffer's writes visible to
/// everything after it on the queue, and to the host. Command buffers that are passed to
/// [`Recorder::execute`] get no barrier.
///
/// Times are written after that barrier and need none themselves. A barrier after a time would wait
/// until the time is in memory.
pub struct Recorder<'a> {
    pub(crate) recording: &'a mut Recording,
    of_submission: InvariantLifetime<'a>,
}

/// The work of one submission that is recorded so far.
pub struct Recording {
    commands: Arc<CommandPool>,
    /// The semaphores of the submission.
    pub(crate) lists: SubmitLists,
    /// In order. Includes the application's own command buffers.
    pub(crate) buffers: Vec<vk::CommandBuffer>,
    /// What must outlive the submission. Its command buffers are those of the queue's own pool.
    pub(crate) used: InFlight,
    /// True if the last of `buffers` is of the queue's own pool and not ended yet.
    open: bool,
    /// True if that one contains other commands than the writing of times.
    has_work: bool,
    /// The stamps to write before the next command, or at the end.
    stamps: SmallVec<[Arc<Stamp>; 2]>,
    pub(crate) wait_stage: vk::PipelineStageFlags,
    pub(crate) binary_waits: Vec<(vk::Semaphore, vk::PipelineStageFlags)>,
    pub(crate) binary_signals: Vec<vk::Semaphore>,
    /// The uses of binary semaphores whose payload is tracked.
    pub(crate) binary_uses: Vec<RecordedUse>,
    pub(crate) fence: vk::Fence,
    pub(crate) keep: Keep,
    /// Exported buffers that this submission has acquired, and releases at its end.
    acquired: Vec<Buffer>,
}

/// The semaphores of a submission.
///
/// They go into one `VkSubmitInfo`, or into two if signals must wait for other queues after the
/// work.
#[derive(Default)]
pub(crate) struct SubmitLists {
    pub(crate) waits: Vec<vk::Semaphore>,
    pub(crate) wait_values: Vec<u64>,
    pub(crate) wait_stages: Vec<vk::PipelineStageFlags>,
    pub(crate) signals: Vec<vk::Semaphore>,
    pub(crate) signal_values: Vec<u64>,
    /// The part for the first `VkSubmitInfo`, if there are two.
    pub(crate) split: Option<Split>,
}

/// How many waits, command buffers and signals belong to the first `VkSubmitInfo`.
#[derive(Clone, Copy)]
pub(crate) struct Split {
    pub(crate) waits: usize,
    pub(crate) buffers: usize,
    pub(crate) signals: usize,
}

impl SubmitLists {
    pub(crate) fn wait(
        &mut self,
        semaphore: vk::Semaphore,
        value: u64,
        stages: vk::PipelineStageFlags,
    ) {
        self.waits.push(semaphore);
        self.wait_values.push(value);
        self.wait_stages.push(stages);
    }

    pub(crate) fn signal(&mut self, semaphore: vk::Semaphore, value: u64) {
        self.signals.push(semaphore);
        self.signal_values.push(value);
    }

    /// Puts all later waits and signals into a second `VkSubmitInfo`.
    ///
    /// It also gets the command buffers after the first `buffers`.
    pub(crate) fn split(&mut self, buffers: usize) {
        self.split = Some(Split {
            waits: self.waits.len(),
            buffers,
            signals: self.signals.len(),
        });
    }

    fn clear(&mut self) {
        self.waits.clear();
        self.wait_values.clear();
        self.wait_stages.clear();
        self.signals.clear();
        self.signal_values.clear();
        self.split = None;
    }
}

/// The direction of an ownership transfer of an exported buffer.
#[derive(Clone, Copy)]
enum Direction {
    Acquire,
    Release,
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
    /// It is of the queue's family and was begun with `ONE_TIME_SUBMIT`. The queue ends, submits
    /// and reuses it. The application must not do that, and must not keep it after the work. The
    /// application ends what it begins in it, such as a render pass, before it calls another method
    /// of this type or returns. The engine does not know what the commands use (pipelines,
    /// descriptor sets, buffers behind them), so the application [keeps](Recorder::keep) that.
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
        self.recording.end_open_buffer()?;
        self.recording.buffers.extend_from_slice(buffers);
        Ok(())
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
            self.recording.wait_stage = stages;
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
        self.recording.binary_waits.push((semaphore, stages));
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
        self.recording.binary_signals.push(semaphore);
    }

    /// Signals a `VkFence` with the submission. A later call replaces the fence.
    ///
    /// A skipped submission does not signal it: see [`Recorder::signal_binary`].
    ///
    /// # Safety
    /// It is an unsignalled fence of this device that no other submission uses, and it lives until
    /// the submission has finished.
    pub unsafe fn fence(&mut self, fence: vk::Fence) {
        self.recording.fence = fence;
    }

    /// Keeps `object` alive until the submission has finished.
    pub fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.recording.keep.push(object);
    }

    /// Sets every word of `buffer` to `word` with `vkCmdFillBuffer`. The submission keeps the
    /// buffer.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](syncline_core::Error::WrongDevice), or a driver error.
    pub fn fill_buffer(&mut self, buffer: &Buffer, word: u32) -> Result<()> {
        self.recording.require_device(buffer)?;
        self.acquire(buffer)?;
        let commands = self.command_buffer()?;
        // SAFETY: the command buffer is begun. All queue families here support transfers. The
        // buffer is of this device, has the transfer usages, and is kept until the submission has
        // finished.
        unsafe {
            self.device()
                .cmd_fill_buffer(commands, buffer.raw(), 0, vk::WHOLE_SIZE, word);
        }
        self.recording.barrier(commands);
        self.recording.keep.push(buffer.memory());
        Ok(())
    }

    /// Copies the start of `from` to the start of `to` with `vkCmdCopyBuffer`.
    ///
    /// Copies as many bytes as both have. The submission keeps both.
    ///
    /// Vulkan allows no copy between regions that overlap
    /// (VUID-vkCmdCopyBuffer-pRegions-00117). An imported buffer may use the memory of any other
    /// exported or imported buffer, so a copy between them is refused. Copy over a buffer that is
    /// not exported. If the memory is known to be different, [acquire](Recorder::acquire) both
    /// buffers, and record the copy into the [command buffer](Recorder::command_buffer).
    ///
    /// # Errors
    /// [`Error::WrongDevice`](syncline_core::Error::WrongDevice).
    /// [`Error::Unsupported`](syncline_core::Error::Unsupported) if both are the same buffer, or
    /// if both [are exported](Buffer::is_exported) and at least one was imported. A driver error.
    pub fn copy_buffer(&mut self, from: &Buffer, to: &Buffer) -> Result<()> {
        self.recording.require_device(from)?;
        self.recording.require_device(to)?;
        if from.raw() == to.raw() {
            let reason = "the regions would overlap";
            return Err(unsupported(from.object(), "be copied onto itself", reason));
        }
        if from.may_alias(to) {
            let asked = format!("be copied to {}", to.object());
            let reason = "one of them was imported, and both may use the same memory";
            return Err(unsupported(from.object(), asked, reason));
        }
        self.acquire(from)?;
        self.acquire(to)?;
        let commands = self.command_buffer()?;
        let region = vk::BufferCopy::default().size(from.size().min(to.size()));
        // SAFETY: the command buffer is begun. All queue families here support transfers. The two
        // buffers have different memory (see `Buffer::may_alias`), are of this device, have the
        // transfer usages, and are kept until the submission has finished. The region is not empty
        // and lies within both.
        unsafe {
            self.device()
                .cmd_copy_buffer(commands, from.raw(), to.raw(), &[region]);
        }
        self.recording.barrier(commands);
        self.recording.keep.push(from.memory());
        self.recording.keep.push(to.memory());
        Ok(())
    }

    /// Acquires an exported buffer from the other API, for everything recorded after this.
    ///
    /// The buffer is released at the end of the submission. Call this before shaders access an
    /// exported buffer. The methods of this type do it themselves. Does nothing for a buffer that
    /// is not exported. The submission keeps the buffer.
    ///
    /// See the ownership transfer to `VK_QUEUE_FAMILY_EXTERNAL` (Vulkan 1.3, 7.7.4).
    ///
    /// # Errors
    /// [`Error::WrongDevice`](syncline_core::Error::WrongDevice), or a driver error.
    pub fn acquire(&mut self, buffer: &Buffer) -> Result<()> {
        self.recording.require_device(buffer)?;
        if !buffer.is_exported()
            || self
                .recording
                .acquired
                .iter()
                .any(|held| held.raw() == buffer.raw())
        {
            return Ok(());
        }
        let commands = self.command_buffer()?;
        self.recording
            .transfer_ownership(commands, buffer, Direction::Acquire);
        self.recording.acquired.push(buffer.clone());
        self.recording.keep.push(buffer.memory());
        Ok(())
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
}

impl Recording {
    pub(crate) fn new(commands: &Arc<CommandPool>) -> Self {
        Self {
            commands: commands.clone(),
            lists: SubmitLists::default(),
            buffers: Vec::new(),
            used: InFlight::default(),
            open: false,
            has_work: false,
            stamps: SmallVec::new(),
            wait_stage: vk::PipelineStageFlags::ALL_COMMANDS,
            binary_waits: Vec::new(),
            binary_signals: Vec::new(),
            binary_uses: Vec::new(),
            fence: vk::Fence::null(),
            keep: Keep::default(),
            acquired: Vec::new(),
        }
    }

    /// Empties it for the next submission, and keeps the capacity of the lists.
    ///
    /// The caller has returned or submitted the command buffers, and has passed on what was kept.
    pub(crate) fn clear(&mut self) {
        self.lists.clear();
        self.buffers.clear();
        self.used.clear();
        self.open = false;
        self.has_work = false;
        self.stamps.clear();
        self.wait_stage = vk::PipelineStageFlags::ALL_COMMANDS;
        self.binary_waits.clear();
        self.binary_signals.clear();
        self.binary_uses.clear();
        self.fence = vk::Fence::null();
        if !self.keep.is_empty() {
            self.keep = Keep::default();
        }
        self.acquired.clear();
    }

    fn device(&self) -> &ash::Device {
        self.commands.device.raw()
    }

    /// Returns the open command buffer, for other commands than times.
    ///
    /// See [`Recorder::command_buffer`].
    fn command_buffer(&mut self) -> Result<vk::CommandBuffer> {
        let buffer = self.begun_buffer()?;
        self.write_times(buffer);
        self.has_work = true;
        Ok(buffer)
    }

    /// Writes a time before the next command, or at the end, after the barriers. Keeps the stamp.
    ///
    /// Nothing more may be recorded into a command buffer that was returned earlier.
    pub(crate) fn write_time(&mut self, stamp: &Arc<Stamp>) {
        self.stamps.push(stamp.clone());
        self.keep.push(stamp.clone());
    }

    fn write_times(&mut self, commands: vk::CommandBuffer) {
        for stamp in self.stamps.drain(..) {
            stamp.write(commands);
        }
    }

    /// Returns the open command buffer, or begins one.
    fn begun_buffer(&mut self) -> Result<vk::CommandBuffer> {
        match self.buffers.last() {
            Some(&buffer) if self.open => Ok(buffer),
            _ => {
                let buffer = self.commands.begin()?;
                self.used.buffers.push(buffer);
                self.buffers.push(buffer);
                self.open = true;
                Ok(buffer)
            }
        }
    }

    fn transfer_ownership(
        &self,
        commands: vk::CommandBuffer,
        buffer: &Buffer,
        direction: Direction,
    ) {
        let family = self.commands.family;
        let barrier = match direction {
            Direction::Acquire => buffer.acquire_barrier(family),
            Direction::Release => buffer.release_barrier(family),
        };
        let Some(barrier) = barrier else { return };
        let stages = vk::PipelineStageFlags::ALL_COMMANDS;
        // SAFETY: the command buffer is begun. No render pass is open: only the application begins
        // one, by `unsafe` calls, and it ends what it begins (see `Recorder::command_buffer`).
        // Every family supports the stages. The buffer is of this device and is kept until the
        // submission has finished.
        unsafe {
            self.device().cmd_pipeline_barrier(
                commands,
                stages,
                stages,
                vk::DependencyFlags::empty(),
                &[],
                &[barrier],
                &[],
            );
        }
    }

    fn require_device(&self, buffer: &Buffer) -> Result<()> {
        let device = &self.commands.device;
        if Arc::ptr_eq(buffer.device(), device) {
            return Ok(());
        }
        Err(wrong_device(
            buffer.object(),
            &buffer.device().object,
            self.object(),
        ))
    }

    pub(crate) fn object(&self) -> &Object {
        &self.commands.object
    }

    /// The queue's own timeline.
    pub(crate) fn own(&self) -> &Arc<Semaphore> {
        &self.commands.own
    }

    /// Adds a barrier. Writes before it are visible to everything later on the queue, and to the
    /// host.
    fn barrier(&self, commands: vk::CommandBuffer) {
        let memory = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
            .dst_access_mask(
                vk::AccessFlags::MEMORY_READ
                    | vk::AccessFlags::MEMORY_WRITE
                    | vk::AccessFlags::HOST_READ,
            );
        // SAFETY: the command buffer is begun, outside any render pass, as in `transfer_ownership`.
        // Every family supports the stages.
        unsafe {
            self.device().cmd_pipeline_barrier(
                commands,
                vk::PipelineStageFlags::ALL_COMMANDS,
                vk::PipelineStageFlags::ALL_COMMANDS | vk::PipelineStageFlags::HOST,
                vk::DependencyFlags::empty(),
                &[memory],
                &[],
                &[],
            );
        }
    }

    /// Ends the open command buffer, if there is one.
    ///
    /// Begins one first if times are still to be written.
    fn end_open_buffer(&mut self) -> Result<()> {
        if !self.open && self.stamps.is_empty() {
            return Ok(());
        }
        let buffer = self.begun_buffer()?;
        if self.has_work {
            self.barrier(buffer);
        }
        self.write_times(buffer);
        (self.open, self.has_work) = (false, false);
        // SAFETY: `begun_buffer` has begun it for this submission, and only this ends it. One
        // thread at a time uses its pool: the engine records one submission of a queue at a time,
        // and a recorder does not outlive that.
        unsafe { self.device().end_command_buffer(buffer) }.map_err(|code| {
            self.commands
                .device
                .failed(self.object(), "vkEndCommandBuffer", code)
        })
    }

    /// Ends the recording, with a time at the end if there is a stamp.
    #[inline]
    pub(crate) fn finish(&mut self, stamp: Option<&Arc<Stamp>>) -> Result<()> {
        let has_binaries = !self.binary_waits.is_empty() || !self.binary_signals.is_empty();
        if self.buffers.is_empty() && self.stamps.is_empty() && stamp.is_none() {
            if !has_binaries {
                return Ok(());
            }
            // A submission with binary semaphores always has commands, because drivers have hung
            // otherwise.
            self.command_buffer()?;
        }
        self.finish_commands(stamp)
    }

    /// True if it contains no commands and no times.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.stamps.is_empty()
    }

    fn finish_commands(&mut self, stamp: Option<&Arc<Stamp>>) -> Result<()> {
        if !self.acquired.is_empty() {
            let commands = self.command_buffer()?;
            for buffer in &self.acquired {
                self.transfer_ownership(commands, buffer, Direction::Release);
            }
            self.acquired.clear();
        }
        // Added now, because the commands above must come before the time.
        if let Some(stamp) = stamp {
            self.write_time(stamp);
        }
        self.end_open_buffer()
    }

    /// Returns the command buffers to the pool, without submitting them.
    pub(crate) fn discard(&mut self) {
        self.commands.give_back(&self.used.buffers);
        self.clear();
    }
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Vulkan Recorder ({} command buffers)",
            self.recording.buffers.len()
        )
    }
}
