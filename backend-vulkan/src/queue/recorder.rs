//! What work records into.
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
use crate::queue::commands::{Commands, InFlight};
use crate::timeline::binary::RecordedUse;
use crate::timeline::port::Semaphore;
use crate::timing::stamp::Stamp;

/// Records the work of one submission: command buffers, and what goes to `vkQueueSubmit` with them.
///
/// Work of one queue runs in the order of its submissions: each command buffer from
/// [`Recorder::command_buffer`] ends in a barrier that makes its writes visible to everything after
/// it on the queue, and to the host. Those given to [`Recorder::execute`] are taken as they are. A time is written behind that
/// barrier, and needs none itself: a barrier would wait until the time has arrived in memory.
pub struct Recorder<'a> {
    pub(crate) recorded: &'a mut Recorded,
    of_submission: InvariantLifetime<'a>,
}

/// Work of one submission, as far as it is recorded.
pub struct Recorded {
    commands: Arc<Commands>,
    /// What is submitted with the command buffers.
    pub(crate) parts: Parts,
    /// In order; ours and the application's.
    pub(crate) buffers: Vec<vk::CommandBuffer>,
    /// What has to outlive the submission; the command buffers in it are those that come from our pool.
    pub(crate) used: InFlight,
    /// The last of `buffers` is ours and still begun.
    open: bool,
    /// Something else than times was recorded into that one.
    worked: bool,
    /// Times to be written before whatever is recorded next, or behind everything.
    stamps: SmallVec<[Arc<Stamp>; 2]>,
    pub(crate) wait_stage: vk::PipelineStageFlags,
    pub(crate) binary_waits: Vec<(vk::Semaphore, vk::PipelineStageFlags)>,
    pub(crate) binary_signals: Vec<vk::Semaphore>,
    /// The binary semaphores among these whose payloads are looked after.
    pub(crate) binaries: Vec<RecordedUse>,
    pub(crate) fence: vk::Fence,
    pub(crate) keep: Keep,
    /// Exported buffers that this submission has taken from the other API, to be given back at its end.
    acquired: Vec<Buffer>,
}

/// The semaphores of a submission: of one `VkSubmitInfo`, or of two where signals have to wait behind the work.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) waits: Vec<vk::Semaphore>,
    pub(crate) wait_values: Vec<u64>,
    pub(crate) wait_stages: Vec<vk::PipelineStageFlags>,
    pub(crate) signals: Vec<vk::Semaphore>,
    pub(crate) signal_values: Vec<u64>,
    /// What comes with the work, where the rest follows in a `VkSubmitInfo` of its own.
    pub(crate) split: Option<Split>,
}

/// How many of the waits, the command buffers and the signals of a submission come first.
#[derive(Clone, Copy)]
pub(crate) struct Split {
    pub(crate) waits: usize,
    pub(crate) buffers: usize,
    pub(crate) signals: usize,
}

impl Parts {
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

    /// What comes from here on, and behind so many command buffers, follows in a `VkSubmitInfo` of its own.
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

/// Which way the ownership of an exported buffer goes.
#[derive(Clone, Copy)]
enum Direction {
    Acquire,
    Release,
}

impl<'a> Recorder<'a> {
    pub(crate) const fn new(recorded: &'a mut Recorded) -> Self {
        Self {
            recorded,
            of_submission: PhantomData,
        }
    }

    /// A recorder of the same submission by value, for as long as this one is borrowed.
    pub fn reborrow(&mut self) -> Recorder<'_> {
        Recorder::new(self.recorded)
    }

    /// The device's functions, to record with.
    #[must_use]
    pub fn device(&self) -> &ash::Device {
        self.recorded.device()
    }

    /// The raw handle of the queue family's command buffer that this submission records into: begun
    /// with `ONE_TIME_SUBMIT`, and ended, submitted and used again by the queue. Do none of that to
    /// it, and do not keep it beyond the work. End what you begin in it, such as a render pass,
    /// before you call another method of this type or return. What its commands use (pipelines,
    /// descriptor sets, buffers behind them) nobody but the caller knows: [keep](Recorder::keep) it.
    ///
    /// # Errors
    /// A driver error.
    pub fn command_buffer(&mut self) -> Result<vk::CommandBuffer> {
        self.recorded.command_buffer()
    }

