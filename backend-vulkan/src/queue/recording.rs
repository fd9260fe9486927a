//! The recording of a submission: its command buffers, its semaphores, and what it keeps.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use ash::vk;
use smallvec::SmallVec;
use syncline_core::backend::{Batch, Keep, NativePoint, Unused};
use syncline_core::{Error, Result, error::Object};

use crate::device::driver_queue::MAX_SUBMISSION;
use crate::device::inner::Inner;
use crate::memory::buffer::Buffer;
use crate::memory::ownership::{ImageBarrier, OwnershipBarrier};
use crate::queue::command_pool::CommandPool;
use crate::queue::context::QueueContext;
use crate::queue::images::AcquiredImages;
use crate::queue::raw_submission::{KeptByCall, RawSubmission};
use crate::queue::submission::Feed;
use crate::queue::submit_lists::SubmitLists;
use crate::timeline::raw_binary::{RawBinary, RecordedUse, Role};
use crate::timeline::semaphore::Semaphore;
use crate::timing::stamp::Stamp;

/// The work of one submission that is recorded so far.
pub struct Recording {
    commands: CommandPool,
    /// The queue's own timeline.
    own: Arc<Semaphore>,
    /// The semaphores of the submission.
    lists: SubmitLists,
    /// In order. Includes the application's own command buffers.
    buffers: Vec<vk::CommandBuffer>,
    /// True from the beginning of a submission until it is submitted or discarded.
    has_begun: bool,
    /// True if the last of `buffers` is of the queue's own pool and not ended yet.
    open: bool,
    /// True if the open command buffer contains other commands than writes of times.
    has_work: bool,
    /// The stamps to write before the next command, or at the end.
    stamps: SmallVec<[Arc<Stamp>; 2]>,
    wait_stage: vk::PipelineStageFlags,
    binary_waits: Vec<(vk::Semaphore, vk::PipelineStageFlags)>,
    binary_signals: Vec<vk::Semaphore>,
    /// The uses of binary semaphores whose payload is tracked.
    binary_uses: Vec<RecordedUse>,
    fence: vk::Fence,
    /// The application's own driver call, in place of the work.
    raw_work: Option<RawWork>,
    /// True once the driver has some of the command buffers. The submission may still fail.
    is_partly_submitted: Cell<bool>,
    keep: Keep,
    /// Shared buffers that this submission has acquired, and releases at its end.
    acquired: Vec<Buffer>,
    /// True if two `VkBuffer`s that it has acquired have bytes in common.
    has_aliases: bool,
    images: AcquiredImages,
}

