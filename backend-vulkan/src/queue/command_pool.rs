//! The command buffers of one queue, and the semaphores of its submissions in flight.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ash::vk;
use smallvec::SmallVec;
use syncline_core::backend::{
    Batch, InUse, Mutex, NativePoint, RunsInProcess, TeardownGuard, Unused,
};
use syncline_core::{Error, Result, error::Object};

use crate::device::inner::Inner;
use crate::timeline::port::Port;
use crate::timeline::semaphore::Semaphore;

/// How long the drop of a queue waits for work that may still execute after an error.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

/// A `VkCommandPool` whose buffers are reused once the queue's own timeline has passed them.
pub(crate) struct CommandPool {
    device: Arc<Inner>,
    /// The queue's name.
    object: Object,
    family: u32,
    pool: vk::CommandPool,
    /// The queue's own timeline.
    own: Arc<Semaphore>,
    /// The number of the last submission that the driver has taken.
    last_submitted: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: Vec<vk::CommandBuffer>,
    in_flight: VecDeque<InFlight>,
    /// The timeline semaphores of submissions in flight, whose timelines may already be dropped.
    semaphores: InUse<Semaphore>,
    /// The number in flight that the last recycling or poll left.
    left: usize,
}

impl State {
    /// True if a submission up to number `reached` is in flight, as far as the pool knows.
    fn has_finished(&self, reached: u64) -> bool {
        let first = self.in_flight.front();
        first.is_some_and(|used| used.number <= reached)
    }

    /// Takes the submissions in flight up to number `reached`. Their command buffers are free then.
    ///
    /// Returns the last of them. Ends early after a submission that has semaphores, which must not
    /// be dropped under the lock.
    fn take_finished(&mut self, reached: u64) -> Option<InFlight> {
        let mut last: Option<InFlight> = None;
        while last.as_ref().is_none_or(|used| used.semaphores.is_empty())
            && self.has_finished(reached)
            && let Some(mut used) = self.in_flight.pop_front()
        {
            self.free.extend(std::mem::take(&mut used.buffers));
            self.left = self.in_flight.len();
            last = Some(used);
        }
        last
    }

    /// True if the counter should be polled. Then false until [`POLL_STEP`] more are in flight.
    fn is_poll_due(&mut self) -> bool {
        let due = self.in_flight.len() >= self.left + POLL_STEP;
        if due {
            self.left = self.in_flight.len();
        }
        due
    }
}

/// The number of further submissions in flight after which the counter is polled again.
///
/// While the device writes the counter, a poll costs about as much as everything else that this
/// file does for a submission.
const POLL_STEP: usize = 32;

/// The command buffers and semaphores that one submission uses.
#[derive(Default)]
pub(crate) struct InFlight {
    /// The value of the queue's own timeline at which the submission ends.
    number: u64,
    /// The number from
    /// [`DeferredDestroy::count_submission`](crate::device::deferred_destroy::DeferredDestroy::count_submission),
    /// or 0.
    submission: u64,
    buffers: SmallVec<[vk::CommandBuffer; 2]>,
    /// The semaphores that the submission uses, if the driver needs deferred destruction.
    semaphores: SmallVec<[Arc<Semaphore>; 2]>,
}

impl InFlight {
    /// Sets the number of the submission, and its semaphores if the driver needs deferred
    /// destruction.
    ///
    /// # Errors
    /// Same errors as [`CommandPool::semaphore`].
    #[inline]
    pub(crate) fn set_submission(
        &mut self,
        commands: &CommandPool,
        batch: &Batch<'_>,
    ) -> Result<()> {
        self.number = batch.end.value();
        if commands.device.deferred_destroy().is_needed() {
            for &point in [batch.waits, batch.order, batch.signals]
                .into_iter()
                .flatten()
            {
                self.semaphores.push(commands.semaphore(point)?.clone());
            }
        }
        Ok(())
    }

    /// The value of the queue's own timeline at which the submission ends.
    #[inline]
    pub(crate) const fn end(&self) -> u64 {
        self.number
    }

