//! The semaphores of a submission, and its `vkQueueSubmit`.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use ash::vk;
use syncline_core::backend::Mutex;

use crate::device::driver_queue::SUBMISSION;

/// What a `vkQueueSubmit` of the application's own must wait for and signal.
///
/// All lists of waits have the same length, and so have all lists of signals. A list may be empty.
/// The lists fit into `VkSubmitInfo` and `VkTimelineSemaphoreSubmitInfo` without changes. The
/// application may add waits and signals of its own. Binary semaphores have the value 0, which
/// Vulkan ignores.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RawSubmission<'s> {
    /// The queue to submit to. It is locked for this call.
    pub queue: vk::Queue,
    /// The semaphores that the work waits for.
    pub waits: &'s [vk::Semaphore],
    /// The value to wait for, of each semaphore.
    pub wait_values: &'s [u64],
    /// The stages that wait for each semaphore: all. Other stages may be passed instead.
    pub wait_stages: &'s [vk::PipelineStageFlags],
    /// The semaphores to signal after the work. The queue's own is among them.
    pub signals: &'s [vk::Semaphore],
    /// The value of each signal.
    pub signal_values: &'s [u64],
    /// What the call keeps. `None` for a call of the engine's own.
    pub(crate) kept: Option<&'s KeptByCall>,
}

/// Objects that a call of the application keeps. The submission keeps this list.
#[derive(Default)]
pub(crate) struct KeptByCall(Mutex<Vec<Arc<dyn Any + Send + Sync>>>);

impl std::fmt::Debug for KeptByCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeptByCall")
    }
}

impl RawSubmission<'_> {
    /// Keeps `object` alive until the submission has finished, or has been refused.
    pub fn keep(&self, object: Arc<dyn Any + Send + Sync>) {
        if let Some(KeptByCall(kept)) = self.kept {
            kept.lock().push(object);
        }
    }

    /// Calls `vkQueueSubmit` once, with these waits and signals.
    ///
    /// # Safety
    /// Same as [`SubmitLists::submit`].
    #[inline]
    pub(crate) unsafe fn submit(
        &self,
        device: &ash::Device,
        buffers: &[vk::CommandBuffer],
        fence: vk::Fence,
    ) -> Result<(), vk::Result> {
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(self.wait_values)
            .signal_semaphore_values(self.signal_values);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(self.waits)
            .wait_dst_stage_mask(self.wait_stages)
            .command_buffers(buffers)
            .signal_semaphores(self.signals)
            .push_next(&mut values);
        // SAFETY: the caller guarantees it.
        unsafe { device.queue_submit(self.queue, &[info], fence) }
    }
}

/// The semaphores of a submission, in the order of its `VkSubmitInfo`s.
///
/// They go into one `VkSubmitInfo`, or into two if signals must wait for other queues after the
/// work.
#[derive(Default)]
pub(crate) struct SubmitLists {
    waits: Vec<vk::Semaphore>,
    wait_values: Vec<u64>,
    wait_stages: Vec<vk::PipelineStageFlags>,
    signals: Vec<vk::Semaphore>,
    signal_values: Vec<u64>,
    /// The part for the first `VkSubmitInfo`, if there are two.
    split: Option<Split>,
}

/// How many waits, command buffers and signals belong to the first `VkSubmitInfo`.
#[derive(Clone, Copy)]
struct Split {
    waits: usize,
    buffers: usize,
    signals: usize,
}

impl SubmitLists {
    #[inline]
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

    #[inline]
    pub(crate) fn signal(&mut self, semaphore: vk::Semaphore, value: u64) {
        self.signals.push(semaphore);
        self.signal_values.push(value);
    }

    /// Puts all later waits and signals into a second `VkSubmitInfo`.
    ///
    /// That `VkSubmitInfo` also gets the command buffers after the first `buffers`.
    pub(crate) fn split(&mut self, buffers: usize) {
        self.split = Some(Split {
            waits: self.waits.len(),
            buffers,
            signals: self.signals.len(),
        });
    }

    /// The waits and signals for one `VkSubmitInfo`. [`split`](Self::split) was not called.
    #[inline]
    pub(crate) fn raw(&self, queue: vk::Queue) -> RawSubmission<'_> {
        RawSubmission {
            queue,
            waits: &self.waits,
            wait_values: &self.wait_values,
            wait_stages: &self.wait_stages,
            signals: &self.signals,
            signal_values: &self.signal_values,
            kept: None,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.waits.clear();
        self.wait_values.clear();
        self.wait_stages.clear();
        self.signals.clear();
        self.signal_values.clear();
        self.split = None;
    }

    /// The units of the driver queue's in-flight budget that a submission takes.
    ///
    /// `buffers` is the number of its command buffers.
    #[inline]
    pub(crate) fn units(&self, buffers: usize) -> u64 {
        let infos = 1 + u64::from(self.split.is_some());
        let count = self.waits.len() + buffers + self.signals.len();
        infos * SUBMISSION + count as u64
    }

    /// Calls `vkQueueSubmit` once.
    ///
    /// # Safety
    /// The gate of `queue` is locked. All handles are of `device`. The command buffers are ended
    /// and in no other submission. They, the semaphores and the fence live until the submission has
    /// finished. The signal of each wait is pending. Each signalled value is above the previous
    /// one.
    #[inline]
    pub(crate) unsafe fn submit(
        &self,
        device: &ash::Device,
        queue: vk::Queue,
        buffers: &[vk::CommandBuffer],
        fence: vk::Fence,
    ) -> Result<(), vk::Result> {
        if let Some(first) = self.split {
            // SAFETY: the caller guarantees it.
            return unsafe { self.submit_in_two(device, queue, buffers, fence, first) };
        }
        // SAFETY: the caller guarantees it.
        unsafe { self.raw(queue).submit(device, buffers, fence) }
    }

    /// Same as [`SubmitLists::submit`], with two `VkSubmitInfo`: the work, and the rest after it.
    ///
    /// # Safety
    /// Same as [`SubmitLists::submit`].
    #[cold]
    unsafe fn submit_in_two(
        &self,
        device: &ash::Device,
        queue: vk::Queue,
        buffers: &[vk::CommandBuffer],
        fence: vk::Fence,
        first: Split,
    ) -> Result<(), vk::Result> {
        let values = |waits: Range<usize>, signals: Range<usize>| {
            vk::TimelineSemaphoreSubmitInfo::default()
                .wait_semaphore_values(&self.wait_values[waits])
                .signal_semaphore_values(&self.signal_values[signals])
        };
        let info = |waits: Range<usize>, signals: Range<usize>| {
            vk::SubmitInfo::default()
                .wait_semaphores(&self.waits[waits.clone()])
                .wait_dst_stage_mask(&self.wait_stages[waits])
                .signal_semaphores(&self.signals[signals])
        };
        let (work, rest) = buffers.split_at(first.buffers);
        let mut first_values = values(0..first.waits, 0..first.signals);
        let first_info = info(0..first.waits, 0..first.signals)
            .command_buffers(work)
            .push_next(&mut first_values);
        let (waits, signals) = (
            first.waits..self.waits.len(),
            first.signals..self.signals.len(),
        );
        let mut last_values = values(waits.clone(), signals.clone());
        let last_info = info(waits, signals)
            .command_buffers(rest)
            .push_next(&mut last_values);
        // SAFETY: the caller guarantees it.
        unsafe { device.queue_submit(queue, &[first_info, last_info], fence) }
    }
}
