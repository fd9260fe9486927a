//! The semaphores of a submission, and its `vkQueueSubmit`.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ops::Range;

use ash::vk;

use crate::device::driver_queue::SUBMISSION;
use crate::queue::raw_submission::{KeptByCall, RawSubmission};

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
    ///
    /// `kept` is for what a call of the application's own keeps.
    #[inline]
    pub(crate) fn raw<'s>(
        &'s self,
        queue: vk::Queue,
        kept: Option<&'s KeptByCall>,
    ) -> RawSubmission<'s> {
        let waits = (&*self.waits, &*self.wait_values, &*self.wait_stages);
        let signals = (&*self.signals, &*self.signal_values);
        RawSubmission::new(queue, waits, signals, kept)
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
    /// Same as [`RawSubmission::submit`].
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
        unsafe { self.raw(queue, None).submit(device, buffers, fence) }
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