    /// Adds a command buffer that was [begun](CommandPool::begin) for the submission.
    #[inline]
    pub(crate) fn add_buffer(&mut self, buffer: vk::CommandBuffer) {
        self.buffers.push(buffer);
    }

    /// The command buffers that were begun for the submission.
    #[inline]
    pub(crate) fn buffers(&self) -> &[vk::CommandBuffer] {
        &self.buffers
    }

    /// Empties it. Usually there is nothing to drop.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.number, self.submission) = (0, 0);
        self.buffers.clear();
        self.semaphores.clear();
    }
}

impl CommandPool {
    pub(crate) fn new(
        device: &Arc<Inner>,
        object: &Object,
        family: u32,
        own: Arc<Semaphore>,
    ) -> Result<Self> {
        let info = vk::CommandPoolCreateInfo::default()
            .queue_family_index(family)
            .flags(
                vk::CommandPoolCreateFlags::TRANSIENT
                    | vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER,
            );
        // SAFETY: `info` is valid, and the device was created with queues of this family.
        let pool = unsafe { device.raw().create_command_pool(&info, None) }
            .map_err(|code| device.failed(object, "vkCreateCommandPool", code))?;
        Ok(Self {
            device: device.clone(),
            object: object.clone(),
            family,
            pool,
            own,
            last_submitted: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    #[inline]
    pub(crate) const fn device(&self) -> &Arc<Inner> {
        &self.device
    }

    /// The name of the queue.
    #[inline]
    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }

    /// The index of the queue family.
    #[inline]
    pub(crate) const fn family(&self) -> u32 {
        self.family
    }

    /// The queue's own timeline.
    #[inline]
    pub(crate) const fn own(&self) -> &Arc<Semaphore> {
        &self.own
    }

    /// The error for a failed call of the queue.
    #[cold]
    pub(crate) fn failed(&self, call: &'static str, code: vk::Result) -> Error {
        self.device.failed(&self.object, call, code)
    }

    /// The semaphore of `point` on the pool's device.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if its port is of another `VkDevice`.
    #[inline]
    pub(crate) fn semaphore<'p>(&self, point: NativePoint<'p>) -> Result<&'p Arc<Semaphore>> {
        let port = point.port::<Port>();
        let semaphore = port.and_then(|port| port.on(&self.device));
        semaphore.ok_or_else(|| {
            let reason = "its port on this device is not a semaphore of this VkDevice";
            Error::unsupported(point.object(), "be used by a Vulkan queue", reason)
        })
    }

    /// Begins a submission, and keeps its semaphores until it has finished.
    ///
    /// Releases what finished submissions used. If many are in flight, polls the counter for the
    /// number of finished ones.
    ///
    /// # Errors
    /// Same errors as [`CommandPool::semaphore`].
    #[inline]
    pub(crate) fn begin_submission(&self, batch: &Batch<'_>) -> Result<()> {
        let (number, finished) = (batch.end.value(), batch.finished());
        let (has_finished, polls, is_crowded) = {
            let mut state = self.state.lock();
            for points in [batch.waits, batch.order, batch.signals] {
                for &point in points {
                    state.semaphores.add(self.semaphore(point)?, number);
                }
            }
            let has_finished = state.has_finished(finished);
            let polls = !has_finished && state.is_poll_due();
            (has_finished, polls, state.semaphores.is_crowded())
        };
        if has_finished {
            self.recycle(finished);
        }
        if polls {
            self.recycle(self.poll_finished());
        }
        if is_crowded {
            self.release_semaphores(finished);
        }
        Ok(())
    }

    /// Releases what the submissions up to `finished` used. Other threads may submit meanwhile.
    pub(crate) fn release_finished(&self, finished: u64) {
        self.recycle(finished);
        self.release_semaphores(finished);
    }

    /// Releases the semaphores that no submission after `finished` uses.
    fn release_semaphores(&self, finished: u64) {
        while !self.take_unused_semaphores(finished).is_empty() {}
    }

