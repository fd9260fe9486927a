//! Submissions: waits and signals of shared semaphores become those of the driver's semaphores.
#![allow(
    unsafe_code,
    reason = "is called by the application, and calls the driver"
)]

use std::io::Write as _;
use std::sync::Arc;

use ash::vk;
use syncline_software_payload::Kind;

use crate::bug::Bug;
use crate::chain;
use crate::device::Device;
use crate::payload::Payload;
use crate::queue::{Batch, QueueState};
use crate::semaphore::Semaphore;

/// A change to undo after a refused submission.
enum Undo {
    Wait(Arc<Payload>),
    Signal(Arc<Payload>),
    Temporary(Arc<Semaphore>, Arc<Payload>),
}

/// A submission that is being made.
struct Submission<'l> {
    device: &'l Device,
    state: &'l Arc<QueueState>,
    /// The last number given to a batch.
    number: u64,
    undo: Vec<Undo>,
    batches: Vec<Batch>,
    /// The shared semaphores of the current batch. `None` while it has none.
    current: Option<Batch>,
}

impl Submission<'_> {
    /// Returns the driver's semaphore and value for a wait for `semaphore` and `value`.
    fn wait(
        &mut self,
        semaphore: vk::Semaphore,
        value: u64,
    ) -> Result<(vk::Semaphore, u64), vk::Result> {
        let Some(known) = self.device.shared(semaphore) else {
            return Ok((semaphore, value));
        };
        let Some((payload, temporary)) = known.take_for_wait() else {
            return Ok((semaphore, value));
        };
        let batch = self.current.get_or_insert_default();
        if temporary {
            self.undo
                .push(Undo::Temporary(known.clone(), payload.clone()));
            batch.spent.push(payload.clone());
        }
        let value = match known.kind {
            Kind::Timeline => value,
            Kind::Binary => {
                self.undo.push(Undo::Wait(payload.clone()));
                payload.page.number_wait()
            }
        };
        // A later batch gets the number of a refused one. Then the follower lives longer, but long
        // enough.
        payload.note_wait(self.state.clone(), self.number + 1);
        if Bug::ForgetsWait.is_planted() {
            // The value is already reached.
            return Ok((payload.follower_for(0)?, 0));
        }
        Ok((payload.follower_for(value)?, value))
    }

    /// Notes a signal. Returns false if it is the driver's own.
    fn signal(&mut self, semaphore: vk::Semaphore, value: u64) -> bool {
        let Some(known) = self.device.shared(semaphore) else {
            return false;
        };
        let Some(payload) = known.payload() else {
            return false;
        };
        let value = match known.kind {
            Kind::Timeline => value,
            Kind::Binary => {
                self.undo.push(Undo::Signal(payload.clone()));
                payload.page.number_signal()
            }
        };
        let batch = self.current.get_or_insert_default();
        if Bug::SignalsBeforeTheWork.is_planted() {
            payload.reach(value);
        }
        let excess = u64::from(known.kind == Kind::Timeline && Bug::SignalsTooHigh.is_planted());
        batch.signals.push((payload, value.saturating_add(excess)));
        true
    }

    /// Ends a batch. Returns the value to which it signals the queue's count.
    ///
    /// `None` if it uses no shared semaphores.
    fn end_batch(&mut self) -> Option<u64> {
        let mut batch = self.current.take()?;
        self.number += 1;
        batch.number = self.number;
        self.batches.push(batch);
        Some(self.number)
    }

    fn take_back(self) {
        for undo in self.undo.into_iter().rev() {
            match undo {
                Undo::Wait(payload) => payload.page.withdraw_wait(),
                Undo::Signal(payload) => payload.page.withdraw_signal(),
                Undo::Temporary(semaphore, payload) => semaphore.give_back(payload),
            }
        }
    }
}

/// A batch of `vkQueueSubmit` or `vkQueueSubmit2`.
trait Submit: Copy {
    /// The driver's replacement for the batch's semaphores.
    type Translated;

    /// Returns the semaphores that it waits for and signals.
    ///
    /// # Safety
    /// A valid batch.
    unsafe fn semaphores(&self) -> impl Iterator<Item = vk::Semaphore>;

    /// Returns its command buffers.
    ///
    /// # Safety
    /// A valid batch.
    unsafe fn commands(&self) -> impl Iterator<Item = vk::CommandBuffer>;

