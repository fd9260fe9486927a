//! Submissions: waits and signals of shared semaphores become those of the driver's.
#![allow(
    unsafe_code,
    reason = "is called by the application, and calls the driver"
)]

use std::sync::Arc;

use ash::vk;
use syncline_software_payload::Kind;

use crate::bug::Bug;
use crate::chain;
use crate::device::Device;
use crate::payload::Payload;
use crate::queue::{Batch, QueueState};
use crate::semaphore::Semaphore;

/// What a refused submission takes back.
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
    /// What the current batch has of shared semaphores. `None` as long as that is nothing.
    current: Option<Batch>,
}

impl Submission<'_> {
    /// What the driver waits for, in place of `semaphore` and `value`.
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
        // A batch that is refused leaves its number to a later one: too late is late enough.
        payload.note_wait(self.state.clone(), self.number + 1);
        if Bug::ForgetsWait.is_planted() {
            // Reached already.
            return Ok((payload.follower_for(0)?, 0));
        }
        Ok((payload.follower_for(value)?, value))
    }

    /// Notes a signal. False if it is the driver's own.
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

    /// Ends a batch. Tells the number that it signals the queue's count to, if it uses shared
    /// semaphores at all.
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

/// Makes a submission: `translate` goes through its batches, and `submit` gives the result to the
/// driver. What was counted is taken back if either fails.
fn make<T>(
    device: &Device,
    queue: vk::Queue,
    fence: vk::Fence,
    translate: impl FnOnce(&mut Submission<'_>) -> Result<T, vk::Result>,
    submit: impl FnOnce(T) -> vk::Result,
) -> vk::Result {
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
    let translated = match translate(&mut submission) {
        Ok(translated) => translated,
        Err(code) => {
            submission.take_back();
            return code;
        }
    };
    state.push(std::mem::take(&mut submission.batches));
    let result = submit(translated);
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

/// What the driver gets in place of a batch of `vkQueueSubmit`.
#[derive(Default)]
struct Translated {
    waits: Vec<vk::Semaphore>,
    wait_values: Vec<u64>,
    signals: Vec<vk::Semaphore>,
    signal_values: Vec<u64>,
    values: vk::TimelineSemaphoreSubmitInfo<'static>,
    protected: Option<vk::ProtectedSubmitInfo<'static>>,
}

impl Translated {
    /// The batch as the driver gets it. Points into `self`, and keeps the batch's command buffers.
    ///
    /// Of the chain only the values and the protected flag stay. `VkDeviceGroupSubmitInfo` says
    /// nothing to a device that is alone in its group.
    fn info<'b>(&mut self, batch: &vk::SubmitInfo<'b>) -> vk::SubmitInfo<'b> {
        self.values.wait_semaphore_value_count = count(&self.wait_values);
        self.values.p_wait_semaphore_values = self.wait_values.as_ptr();
        self.values.signal_semaphore_value_count = count(&self.signal_values);
        self.values.p_signal_semaphore_values = self.signal_values.as_ptr();
        if let Some(protected) = &self.protected {
            self.values.p_next = std::ptr::from_ref(protected).cast();
        }
        vk::SubmitInfo {
            p_next: (&raw const self.values).cast(),
            wait_semaphore_count: count(&self.waits),
            p_wait_semaphores: self.waits.as_ptr(),
            signal_semaphore_count: count(&self.signals),
            p_signal_semaphores: self.signals.as_ptr(),
            ..*batch
        }
    }
}

/// The length of an array as Vulkan takes it. It came as such a count, and one more.
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
    let Some(device) = (unsafe { Device::of(queue) }) else {
        return vk::Result::ERROR_DEVICE_LOST;
    };
    let next = device.driver.queue_submit;
    // SAFETY: valid usage: as many structures as the count says, and valid arrays in them.
    let (batches, shares) = unsafe {
        let batches = chain::slice(submits, count);
        let is_shared = |&semaphore: &vk::Semaphore| device.shared(semaphore).is_some();
        let shares = device.shares()
            && batches.iter().any(|batch| {
                chain::slice(batch.p_wait_semaphores, batch.wait_semaphore_count)
                    .iter()
                    .chain(chain::slice(
                        batch.p_signal_semaphores,
                        batch.signal_semaphore_count,
                    ))
                    .any(is_shared)
            });
        (batches, shares)
    };
    if !shares {
        // SAFETY: valid usage.
        return unsafe { next(queue, count, submits, fence) };
    }
    make(
        &device,
        queue,
        fence,
        |submission| {
            let translate = |batch| {
                // SAFETY: valid usage.
                unsafe { translate(submission, batch) }
            };
            batches.iter().map(translate).collect::<Result<Vec<_>, _>>()
        },
        |mut translated| {
            let infos: Vec<_> = batches
                .iter()
                .zip(&mut translated)
                .map(|(batch, translated)| match translated {
                    Some(translated) => translated.info(batch),
                    None => *batch,
                })
                .collect();
            // SAFETY: valid usage, with semaphores of this device in place of those of the layer.
            // What the structures point to lives until the end of this closure.
            unsafe { next(queue, count, infos.as_ptr(), fence) }
        },
    )
}