    fn take_unused_semaphores(&self, finished: u64) -> Unused<Semaphore> {
        self.state.lock().semaphores.take_unused(finished)
    }

    /// Polls the number of the last finished submission.
    ///
    /// Returns 0 if the counter cannot be read. The engine meets the same error itself.
    fn poll_finished(&self) -> u64 {
        let value = self.own.value().ok().filter(|&value| value != u64::MAX);
        value.unwrap_or(0)
    }

    /// True if the counter shows that the driver has finished all submissions that it has taken.
    pub(crate) fn is_idle(&self) -> bool {
        let last = self.last_submitted.load(Ordering::Relaxed);
        last == 0 || self.poll_finished() >= last
    }

    /// Returns a free buffer. Polls the counter if no buffer is free.
    fn free_buffer(&self) -> Option<vk::CommandBuffer> {
        {
            let mut state = self.state.lock();
            let free = state.free.pop();
            if free.is_some() || state.in_flight.is_empty() {
                return free;
            }
        }
        self.recycle(self.poll_finished());
        self.state.lock().free.pop()
    }

    /// Recycles the command buffers of the submissions up to `reached`.
    fn recycle(&self, reached: u64) {
        // `used` is dropped without the lock, because the drop may destroy semaphores, which calls
        // the driver.
        while let Some(used) = self.take_finished(reached) {
            // Submissions are counted in the queue's order, so this notes all earlier ones.
            self.note_finished(used.submission);
        }
    }

    fn take_finished(&self, reached: u64) -> Option<InFlight> {
        self.state.lock().take_finished(reached)
    }

    /// Destroys the semaphores whose deferred destruction `submission` allows.
    ///
    /// See [`DeferredDestroy`](crate::device::deferred_destroy::DeferredDestroy).
    fn note_finished(&self, submission: u64) {
        let unused = self.device.deferred_destroy().note_finished(submission);
        self.device.destroy_semaphores(unused);
    }

    /// Begins a command buffer for one submission.
    ///
    /// Only the caller records into it. Vulkan requires that only one thread at a time uses a
    /// command pool. This holds because the engine records one submission of a queue at a time.
    pub(crate) fn begin(&self) -> Result<vk::CommandBuffer> {
        let failed = |call| move |code| self.failed(call, code);
        let buffer = match self.free_buffer() {
            Some(buffer) => buffer,
            None => {
                let info = vk::CommandBufferAllocateInfo::default()
                    .command_pool(self.pool)
                    .level(vk::CommandBufferLevel::PRIMARY)
                    .command_buffer_count(1);
                // SAFETY: `info` is valid. The pool was created here, and one thread at a time uses
                // it, as said above.
                let made = unsafe { self.device.raw().allocate_command_buffers(&info) };
                made.map_err(failed("vkAllocateCommandBuffers"))?
                    .first()
                    .copied()
                    .unwrap_or_default()
            }
        };
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: a buffer of this pool, on the only thread that records for this queue. The buffer
        // is new, or its submission has finished, or it was reset. The pool's flags allow
        // `vkBeginCommandBuffer` to reset it.
        let begun = unsafe { self.device.raw().begin_command_buffer(buffer, &info) };
        if let Err(code) = begun {
            self.give_back(&[buffer]);
            return Err(failed("vkBeginCommandBuffer")(code));
        }
        Ok(buffer)
    }

    /// Returns buffers that were begun, and maybe ended, but never submitted.
    pub(crate) fn give_back(&self, buffers: &[vk::CommandBuffer]) {
        for &buffer in buffers {
            // SAFETY: a buffer of this pool that was never submitted, on the only thread that
            // records for this queue. The pool's flags allow resets of single buffers.
            let reset = unsafe {
                self.device
                    .raw()
                    .reset_command_buffer(buffer, vk::CommandBufferResetFlags::empty())
            };
            // A buffer that cannot be reset is freed with the pool.
            if reset.is_ok() {
                self.state.lock().free.push(buffer);
            }
        }
    }

