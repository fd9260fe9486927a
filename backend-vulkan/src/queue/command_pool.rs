//! The command buffers of one queue, and the semaphores of its submissions in flight.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::collections::VecDeque;
use std::sync::Arc;

use ash::vk;
use smallvec::SmallVec;
use syncline_core::Result;
use syncline_core::backend::kit::InUse;
use syncline_core::backend::{NativePoint, Unused};

use crate::queue::context::QueueContext;
use crate::timeline::semaphore::Semaphore;

/// A `VkCommandPool` whose buffers are reused once the queue's own timeline has passed them.
///
/// Vulkan requires that one thread at a time uses a command pool and its buffers. One queue's state
/// has the pool, and the engine gives that state to one thread at a time.
pub(crate) struct CommandPool {
    queue: Arc<QueueContext>,
    /// Made with the first command buffer.
    pool: Option<vk::CommandPool>,
    /// What the submission that is being recorded uses.
    current: InFlight,
    buffers: Buffers,
    /// The timeline semaphores of submissions in flight, whose timelines may already be dropped.
    semaphores: InUse<Semaphore>,
}

/// The free command buffers, and what submissions in flight use.
#[derive(Default)]
struct Buffers {
    free: Vec<vk::CommandBuffer>,
    in_flight: VecDeque<InFlight>,
    /// The number in flight that the last recycling or poll left.
    left: usize,
}

impl Buffers {
    /// True if a submission up to number `reached` is in flight, as far as the pool knows.
    #[inline]
    fn has_finished(&self, reached: u64) -> bool {
        let first = self.in_flight.front();
        first.is_some_and(|used| used.number <= reached)
    }

    /// True if the counter should be polled. Then false until [`POLL_STEP`] more are in flight.
    #[inline]
    fn is_poll_due(&mut self) -> bool {
        let due = self.in_flight.len() >= self.left + POLL_STEP;
        if due {
            self.left = self.in_flight.len();
        }
        due
    }

    /// Recycles the command buffers of the submissions up to `reached`.
    ///
    /// Returns the number of the last of them for deferred destruction, or 0.
    fn recycle(&mut self, reached: u64) -> u64 {
        let mut last = 0;
        while self.has_finished(reached)
            && let Some(used) = self.in_flight.pop_front()
        {
            self.free.extend(used.buffers);
            last = used.submission;
        }
        self.left = self.in_flight.len();
        last
    }
}

/// The number of further submissions in flight after which the counter is polled again.
///
/// While the device writes the counter, a poll costs about as much as everything else that this
/// file does for a submission.
const POLL_STEP: usize = 32;

/// The command buffers and the numbers of one submission.
#[derive(Default)]
struct InFlight {
    /// The value of the queue's own timeline at which the submission ends.
    number: u64,
    /// The number from
    /// [`DeferredDestroy::count_submission`](crate::device::deferred_destroy::DeferredDestroy::count_submission),
    /// or 0.
    submission: u64,
    buffers: SmallVec<[vk::CommandBuffer; 2]>,
}

impl CommandPool {
    pub(crate) fn new(queue: &Arc<QueueContext>) -> Self {
        Self {
            queue: queue.clone(),
            pool: None,
            current: InFlight::default(),
            buffers: Buffers::default(),
            semaphores: InUse::default(),
        }
    }

    #[inline]
    pub(crate) const fn queue(&self) -> &Arc<QueueContext> {
        &self.queue
    }

    /// The number of the submission, which is its value on the queue's own timeline.
    #[inline]
    pub(crate) const fn number(&self) -> u64 {
        self.current.number
    }

    /// Begins the submission `number`, and releases what the submissions up to `finished` used.
    ///
    /// If many are in flight, polls the counter for the number of finished ones.
    #[inline]
    pub(crate) fn begin_submission(&mut self, number: u64, finished: u64) {
        self.current.number = number;
        if self.buffers.has_finished(finished) {
            self.recycle(finished);
        } else if self.buffers.is_poll_due() {
            self.recycle(self.queue.poll_finished());
        }
    }

    /// Returns the semaphore of `point`, and keeps it until the submission has finished.
    ///
    /// Submissions up to `finished` have finished already.
    ///
    /// # Errors
    /// Same errors as [`QueueContext::semaphore`].
    #[inline]
    pub(crate) fn use_semaphore(
        &mut self,
        point: NativePoint<'_>,
        finished: u64,
    ) -> Result<vk::Semaphore> {
        let semaphore = self.queue.semaphore(point)?;
        let number = self.current.number;
        self.semaphores.add([semaphore], number, finished);
        Ok(semaphore.raw())
    }

    /// Moves semaphores that no submission after `reached` uses to `unused`.
    pub(crate) fn take_unused(&mut self, reached: u64, unused: &mut Unused) {
        self.semaphores.take_unused(reached, unused);
    }

    /// Recycles what the submissions up to `reached` used.
    fn recycle(&mut self, reached: u64) {
        // Submissions are counted in the queue's order, so this notes all earlier ones.
        let last = self.buffers.recycle(reached);
        self.note_finished(last);
    }

    /// Destroys the semaphores whose deferred destruction `submission` allows.
    ///
    /// See [`DeferredDestroy`](crate::device::deferred_destroy::DeferredDestroy).
    fn note_finished(&self, submission: u64) {
        let device = self.queue.device();
        let unused = device.deferred_destroy().note_finished(submission);
        device.destroy_semaphores(unused);
    }