    /// # Safety
    /// A valid batch.
    unsafe fn translate(
        &self,
        submission: &mut Submission<'_>,
    ) -> Result<Self::Translated, vk::Result>;

    /// Returns the batch for the driver. It points into the translation, and keeps the rest.
    fn with(self, translated: &mut Self::Translated) -> Self;
}

/// A function of the driver that submits.
type Next<B> = unsafe extern "system" fn(vk::Queue, u32, *const B, vk::Fence) -> vk::Result;

/// Submits batches, unless they misuse shared memory.
///
/// # Safety
/// Valid usage of `next`, which is of this device.
unsafe fn submit<B: Submit>(
    device: &Device,
    next: Next<B>,
    queue: vk::Queue,
    count: u32,
    submits: *const B,
    fence: vk::Fence,
) -> vk::Result {
    if device.heaps.is_none() {
        // SAFETY: by this function's contract.
        return unsafe { submit_followed(device, next, queue, count, submits, fence) };
    }
    // SAFETY: valid usage: as many structures as the count says.
    let batches = unsafe { chain::slice(submits, count) };
    let commands = batches.iter().map(|batch| {
        // SAFETY: valid usage: valid arrays in it.
        unsafe { batch.commands() }
    });
    let before = match device.ownership.submit(commands) {
        Ok(before) => before,
        Err(misuse) => {
            // Not `eprintln!`, which panics if standard error cannot be written.
            let _ = writeln!(
                std::io::stderr(),
                "software layer: a submission is refused: {misuse}"
            );
            return vk::Result::ERROR_VALIDATION_FAILED_EXT;
        }
    };
    // SAFETY: by this function's contract.
    let result = unsafe { submit_followed(device, next, queue, count, submits, fence) };
    if result != vk::Result::SUCCESS {
        device.ownership.undo(before);
    }
    result
}

/// Submits batches. If that fails, the counts of shared semaphores are restored.
///
/// # Safety
/// Same as [`submit`].
unsafe fn submit_followed<B: Submit>(
    device: &Device,
    next: Next<B>,
    queue: vk::Queue,
    count: u32,
    submits: *const B,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: valid usage: as many structures as the count says.
    let batches = unsafe { chain::slice(submits, count) };
    let mut semaphores = batches.iter().flat_map(|batch| {
        // SAFETY: valid usage: valid arrays in it.
        unsafe { batch.semaphores() }
    });
    if !device.shares() || !semaphores.any(|one| device.shared(one).is_some()) {
        // SAFETY: valid usage.
        return unsafe { next(queue, count, submits, fence) };
    }
    let state = match device.queue_state(queue) {
        Ok(state) => state,
        Err(code) => return code,
    };
    let mut numbers = state.numbers();
    let mut submission = Submission {
        device,
        state: &state,
        number: *numbers,
        undo: Vec::new(),
        batches: Vec::new(),
        current: None,
    };
    // SAFETY: valid usage.
    let translate = |batch: &B| unsafe { batch.translate(&mut submission) };
    let translated: Result<Vec<_>, _> = batches.iter().map(translate).collect();
    let mut translated = match translated {
        Ok(translated) => translated,
        Err(code) => {
            submission.take_back();
            return code;
        }
    };
    state.push(std::mem::take(&mut submission.batches));
    let pairs = batches.iter().zip(&mut translated);
    let infos: Vec<_> = pairs.map(|(batch, own)| batch.with(own)).collect();
    // SAFETY: valid usage, with semaphores of this device in place of those of the layer. What the
    // structures point to lives as long as they do.
    let result = unsafe { next(queue, count, infos.as_ptr(), fence) };
    if result == vk::Result::SUCCESS {
        *numbers = submission.number;
        if fence != vk::Fence::null() {
            device.note_fence(fence, state.clone(), submission.number);
        }
    } else {
        state.refused(*numbers);
        submission.take_back();
    }
    result
}

/// The driver's replacement for a batch of `vkQueueSubmit`.
#[derive(Default)]
struct Translated {
    waits: Vec<vk::Semaphore>,
    wait_values: Vec<u64>,
    signals: Vec<vk::Semaphore>,
    signal_values: Vec<u64>,
    values: vk::TimelineSemaphoreSubmitInfo<'static>,
    protected: Option<vk::ProtectedSubmitInfo<'static>>,
}

/// Returns the length of an array for Vulkan. It came as such a count, with at most one more.
fn count<T>(all: &[T]) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

