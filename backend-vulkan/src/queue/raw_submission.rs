//! What a `vkQueueSubmit` of the application's own waits for, signals and keeps.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::sync::Arc;

use ash::vk;
use syncline_core::backend::Mutex;

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
    kept: Option<&'s KeptByCall>,
}

/// Objects that a call of the application keeps. The submission keeps this list.
#[derive(Default)]
pub(crate) struct KeptByCall(Mutex<Vec<Arc<dyn Any + Send + Sync>>>);

impl std::fmt::Debug for KeptByCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeptByCall")
    }
}

impl<'s> RawSubmission<'s> {
    /// `waits` are semaphores, values and stages. `signals` are semaphores and values.
    #[inline]
    pub(crate) const fn new(
        queue: vk::Queue,
        waits: (&'s [vk::Semaphore], &'s [u64], &'s [vk::PipelineStageFlags]),
        signals: (&'s [vk::Semaphore], &'s [u64]),
        kept: Option<&'s KeptByCall>,
    ) -> Self {
        Self {
            queue,
            waits: waits.0,
            wait_values: waits.1,
            wait_stages: waits.2,
            signals: signals.0,
            signal_values: signals.1,
            kept,
        }
    }

    /// Keeps `object` alive until the submission has finished, or has been refused.
    pub fn keep(&self, object: Arc<dyn Any + Send + Sync>) {
        if let Some(KeptByCall(kept)) = self.kept {
            kept.lock().push(object);
        }
    }

    /// Calls `vkQueueSubmit` once, with these waits and signals.
    ///
    /// # Safety
    /// The gate of the queue is locked. All handles are of `device`. The command buffers are ended
    /// and in no other submission. They, the semaphores and the fence live until the submission has
    /// finished. The signal of each wait is pending. Each signalled value is above the previous
    /// one.
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