    /// Notes that the driver has taken a submission, and keeps what the submission uses.
    #[inline]
    pub(crate) fn submitted(&self, used: &mut InFlight) {
        used.submission = self.device.deferred_destroy().count_submission();
        if used.submission > 0 {
            for semaphore in &used.semaphores {
                semaphore.note_use(used.submission);
            }
        }
        self.last_submitted.store(used.number, Ordering::Relaxed);
        if !used.buffers.is_empty() || !used.semaphores.is_empty() {
            let used = std::mem::take(used);
            self.state.lock().in_flight.push_back(used);
        }
    }
}

impl CommandPool {
    /// Waits for the work up to submission `last`. Returns false if the work may still execute.
    fn has_ended_by(&self, last: u64, deadline: Instant) -> bool {
        // An exit of the process waits for this guard. Once the exit has begun, no driver call is
        // made.
        let Some(_guard) = TeardownGuard::begin() else {
            return false;
        };
        let none = vk::SemaphoreWaitFlags::empty();
        let waited = self
            .device
            .wait_semaphores(none, &[self.own.raw()], &[last], deadline);
        // After an error the work may still execute, unless the device is lost.
        waited.unwrap_or_else(|_| self.device.is_lost())
    }
}

impl RunsInProcess for CommandPool {
    fn is_idle(&self) -> bool {
        self.device.is_lost() || self.is_idle()
    }
}

impl Drop for CommandPool {
    fn drop(&mut self) {
        let state = std::mem::take(&mut *self.state.lock());
        // The engine drops this once everything on the queue has finished. Work may still execute
        // only if the engine has given up the queue after an error. Then a wait with a time limit
        // follows.
        let last = *self.last_submitted.get_mut();
        let finished = self.device.is_lost()
            || self.own.value().is_ok_and(|value| value >= last)
            || self.has_ended_by(last, Instant::now() + DROP_TIMEOUT);
        if finished {
            for used in &state.in_flight {
                self.note_finished(used.submission);
            }
            // SAFETY: created on this device and destroyed only here. All submissions of its
            // buffers have finished, as the queue's own timeline shows, or the device is lost and
            // executes nothing any more.
            unsafe { self.device.raw().destroy_command_pool(self.pool, None) };
        } else {
            // Work that may still execute must not lose what it uses, nor the device. Leaking is
            // the only sound option.
            std::mem::forget((state, self.own.clone(), self.device.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use ash::vk::Handle as _;

    use super::*;

    fn submit(state: &mut State, number: u64) {
        let mut used = InFlight {
            number,
            ..InFlight::default()
        };
        used.add_buffer(vk::CommandBuffer::from_raw(number));
        state.in_flight.push_back(used);
    }

    #[test]
    fn submissions_are_taken_in_order_up_to_the_number_reached() {
        let mut state = State::default();
        (1..=3).for_each(|number| submit(&mut state, number));
        let taken = state.take_finished(2).map(|used| used.end());
        assert_eq!(taken, Some(2));
        assert_eq!(state.free, [1, 2].map(vk::CommandBuffer::from_raw));
        assert!(state.take_finished(2).is_none());
        assert_eq!(state.in_flight.len(), 1);
    }

    #[test]
    fn the_counter_is_polled_once_for_each_step_of_submissions_in_flight() {
        let mut state = State::default();
        let step = POLL_STEP as u64;
        let due: Vec<u64> = (1..=3 * step)
            .filter(|&number| {
                submit(&mut state, number);
                state.is_poll_due()
            })
            .collect();
        assert_eq!(due, [step, 2 * step, 3 * step]);
        // A finished submission begins a new step.
        submit(&mut state, 3 * step + 1);
        assert!(state.take_finished(1).is_some());
        for number in 2..=step {
            submit(&mut state, 3 * step + number);
            assert!(!state.is_poll_due());
        }
        submit(&mut state, 4 * step + 1);
        assert!(state.is_poll_due());
    }
}