/// The closure of `Queue::submit_raw`, which calls `vkQueueSubmit` itself.
pub(crate) type SubmitRaw =
    Box<dyn FnOnce(RawSubmission<'_>) -> std::result::Result<(), vk::Result> + Send>;

/// The application's own driver call, and its place among the command buffers.
struct RawWork {
    submit: SubmitRaw,
    /// The number of command buffers before it. They write times.
    buffers: usize,
    /// The objects that the call keeps. The submission keeps this list.
    kept: Arc<KeptByCall>,
}

impl Recording {
    /// The recording of a queue, made for its first submission, which ends at `end`.
    ///
    /// # Errors
    /// Same errors as [`QueueContext::semaphore`].
    pub(crate) fn new(queue: &Arc<QueueContext>, end: NativePoint<'_>) -> Result<Self> {
        Ok(Self {
            commands: CommandPool::new(queue),
            own: queue.set_own(end)?,
            lists: SubmitLists::default(),
            buffers: Vec::new(),
            has_begun: false,
            open: false,
            has_work: false,
            stamps: SmallVec::new(),
            wait_stage: vk::PipelineStageFlags::ALL_COMMANDS,
            binary_waits: Vec::new(),
            binary_signals: Vec::new(),
            binary_uses: Vec::new(),
            fence: vk::Fence::null(),
            raw_work: None,
            is_partly_submitted: Cell::new(false),
            keep: Keep::default(),
            acquired: Vec::new(),
            has_aliases: false,
            images: AcquiredImages::default(),
        })
    }

    #[inline]
    pub(crate) fn queue(&self) -> &QueueContext {
        self.commands.queue()
    }

    /// Begins a submission.
    #[inline]
    pub(crate) fn begin_submission(&mut self, batch: &Batch<'_, Feed>) {
        if self.has_begun {
            // A panic has ended the submission before.
            self.discard();
        }
        self.has_begun = true;
        self.commands
            .begin_submission(batch.end.value(), batch.finished());
    }

    /// Moves semaphores that no submission after `reached` uses to `unused`.
    pub(crate) fn take_unused(&mut self, reached: u64, unused: &mut Unused) {
        self.commands.take_unused(reached, unused);
    }

    #[inline]
    pub(crate) fn device(&self) -> &ash::Device {
        self.queue().device().raw()
    }

    /// Returns the open command buffer, for other commands than times.
    ///
    /// See `Recorder::command_buffer`.
    pub(crate) fn command_buffer(&mut self) -> Result<vk::CommandBuffer> {
        let buffer = self.begun_buffer()?;
        self.write_times(buffer);
        self.has_work = true;
        Ok(buffer)
    }

    /// Executes the application's own command buffers after what is recorded so far.
    ///
    /// # Safety
    /// Same as `Recorder::execute`.
    pub(crate) unsafe fn execute(&mut self, buffers: &[vk::CommandBuffer]) -> Result<()> {
        self.end_open_buffer()?;
        self.buffers.extend_from_slice(buffers);
        Ok(())
    }

    /// Sets the stages that wait for the submission's waits.
    ///
    /// # Safety
    /// Same as `Recorder::wait_stage`.
    pub(crate) const unsafe fn set_wait_stage(&mut self, stages: vk::PipelineStageFlags) {
        self.wait_stage = stages;
    }

    /// Adds a wait for a binary semaphore.
    ///
    /// # Safety
    /// Same as `Recorder::wait_binary`.
    pub(crate) unsafe fn wait_binary(
        &mut self,
        semaphore: vk::Semaphore,
        stages: vk::PipelineStageFlags,
    ) {
        self.binary_waits.push((semaphore, stages));
    }

    /// Adds the signal of a binary semaphore.
    ///
    /// # Safety
    /// Same as `Recorder::signal_binary`.
    pub(crate) unsafe fn signal_binary(&mut self, semaphore: vk::Semaphore) {
        self.binary_signals.push(semaphore);
    }

    /// Notes that the submission uses a binary semaphore whose payload is tracked.
    ///
    /// See [`RecordedUse::new`].
    pub(crate) fn note_use(
        &mut self,
        semaphore: &Arc<RawBinary>,
        role: Role,
        fence: Option<(Arc<Semaphore>, u64)>,
    ) {
        let queue = self.queue().object();
        let recorded_use = RecordedUse::new(semaphore, role, queue, &self.own, fence);
        self.binary_uses.push(recorded_use);
    }

    /// Sets the `VkFence` that the submission signals.
    ///
    /// # Safety
    /// Same as `Recorder::fence`.
    pub(crate) const unsafe fn set_fence(&mut self, fence: vk::Fence) {
        self.fence = fence;
    }

    /// Makes `submit` the work of the submission, after what is recorded so far.
    pub(crate) fn set_raw_work(&mut self, submit: SubmitRaw) -> Result<()> {
        self.end_open_buffer()?;
        let kept = Arc::<KeptByCall>::default();
        self.keep.push(kept.clone());
        self.raw_work = Some(RawWork {
            submit,
            buffers: self.buffers.len(),
            kept,
        });
        Ok(())
    }

    /// Keeps `object` alive until the submission has finished.
    pub(crate) fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.keep.push(object);
    }

    /// Acquires a shared buffer. See `Recorder::acquire`.
    pub(crate) fn acquire(&mut self, buffer: &Buffer) -> Result<()> {
        self.require_device(buffer.device(), buffer.object())?;
        if !buffer.is_shared() {
            return Ok(());
        }
        // What no earlier call has acquired, also by another `VkBuffer`.
        let mut parts: SmallVec<[Buffer; 2]> = SmallVec::from_iter([buffer.clone()]);
        let mut aliases = false;
        for held in &self.acquired {
            aliases |= held.raw() != buffer.raw() && held.overlaps(buffer);
            parts = parts.iter().flat_map(|part| part.without(held)).collect();
        }
        if parts.is_empty() && !aliases {
            return Ok(());
        }
        let (commands, family) = (self.command_buffer()?, self.queue().family());
        let barriers = parts.iter().filter_map(|part| part.acquire_barrier(family));
        self.transfer_ownership(commands, barriers, []);
        if aliases {
            // A transfer concerns accesses through its own `VkBuffer`.
            self.barrier(commands);
            self.has_aliases = true;
        }
        self.acquired.extend(parts);
        self.keep.push(buffer.kept());
        Ok(())
    }

    pub(crate) const fn images(&mut self) -> &mut AcquiredImages {
        &mut self.images
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
                self.buffers.push(buffer);
                self.open = true;
                Ok(buffer)
            }
        }
    }

    /// Acquires or releases buffers and images, or changes the layouts of images.
    ///
    /// Calls the driver once for every four of each, so that no list is allocated.
    pub(crate) fn transfer_ownership(
        &self,
        commands: vk::CommandBuffer,
        buffers: impl IntoIterator<Item = OwnershipBarrier>,
        images: impl IntoIterator<Item = ImageBarrier>,
    ) {
        const AT_ONCE: usize = 4;
        let mut buffers = buffers.into_iter().map(Into::into);
        let mut images = images.into_iter().map(Into::into);
        let stages = vk::PipelineStageFlags::ALL_COMMANDS;
        loop {
            let buffers: SmallVec<[_; AT_ONCE]> = buffers.by_ref().take(AT_ONCE).collect();
            let images: SmallVec<[_; AT_ONCE]> = images.by_ref().take(AT_ONCE).collect();
            if buffers.is_empty() && images.is_empty() {
                return;
            }
            // SAFETY: the command buffer is begun. No render pass is open, because only the
            // application begins one, by `unsafe` calls, and ends it (see
            // `Recorder::command_buffer`). Every family supports the stages. The buffers and images
            // are of this device and are kept until the submission has finished. The images have
            // the usages that their layouts need.
            unsafe {
                self.device().cmd_pipeline_barrier(
                    commands,
                    stages,
                    stages,
                    vk::DependencyFlags::empty(),
                    &[],
                    &buffers,
                    &images,
                );
            }
        }
    }

    /// Refuses `object`, a buffer or image of `device`, on a queue of another device.
    pub(crate) fn require_device(&self, device: &Arc<Inner>, object: &Object) -> Result<()> {
        if Arc::ptr_eq(device, self.queue().device()) {
            return Ok(());
        }
        Err(Error::wrong_device(object, device.object(), self.object()))
    }

    /// The name of the queue.
    pub(crate) fn object(&self) -> &Object {
        self.queue().object()
    }

    /// Adds a barrier. Writes before it are visible to everything later on the queue, and to the
    /// host.
    pub(crate) fn barrier(&self, commands: vk::CommandBuffer) {
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
        // SAFETY: `begun_buffer` has begun the buffer for this submission, and only this call ends
        // it. One thread at a time uses the pool, because the engine records one submission of a
        // queue at a time. A recorder lives only while its submission is recorded.
        unsafe { self.device().end_command_buffer(buffer) }
            .map_err(|code| self.queue().failed("vkEndCommandBuffer", code))
    }

    /// Ends the recording, with a time at the end if there is a stamp.
    #[inline]
    fn finish(&mut self, stamp: Option<&Arc<Stamp>>) -> Result<()> {
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

    /// Ends the recording and adds the semaphores of `batch`.
    #[inline]
    pub(crate) fn prepare(&mut self, batch: &Batch<'_, Feed>) -> Result<()> {
        // If the signals must wait for values of other queues, the time is written after that wait
        // too. The wait comes after the work. Raw work gets one list of waits, so the work waits
        // for these values as well.
        let stamp = batch.stamp::<Stamp>();
        let waits_at_once = batch.order.is_empty() || self.raw_work.is_some();
        let (behind_work, behind_order) = if waits_at_once {
            (stamp, None)
        } else {
            (None, stamp)
        };
        let had_commands = !self.is_empty();
        self.finish(behind_work.as_ref())?;
        let finished = batch.finished();
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        // Without commands, only the signals and their time wait. They wait in all stages.
        let stage = if self.buffers.is_empty() || !had_commands {
            all
        } else {
            self.wait_stage
        };
        for wait in batch.waits {
            let semaphore = self.commands.use_semaphore(*wait, finished)?;
            self.lists.wait(semaphore, wait.value(), stage);
        }
        // Vulkan ignores the values of binary semaphores.
        for &(semaphore, stages) in &self.binary_waits {
            self.lists.wait(semaphore, 0, stages);
        }

        // Binary signals wait only for the work. A submission with binary semaphores always has
        // commands.
        for &semaphore in &self.binary_signals {
            self.lists.signal(semaphore, 0);
        }

        // Without commands, all waits can be in one `VkSubmitInfo`.
        if !waits_at_once && !self.buffers.is_empty() {
            self.lists.split(self.buffers.len());
        }
        for order in batch.order {
            let semaphore = self.commands.use_semaphore(*order, finished)?;
            self.lists.wait(semaphore, order.value(), all);
        }
        if behind_order.is_some() {
            self.finish(behind_order.as_ref())?;
        }
        for signal in batch.signals {
            let semaphore = self.commands.use_semaphore(*signal, finished)?;
            self.lists.signal(semaphore, signal.value());
        }
        // The queue's own timeline needs no `Arc` here, because this struct has one.
        self.lists.signal(self.own.raw(), batch.end.value());
        self.require_units()
    }

    /// The units of the driver queue's in-flight budget that the submission takes.
    #[inline]
    pub(crate) fn units(&self) -> u64 {
        self.lists.units(self.buffers.len())
    }

    /// Refuses a submission that is so large that the driver may block in `vkQueueSubmit`.
    #[inline]
    fn require_units(&self) -> Result<()> {
        let units = self.units();
        if units <= MAX_SUBMISSION {
            return Ok(());
        }
        let asked = format!("take a submission of {units} units");
        let reason = format!(
            "{MAX_SUBMISSION} is the most: four, and one for each wait, command buffer and signal"
        );
        Err(Error::unsupported(self.object(), asked, reason))
    }

    /// Moves everything that must outlive the submission to `keep`.
    #[inline]
    pub(crate) fn move_kept_to(&mut self, keep: &mut Keep) {
        if !self.keep.is_empty() {
            keep.append(&mut self.keep);
        }
    }

    /// Calls `vkQueueSubmit` once, or lets the application do so.
    ///
    /// # Safety
    /// The gate of `queue` is locked. `self` was completed by [`Recording::prepare`]: its command
    /// buffers are ended and in no other submission. They and the semaphores live until the
    /// submission has finished, and are of this device. The signal of each wait is pending. Each
    /// signalled value is above the previous one.
    #[inline]
    pub(crate) unsafe fn submit(&mut self, queue: vk::Queue) -> Result<()> {
        if let Some(work) = self.raw_work.take() {
            let kept = work.kept.clone();
            // SAFETY: the caller guarantees it.
            let submitted = unsafe { self.submit_raw(queue, work) };
            return submitted.map_err(|code| kept.explain(self.refused(code)));
        }
        // SAFETY: the caller guarantees it.
        unsafe {
            self.lists
                .submit(self.device(), queue, &self.buffers, self.fence)
        }
        .map_err(|code| self.refused(code))
    }

    #[cold]
    fn refused(&self, code: vk::Result) -> Error {
        self.queue().failed("vkQueueSubmit", code)
    }

    /// Lets the application submit. Command buffers that write times are submitted before and
    /// after.
    ///
    /// # Safety
    /// Same as [`Recording::submit`].
    #[cold]
    unsafe fn submit_raw(&self, queue: vk::Queue, work: RawWork) -> Result<(), vk::Result> {
        let (before, after) = self.buffers.split_at(work.buffers);
        let (device, no_fence) = (self.device(), vk::Fence::null());
        let mut raw = self.lists.raw(queue, Some(&work.kept));
        let mut last = raw;
        if !before.is_empty() {
            (raw.signals, raw.signal_values) = (&[], &[]);
            // SAFETY: the caller guarantees it.
            unsafe { raw.submit(device, before, no_fence) }?;
            self.is_partly_submitted.set(true);
            (raw.waits, raw.wait_values, raw.wait_stages) = (&[], &[], &[]);
            (raw.signals, raw.signal_values) = (last.signals, last.signal_values);
        }
        if after.is_empty() {
            return (work.submit)(raw);
        }
        (raw.signals, raw.signal_values) = (&[], &[]);
        (work.submit)(raw)?;
        (last.waits, last.wait_values, last.wait_stages) = (&[], &[], &[]);
        // SAFETY: the caller guarantees it.
        unsafe { last.submit(device, after, no_fence) }
    }

    /// Notes that the driver has taken the submission.
    #[inline]
    pub(crate) fn submitted(&mut self) {
        for recorded_use in self.binary_uses.drain(..) {
            recorded_use.submitted(self.commands.number());
        }
        self.images.submitted();
        self.commands.submitted();
        self.clear();
    }

    /// True if it contains no commands and no times.
    fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.stamps.is_empty()
    }

    fn finish_commands(&mut self, stamp: Option<&Arc<Stamp>>) -> Result<()> {
        if !self.images.is_empty() || !self.acquired.is_empty() {
            let (commands, family) = (self.command_buffer()?, self.queue().family());
            if self.has_aliases {
                self.barrier(commands);
            }
            let buffers = self.acquired.iter();
            let buffers = buffers.filter_map(|buffer| buffer.release_barrier(family));
            self.transfer_ownership(commands, buffers, self.images.barriers_to_release(family));
            self.images.note_released();
            self.acquired.clear();
            self.has_aliases = false;
        }
        // Added now, because the commands above must come before the time.
        if let Some(stamp) = stamp {
            self.write_time(stamp);
        }
        self.end_open_buffer()
    }

    /// Discards the submission, and returns its command buffers to the pool.
    ///
    /// If the driver has some of the buffers, all stay in flight. Behind them the engine makes a
    /// submission without work, which signals the submission's number.
    pub(crate) fn discard(&mut self) {
        if self.is_partly_submitted.get() {
            self.commands.submitted();
        } else {
            self.commands.discard();
        }
        (self.open, self.has_work) = (false, false);
        self.stamps.clear();
        self.binary_uses.clear();
        self.raw_work = None;
        self.keep = Keep::default();
        self.acquired.clear();
        self.has_aliases = false;
        self.images.discard();
        self.clear();
    }

    /// Resets what recording, flushing and noting a submission leave set. Keeps the capacity.
    #[inline]
    fn clear(&mut self) {
        self.is_partly_submitted.set(false);
        self.lists.clear();
        self.buffers.clear();
        self.has_begun = false;
        self.wait_stage = vk::PipelineStageFlags::ALL_COMMANDS;
        self.binary_waits.clear();
        self.binary_signals.clear();
        self.fence = vk::Fence::null();
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} command buffers", self.buffers.len())
    }
}