    /// Begins a command buffer for the submission.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn begin(&mut self) -> Result<vk::CommandBuffer> {
        let buffer = match self.free_buffer() {
            Some(buffer) => buffer,
            None => self.allocate()?,
        };
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        let device = self.queue.device();
        // SAFETY: a buffer of this pool, on the only thread that uses the pool. The buffer is new,
        // or its submission has finished, or it was reset. The pool's flags allow
        // `vkBeginCommandBuffer` to reset it.
        let begun = unsafe { device.raw().begin_command_buffer(buffer, &info) };
        if let Err(code) = begun {
            self.give_back(buffer);
            return Err(self.queue.failed("vkBeginCommandBuffer", code));
        }
        self.current.buffers.push(buffer);
        Ok(buffer)
    }

    /// Returns a free buffer. Polls the counter if no buffer is free.
    fn free_buffer(&mut self) -> Option<vk::CommandBuffer> {
        if self.buffers.free.is_empty() && !self.buffers.in_flight.is_empty() {
            self.recycle(self.queue.poll_finished());
        }
        self.buffers.free.pop()
    }

    fn allocate(&mut self) -> Result<vk::CommandBuffer> {
        let queue = &self.queue;
        let device = queue.device().raw();
        let pool = match self.pool {
            Some(pool) => pool,
            None => {
                let info = vk::CommandPoolCreateInfo::default()
                    .queue_family_index(queue.family())
                    .flags(
                        vk::CommandPoolCreateFlags::TRANSIENT
                            | vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER,
                    );
                // SAFETY: `info` is valid, and the device was created with queues of this family.
                let made = unsafe { device.create_command_pool(&info, None) };
                let made = made.map_err(|code| queue.failed("vkCreateCommandPool", code));
                *self.pool.insert(made?)
            }
        };
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: `info` is valid. The pool was created here, and one thread at a time uses it.
        let made = unsafe { device.allocate_command_buffers(&info) };
        let made = made.map_err(|code| queue.failed("vkAllocateCommandBuffers", code))?;
        Ok(made.first().copied().unwrap_or_default())
    }

    /// Returns a buffer that was begun, and maybe ended, but never submitted.
    fn give_back(&mut self, buffer: vk::CommandBuffer) {
        let device = self.queue.device().raw();
        let flags = vk::CommandBufferResetFlags::empty();
        // SAFETY: a buffer of this pool that was never submitted, on the only thread that uses the
        // pool. The pool's flags allow resets of single buffers.
        let reset = unsafe { device.reset_command_buffer(buffer, flags) };
        // A buffer that cannot be reset is freed with the pool.
        if reset.is_ok() {
            self.buffers.free.push(buffer);
        }
    }

    /// Discards the submission. The driver has none of its command buffers.
    pub(crate) fn discard(&mut self) {
        for buffer in std::mem::take(&mut self.current).buffers {
            self.give_back(buffer);
        }
    }

    /// Notes that the driver has taken the submission, and keeps what it uses until it has
    /// finished.
    #[inline]
    pub(crate) fn submitted(&mut self) {
        let used = &mut self.current;
        used.submission = self.queue.device().deferred_destroy().count_submission();
        if used.submission > 0 {
            for semaphore in self.semaphores.used_by(used.number) {
                semaphore.note_use(used.submission);
            }
        }
        self.queue.note_submitted(used.number);
        if !used.buffers.is_empty() || used.submission > 0 {
            self.buffers.in_flight.push_back(std::mem::take(used));
        }
    }
}

impl Drop for CommandPool {
    fn drop(&mut self) {
        let inner = self.queue.device().clone();
        if let Some(device) = inner.for_destroy()
            && self.queue.has_ended()
        {
            self.recycle(u64::MAX);
            if let Some(pool) = self.pool {
                // SAFETY: created on this device and destroyed only here. All submissions of its
                // buffers have finished, as the queue's own timeline shows, or the device is lost
                // and executes nothing any more.
                unsafe { device.destroy_command_pool(pool, None) };
            }
        } else {
            // Work that may still execute must not lose what it uses, nor the device. Leaking is
            // the only sound option.
            let buffers = std::mem::take(&mut self.buffers);
            let semaphores = std::mem::take(&mut self.semaphores);
            std::mem::forget((buffers, semaphores, self.queue.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use ash::vk::Handle as _;

    use super::*;

    fn submit(buffers: &mut Buffers, number: u64) {
        let mut used = InFlight {
            number,
            submission: 10 + number,
            ..InFlight::default()
        };
        used.buffers.push(vk::CommandBuffer::from_raw(number));
        buffers.in_flight.push_back(used);
    }

    #[test]
    fn submissions_are_recycled_in_order_up_to_the_number_reached() {
        let mut buffers = Buffers::default();
        (1..=3).for_each(|number| submit(&mut buffers, number));
        assert!(!buffers.has_finished(0) && buffers.has_finished(2));
        assert_eq!(buffers.recycle(2), 12);
        assert_eq!(buffers.free, [1, 2].map(vk::CommandBuffer::from_raw));
        assert!(!buffers.has_finished(2));
        assert_eq!(buffers.recycle(2), 0);
        assert_eq!(buffers.in_flight.len(), 1);
    }

    #[test]
    fn the_counter_is_polled_once_for_each_step_of_submissions_in_flight() {
        let mut buffers = Buffers::default();
        let step = POLL_STEP as u64;
        let due: Vec<u64> = (1..=3 * step)
            .filter(|&number| {
                submit(&mut buffers, number);
                buffers.is_poll_due()
            })
            .collect();
        assert_eq!(due, [step, 2 * step, 3 * step]);
        // A finished submission begins a new step.
        submit(&mut buffers, 3 * step + 1);
        buffers.recycle(1);
        for number in 2..=step {
            submit(&mut buffers, 3 * step + number);
            assert!(!buffers.is_poll_due());
        }
        submit(&mut buffers, 4 * step + 1);
        assert!(buffers.is_poll_due());
    }
}