    /// Runs the application's own primary command buffers, after what is recorded so far.
    ///
    /// # Safety
    /// They are executable primary command buffers of this device and queue family, and they and what
    /// they use live until the submission has finished (see [`Recorder::keep`]).
    ///
    /// # Errors
    /// A driver error.
    pub unsafe fn execute(&mut self, buffers: &[vk::CommandBuffer]) -> Result<()> {
        self.recorded.close()?;
        self.recorded.buffers.extend_from_slice(buffers);
        Ok(())
    }

    /// Lets pipeline stages other than these start before the submission's waits are reached. Without
    /// it everything waits (`ALL_COMMANDS`). No stages at all change nothing.
    ///
    /// # Safety
    /// The queue family supports the stages, and what runs in other stages needs none of the waits.
    pub unsafe fn wait_stage(&mut self, stages: vk::PipelineStageFlags) {
        if !stages.is_empty() {
            self.recorded.wait_stage = stages;
        }
    }

    /// Also waits for a binary semaphore, such as the one that `vkAcquireNextImageKHR` signals.
    ///
    /// # Safety
    /// It is a binary semaphore of this device whose signal is pending, no other wait consumes that
    /// signal, it lives until the submission has finished, and the queue family supports the stages.
    pub unsafe fn wait_binary(&mut self, semaphore: vk::Semaphore, stages: vk::PipelineStageFlags) {
        self.recorded.binary_waits.push((semaphore, stages));
    }

    /// Also signals a binary semaphore, such as the one that `vkQueuePresentKHR` waits for, behind the work. It does not
    /// wait for what orders the submission's timeline signals behind those of other queues.
    ///
    /// A submission that is [skipped](syncline_core::Submitted::end) does not signal it, although the queue's position
    /// goes on. So ask [`wait_submitted`](syncline_core::Submitted::wait_submitted) before anything waits for the
    /// semaphore, such as `vkQueuePresentKHR`: it would wait for ever.
    ///
    /// # Safety
    /// It is a binary semaphore of this device, unsignalled with no signal pending once the submission
    /// runs, and lives until the submission has finished.
    pub unsafe fn signal_binary(&mut self, semaphore: vk::Semaphore) {
        self.recorded.binary_signals.push(semaphore);
    }

    /// Also signals a `VkFence`; the last one given counts. A submission that is skipped leaves it unsignalled: see
    /// [`Recorder::signal_binary`].
    ///
    /// # Safety
    /// It is an unsignalled fence of this device which no other submission uses, and it lives until
    /// the submission has finished.
    pub unsafe fn fence(&mut self, fence: vk::Fence) {
        self.recorded.fence = fence;
    }