/// `vkQueueSubmit`.
pub(crate) unsafe extern "system" fn queue_submit(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: valid usage: a live queue.
    unsafe {
        let Some(device) = Device::of(queue) else {
            return vk::Result::ERROR_DEVICE_LOST;
        };
        let next = device.driver.queue_submit;
        submit(&device, next, queue, count, submits, fence)
    }
}

impl Submit for vk::SubmitInfo<'_> {
    /// `None` for a batch without shared semaphores.
    type Translated = Option<Translated>;

    unsafe fn semaphores(&self) -> impl Iterator<Item = vk::Semaphore> {
        // SAFETY: by this function's contract.
        let (waits, signals) = unsafe {
            (
                chain::slice(self.p_wait_semaphores, self.wait_semaphore_count),
                chain::slice(self.p_signal_semaphores, self.signal_semaphore_count),
            )
        };
        waits.iter().chain(signals).copied()
    }

    unsafe fn commands(&self) -> impl Iterator<Item = vk::CommandBuffer> {
        // SAFETY: by this function's contract.
        let all = unsafe { chain::slice(self.p_command_buffers, self.command_buffer_count) };
        all.iter().copied()
    }

    unsafe fn translate(
        &self,
        submission: &mut Submission<'_>,
    ) -> Result<Self::Translated, vk::Result> {
        // SAFETY: by this function's contract.
        let (waits, signals, values, protected) = unsafe {
            (
                chain::slice(self.p_wait_semaphores, self.wait_semaphore_count),
                chain::slice(self.p_signal_semaphores, self.signal_semaphore_count),
                chain::find::<vk::TimelineSemaphoreSubmitInfo<'_>>(self.p_next),
                chain::find::<vk::ProtectedSubmitInfo<'_>>(self.p_next),
            )
        };
        // Without timelines a batch may have no values, or fewer.
        let (wait_values, signal_values): (&[u64], &[u64]) = match values {
            // SAFETY: by this function's contract.
            Some(values) => unsafe {
                (
                    chain::slice(
                        values.p_wait_semaphore_values,
                        values.wait_semaphore_value_count,
                    ),
                    chain::slice(
                        values.p_signal_semaphore_values,
                        values.signal_semaphore_value_count,
                    ),
                )
            },
            None => (&[], &[]),
        };
        let mut translated = Translated {
            protected: protected.map(|told| vk::ProtectedSubmitInfo {
                protected_submit: told.protected_submit,
                ..Default::default()
            }),
            ..Translated::default()
        };
        for (at, &semaphore) in waits.iter().enumerate() {
            let value = wait_values.get(at).copied().unwrap_or(0);
            let (semaphore, value) = submission.wait(semaphore, value)?;
            translated.waits.push(semaphore);
            translated.wait_values.push(value);
        }
        for (at, &semaphore) in signals.iter().enumerate() {
            let value = signal_values.get(at).copied().unwrap_or(0);
            if !submission.signal(semaphore, value) {
                translated.signals.push(semaphore);
                translated.signal_values.push(value);
            }
        }
        let Some(number) = submission.end_batch() else {
            return Ok(None);
        };
        // First, because lavapipe makes the signals of a batch in their order. A thread that knows
        // of another signal of the batch then finds the count.
        translated.signals.insert(0, submission.state.count);
        translated.signal_values.insert(0, number);
        Ok(Some(translated))
    }

    /// Only the values and the protected flag of the chain remain.
    ///
    /// `VkDeviceGroupSubmitInfo` has no meaning for a device that is alone in its group.
    fn with(self, translated: &mut Self::Translated) -> Self {
        let Some(translated) = translated else {
            return self;
        };
        let values = &mut translated.values;
        values.wait_semaphore_value_count = count(&translated.wait_values);
        values.p_wait_semaphore_values = translated.wait_values.as_ptr();
        values.signal_semaphore_value_count = count(&translated.signal_values);
        values.p_signal_semaphore_values = translated.signal_values.as_ptr();
        if let Some(protected) = &translated.protected {
            values.p_next = std::ptr::from_ref(protected).cast();
        }
        Self {
            p_next: (&raw const *values).cast(),
            wait_semaphore_count: count(&translated.waits),
            p_wait_semaphores: translated.waits.as_ptr(),
            signal_semaphore_count: count(&translated.signals),
            p_signal_semaphores: translated.signals.as_ptr(),
            ..self
        }
    }
}

