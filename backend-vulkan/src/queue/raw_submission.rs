//! What a `vkQueueSubmit` of the application's own waits for, signals and keeps.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::sync::Arc;

use ash::vk;
use smallvec::SmallVec;
use syncline_core::Error;
use syncline_core::backend::kit::Mutex;

/// What a `vkQueueSubmit` of the application's own must wait for and signal.
///
/// [`wait_infos`](Self::wait_infos) and [`signal_infos`](Self::signal_infos) are for
/// `vkQueueSubmit2`. The lists are the same waits and signals for `vkQueueSubmit`. They fit into
/// `VkSubmitInfo` and `VkTimelineSemaphoreSubmitInfo` without changes. All lists of waits have the
/// same length, and so have all lists of signals. A list may be empty. The application may add
/// waits and signals of its own. Binary semaphores have the value 0, which Vulkan ignores.
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
pub(crate) struct KeptByCall {
    objects: Mutex<SmallVec<[Arc<dyn Any + Send + Sync>; 2]>>,
    /// Why the call fails.
    reason: Mutex<Option<String>>,
}

impl KeptByCall {
    /// Adds the reason, if there is one, to the driver error of a call that has failed.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match (error, self.reason.lock().take()) {
            (
                Error::Native {
                    object,
                    call,
                    code,
                    name,
                    ..
                },
                Some(reason),
            ) => Error::native(object, call, code, format!("{name}: {reason}")),
            (error, _) => error,
        }
    }
}

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

    /// The waits for `VkSubmitInfo2`, with their values and stages.
    ///
    /// See `vkQueueSubmit2`, for which the device needs the feature `synchronization2`.
    pub fn wait_infos(
        &self,
    ) -> impl ExactSizeIterator<Item = vk::SemaphoreSubmitInfo<'static>> + 's {
        let semaphores = self.waits.iter().zip(self.wait_values);
        semaphores
            .zip(self.wait_stages)
            .map(|((&semaphore, &value), stages)| {
                // The stages of Vulkan 1.0 have the same bits in both types.
                let stages = vk::PipelineStageFlags2::from_raw(stages.as_raw().into());
                semaphore_info(semaphore, value, stages)
            })
    }

    /// The signals for `VkSubmitInfo2`, with their values. They come after all stages.
    ///
    /// See [`RawSubmission::wait_infos`].
    pub fn signal_infos(
        &self,
    ) -> impl ExactSizeIterator<Item = vk::SemaphoreSubmitInfo<'static>> + 's {
        let semaphores = self.signals.iter().zip(self.signal_values);
        semaphores.map(|(&semaphore, &value)| {
            semaphore_info(semaphore, value, vk::PipelineStageFlags2::ALL_COMMANDS)
        })
    }

    /// Keeps `object` alive until the submission has finished.
    ///
    /// Also if it is refused, because the driver may have a part of it. Then a later submission of
    /// the queue drops the object, or `Queue::idle`, or the drop of the queue.
    pub fn keep(&self, object: Arc<dyn Any + Send + Sync>) {
        if let Some(kept) = self.kept {
            kept.objects.lock().push(object);
        }
    }

    /// Says why the call is about to return an error. The driver error then has this text.
    pub fn explain(&self, reason: impl Into<String>) {
        if let Some(kept) = self.kept {
            *kept.reason.lock() = Some(reason.into());
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

fn semaphore_info(
    semaphore: vk::Semaphore,
    value: u64,
    stages: vk::PipelineStageFlags2,
) -> vk::SemaphoreSubmitInfo<'static> {
    vk::SemaphoreSubmitInfo::default()
        .semaphore(semaphore)
        .value(value)
        .stage_mask(stages)
}

#[cfg(test)]
mod tests {
    use ash::vk::Handle as _;

    use super::*;

    #[test]
    fn both_forms_have_the_same_waits_and_signals() {
        let semaphores = [11, 12, 13].map(vk::Semaphore::from_raw);
        let stages = [
            vk::PipelineStageFlags::ALL_COMMANDS,
            vk::PipelineStageFlags::TRANSFER | vk::PipelineStageFlags::HOST,
        ];
        let raw = RawSubmission::new(
            vk::Queue::null(),
            (&semaphores[..2], &[5, 0], &stages),
            (&semaphores[2..], &[7]),
            None,
        );
        let parts = |info: vk::SemaphoreSubmitInfo<'_>| {
            (
                info.semaphore,
                info.value,
                info.stage_mask,
                info.device_index,
            )
        };
        let all = vk::PipelineStageFlags2::ALL_COMMANDS;
        let some = vk::PipelineStageFlags2::ALL_TRANSFER | vk::PipelineStageFlags2::HOST;
        assert_eq!(
            raw.wait_infos().map(parts).collect::<Vec<_>>(),
            [(semaphores[0], 5, all, 0), (semaphores[1], 0, some, 0)]
        );
        assert_eq!(
            raw.signal_infos().map(parts).collect::<Vec<_>>(),
            [(semaphores[2], 7, all, 0)]
        );
    }
}