    /// Keeps `object` alive until the submission has finished.
    pub fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.recorded.keep.push(object);
    }

    /// `vkCmdFillBuffer`: every word of `buffer` becomes `word`. Keeps the buffer.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](syncline_core::Error::WrongDevice); a driver error.
    pub fn fill_buffer(&mut self, buffer: &Buffer, word: u32) -> Result<()> {
        self.recorded.require_own(buffer)?;
        self.acquire(buffer)?;
        let commands = self.command_buffer()?;
        // SAFETY: the command buffer is begun. Every family that is used can transfer. The
        // buffer is of this device, has transfers among its uses, and is kept until the submission
        // has finished.
        unsafe {
            self.device()
                .cmd_fill_buffer(commands, buffer.raw(), 0, vk::WHOLE_SIZE, word);
        }
        self.recorded.barrier(commands);
        self.recorded.keep.push(buffer.memory());
        Ok(())
    }

    /// `vkCmdCopyBuffer`: the beginning of `to` becomes that of `from`, for as many bytes as both have. Keeps both.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](syncline_core::Error::WrongDevice); [`Error::Unsupported`](syncline_core::Error::Unsupported) for a buffer onto itself; a driver error.
    pub fn copy_buffer(&mut self, from: &Buffer, to: &Buffer) -> Result<()> {
        self.recorded.require_own(from)?;
        self.recorded.require_own(to)?;
        if from.raw() == to.raw() {
            let reason = "the regions would overlap";
            return Err(unsupported(from.object(), "be copied onto itself", reason));
        }
        self.acquire(from)?;
        self.acquire(to)?;
        let commands = self.command_buffer()?;
        let region = vk::BufferCopy::default().size(from.size().min(to.size()));
        // SAFETY: the command buffer is begun. Every family that is used can transfer. The
        // buffers are two, of this device, with transfers among their uses, and are kept until the
        // submission has finished. The region is not empty and lies within both.
        unsafe {
            self.device()
                .cmd_copy_buffer(commands, from.raw(), to.raw(), &[region]);
        }
        self.recorded.barrier(commands);
        self.recorded.keep.push(from.memory());
        self.recorded.keep.push(to.memory());
        Ok(())
    }

    /// Takes a buffer that another API shares from it, for everything recorded after this; it is given
    /// back at the end of the submission. Shaders need it before they touch an exported buffer; the
    /// methods of this type do it by themselves. Does nothing for a buffer that is not exported. Keeps the buffer.
    ///
    /// See the ownership transfer to `VK_QUEUE_FAMILY_EXTERNAL` (Vulkan 1.3, 7.7.4).
    ///
    /// # Errors
    /// [`Error::WrongDevice`](syncline_core::Error::WrongDevice); a driver error.
    pub fn acquire(&mut self, buffer: &Buffer) -> Result<()> {
        self.recorded.require_own(buffer)?;
        if !buffer.is_exported()
            || self
                .recorded
                .acquired
                .iter()
                .any(|held| held.raw() == buffer.raw())
        {
            return Ok(());
        }
        let commands = self.command_buffer()?;
        self.recorded.transfer(commands, buffer, Direction::Acquire);
        self.recorded.acquired.push(buffer.clone());
        self.recorded.keep.push(buffer.memory());
        Ok(())
    }

    /// Orders everything recorded before it before everything recorded after it, and makes its writes
    /// visible there.
    ///
    /// # Errors
    /// A driver error.
    pub fn order(&mut self) -> Result<()> {
        let commands = self.command_buffer()?;
        self.recorded.barrier(commands);
        Ok(())
    }
}

impl Recorded {
    pub(crate) fn new(commands: &Arc<Commands>) -> Self {
        Self {
            commands: commands.clone(),
            parts: Parts::default(),
            buffers: Vec::new(),
            used: InFlight::default(),
            open: false,
            worked: false,
            stamps: SmallVec::new(),
            wait_stage: vk::PipelineStageFlags::ALL_COMMANDS,
            binary_waits: Vec::new(),
            binary_signals: Vec::new(),
            binaries: Vec::new(),
            fence: vk::Fence::null(),
            keep: Keep::default(),
            acquired: Vec::new(),
        }
    }

    /// Ready for the next submission, in the same room. What our command buffers and what was kept
    /// are to become of is the caller's to see to.
    pub(crate) fn clear(&mut self) {
        self.parts.clear();
        self.buffers.clear();
        self.used.clear();
        self.open = false;
        self.worked = false;
        self.stamps.clear();
        self.wait_stage = vk::PipelineStageFlags::ALL_COMMANDS;
        self.binary_waits.clear();
        self.binary_signals.clear();
        self.binaries.clear();
        self.fence = vk::Fence::null();
        if !self.keep.is_empty() {
            self.keep = Keep::default();
        }
        self.acquired.clear();
    }

    fn device(&self) -> &ash::Device {
        self.commands.device.raw()
    }

    /// The command buffer that is open, for something else than times. See
    /// [`Recorder::command_buffer`].
    fn command_buffer(&mut self) -> Result<vk::CommandBuffer> {
        let buffer = self.begun()?;
        self.write_times(buffer);
        self.worked = true;
        Ok(buffer)
    }