/// # Safety
/// A valid batch.
unsafe fn translate(
    submission: &mut Submission<'_>,
    batch: &vk::SubmitInfo<'_>,
) -> Result<Option<Translated>, vk::Result> {
    // SAFETY: by this function's contract.
    let (waits, signals, values, protected) = unsafe {
        (
            chain::slice(batch.p_wait_semaphores, batch.wait_semaphore_count),
            chain::slice(batch.p_signal_semaphores, batch.signal_semaphore_count),
            chain::find::<vk::TimelineSemaphoreSubmitInfo<'_>>(batch.p_next),
            chain::find::<vk::ProtectedSubmitInfo<'_>>(batch.p_next),
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
    // First, because lavapipe shows the signals of a batch in their order. A thread that has seen
    // another signal of the batch then finds the count.
    translated.signals.insert(0, submission.state.count);
    translated.signal_values.insert(0, number);
    Ok(Some(translated))
}

/// `vkQueueSubmit2`, and its KHR name.
pub(crate) unsafe extern "system" fn queue_submit2(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo2<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: valid usage: a live queue.
    let Some(device) = (unsafe { Device::of(queue) }) else {
        return vk::Result::ERROR_DEVICE_LOST;
    };
    let Some(next) = device.driver.queue_submit2 else {
        return vk::Result::ERROR_FEATURE_NOT_PRESENT;
    };
    // SAFETY: valid usage: as many structures as the count says, and valid arrays in them.
    let (batches, shares) = unsafe {
        let batches = chain::slice(submits, count);
        let is_shared =
            |info: &vk::SemaphoreSubmitInfo<'_>| device.shared(info.semaphore).is_some();
        let shares = device.shares()
            && batches.iter().any(|batch| {
                let (waits, signals) = semaphores(batch);
                waits.iter().chain(signals).any(is_shared)
            });
        (batches, shares)
    };
    if !shares {
        // SAFETY: valid usage.
        return unsafe { next(queue, count, submits, fence) };
    }
    make(
        &device,
        queue,
        fence,
        |submission| {
            let translate = |batch| {
                // SAFETY: valid usage.
                unsafe { translate2(submission, batch) }
            };
            batches.iter().map(translate).collect::<Result<Vec<_>, _>>()
        },
        |translated| {
            let infos: Vec<_> = batches
                .iter()
                .zip(&translated)
                .map(|(batch, (waits, signals))| {
                    batch
                        .wait_semaphore_infos(waits)
                        .signal_semaphore_infos(signals)
                })
                .collect();
            // SAFETY: as in `queue_submit`.
            unsafe { next(queue, count, infos.as_ptr(), fence) }
        },
    )
}

/// The waits and the signals of a batch.
///
/// # Safety
/// A valid batch.
unsafe fn semaphores<'b>(
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

/// The waits and the signals that the driver gets in place of those of a batch.
///
/// # Safety
/// A valid batch.
unsafe fn translate2<'b>(
    submission: &mut Submission<'_>,
    batch: &vk::SubmitInfo2<'b>,
) -> Result<
    (
        Vec<vk::SemaphoreSubmitInfo<'b>>,
        Vec<vk::SemaphoreSubmitInfo<'b>>,
    ),
    vk::Result,
> {
    // SAFETY: by this function's contract.
    let (waits, signals) = unsafe { semaphores(batch) };
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
        // A batch that only waits for shared semaphores counts once all of it is complete.
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

/// `vkQueueBindSparse`: refused where it uses shared semaphores. No software driver binds sparsely.
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