/// `vkQueueSubmit2`, and its KHR name.
pub(crate) unsafe extern "system" fn queue_submit2(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo2<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: valid usage: a live queue.
    unsafe {
        let Some(device) = Device::of(queue) else {
            return vk::Result::ERROR_DEVICE_LOST;
        };
        let Some(next) = device.driver.queue_submit2 else {
            return vk::Result::ERROR_FEATURE_NOT_PRESENT;
        };
        submit(&device, next, queue, count, submits, fence)
    }
}

/// Returns the waits and the signals of a batch.
///
/// # Safety
/// A valid batch.
unsafe fn points<'b>(
    batch: &vk::SubmitInfo2<'b>,
) -> (
    &'b [vk::SemaphoreSubmitInfo<'b>],
    &'b [vk::SemaphoreSubmitInfo<'b>],
) {
    // SAFETY: by this function's contract.
    unsafe {
        (
            chain::slice(
                batch.p_wait_semaphore_infos,
                batch.wait_semaphore_info_count,
            ),
            chain::slice(
                batch.p_signal_semaphore_infos,
                batch.signal_semaphore_info_count,
            ),
        )
    }
}

impl<'b> Submit for vk::SubmitInfo2<'b> {
    /// Its waits and its signals.
    type Translated = (
        Vec<vk::SemaphoreSubmitInfo<'b>>,
        Vec<vk::SemaphoreSubmitInfo<'b>>,
    );

    unsafe fn semaphores(&self) -> impl Iterator<Item = vk::Semaphore> {
        // SAFETY: by this function's contract.
        let (waits, signals) = unsafe { points(self) };
        waits.iter().chain(signals).map(|point| point.semaphore)
    }

    unsafe fn commands(&self) -> impl Iterator<Item = vk::CommandBuffer> {
        let (first, count) = (self.p_command_buffer_infos, self.command_buffer_info_count);
        // SAFETY: by this function's contract.
        let all = unsafe { chain::slice(first, count) };
        all.iter().map(|info| info.command_buffer)
    }

    unsafe fn translate(
        &self,
        submission: &mut Submission<'_>,
    ) -> Result<Self::Translated, vk::Result> {
        // SAFETY: by this function's contract.
        let (waits, signals) = unsafe { points(self) };
        let mut waits = waits.to_vec();
        for wait in &mut waits {
            (wait.semaphore, wait.value) = submission.wait(wait.semaphore, wait.value)?;
        }
        let mut kept = Vec::with_capacity(signals.len() + 1);
        let mut stages = vk::PipelineStageFlags2::empty();
        for signal in signals {
            if submission.signal(signal.semaphore, signal.value) {
                stages |= signal.stage_mask;
            } else {
                kept.push(*signal);
            }
        }
        if let Some(number) = submission.end_batch() {
            // A batch that only waits for shared semaphores is counted once all of it is complete.
            if stages.is_empty() {
                stages = vk::PipelineStageFlags2::ALL_COMMANDS;
            }
            let count = vk::SemaphoreSubmitInfo::default()
                .semaphore(submission.state.count)
                .value(number)
                .stage_mask(stages);
            // First, as in `translate`.
            kept.insert(0, count);
        }
        Ok((waits, kept))
    }

    fn with(mut self, (waits, signals): &mut Self::Translated) -> Self {
        self.wait_semaphore_info_count = count(waits);
        self.p_wait_semaphore_infos = waits.as_ptr();
        self.signal_semaphore_info_count = count(signals);
        self.p_signal_semaphore_infos = signals.as_ptr();
        self
    }
}

/// `vkQueueBindSparse`: refused if it uses shared semaphores. No software driver binds sparsely.
pub(crate) unsafe extern "system" fn queue_bind_sparse(
    queue: vk::Queue,
    count: u32,
    infos: *const vk::BindSparseInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: valid usage: a live queue, as many structures as the count says, and valid arrays.
    unsafe {
        let Some(device) = Device::of(queue) else {
            return vk::Result::ERROR_DEVICE_LOST;
        };
        for info in chain::slice(infos, count) {
            let waits = chain::slice(info.p_wait_semaphores, info.wait_semaphore_count);
            let signals = chain::slice(info.p_signal_semaphores, info.signal_semaphore_count);
            for &semaphore in waits.iter().chain(signals) {
                if device.shared(semaphore).is_some() {
                    return vk::Result::ERROR_FEATURE_NOT_PRESENT;
                }
            }
        }
        (device.driver.queue_bind_sparse)(queue, count, infos, fence)
    }
}