    /// Writes a time before whatever is recorded next, or behind everything, its barriers included.
    /// Nothing more may be recorded into a command buffer that was given out before. Keeps the
    /// stamp.
    pub(crate) fn write_time(&mut self, stamp: &Arc<Stamp>) {
        self.stamps.push(stamp.clone());
        self.keep.push(stamp.clone());
    }

    fn write_times(&mut self, commands: vk::CommandBuffer) {
        for stamp in self.stamps.drain(..) {
            stamp.write(commands);
        }
    }

    /// The command buffer that is open; a new one if none is.
    fn begun(&mut self) -> Result<vk::CommandBuffer> {
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

    fn transfer(&self, commands: vk::CommandBuffer, buffer: &Buffer, direction: Direction) {
        let family = self.commands.family;
        let barrier = match direction {
            Direction::Acquire => buffer.acquire_barrier(family),
            Direction::Release => buffer.release_barrier(family),
        };
        let Some(barrier) = barrier else { return };
        let stages = vk::PipelineStageFlags::ALL_COMMANDS;
        // SAFETY: the command buffer is begun. No render pass is: only the application begins one,
        // by `unsafe` calls, and it ends what it begins (see `command_buffer`). Every family
        // supports the stages. The buffer is of this device and is kept until the submission has
        // finished.
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

    fn require_own(&self, buffer: &Buffer) -> Result<()> {
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

    /// Orders everything before it before everything after it on the queue, and shows it to the host.
    fn barrier(&self, commands: vk::CommandBuffer) {
        let memory = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
            .dst_access_mask(
                vk::AccessFlags::MEMORY_READ
                    | vk::AccessFlags::MEMORY_WRITE
                    | vk::AccessFlags::HOST_READ,
            );
        // SAFETY: the command buffer is begun, outside any render pass, as in `transfer`. Every
        // family supports the stages.
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

    /// Ends the command buffer that is open, if one is. One is needed where times are to be written.
    fn close(&mut self) -> Result<()> {
        if !self.open && self.stamps.is_empty() {
            return Ok(());
        }
        let buffer = self.begun()?;
        if self.worked {
            self.barrier(buffer);
        }
        self.write_times(buffer);
        (self.open, self.worked) = (false, false);
        // SAFETY: `begun` has begun it, in this record, and only this ends it. Its pool is used by
        // one thread at a time: the engine makes one record of a queue at a time, and a recorder
        // does not outlive it.
        unsafe { self.device().end_command_buffer(buffer) }.map_err(|code| {
            self.commands
                .device
                .failed(self.object(), "vkEndCommandBuffer", code)
        })
    }

    /// Ends the recording, with a time behind everything where there is a stamp for one.
    #[inline]
    pub(crate) fn finish(&mut self, stamp: Option<&Arc<Stamp>>) -> Result<()> {
        let binaries = !self.binary_waits.is_empty() || !self.binary_signals.is_empty();
        if self.buffers.is_empty() && self.stamps.is_empty() && stamp.is_none() {
            if !binaries {
                return Ok(());
            }
            // Binary semaphores never travel without commands: drivers have hung on that.
            self.command_buffer()?;
        }
        self.finish_commands(stamp)
    }

    /// True if there are no commands in it, whatever else.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.stamps.is_empty()
    }

    fn finish_commands(&mut self, stamp: Option<&Arc<Stamp>>) -> Result<()> {
        if !self.acquired.is_empty() {
            let commands = self.command_buffer()?;
            for buffer in &self.acquired {
                self.transfer(commands, buffer, Direction::Release);
            }
            self.acquired.clear();
        }
        // Only now, as what is recorded next would come behind it.
        if let Some(stamp) = stamp {
            self.write_time(stamp);
        }
        self.close()
    }

    /// Gives back what was recorded, which will not be submitted.
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
            self.recorded.buffers.len()
        )
    }
}
