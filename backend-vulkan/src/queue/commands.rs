//! Command buffers of one queue, and what its submissions use, until they have finished.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ash::vk;
use smallvec::SmallVec;
use syncline_core::backend::InUse;
use syncline_core::{Object, Result};

use crate::device::open::Inner;
use crate::driver::lock::lock;
use crate::timeline::port::Semaphore;

/// How long a dropped queue waits for work that its engine has given up on.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// A `VkCommandPool` whose buffers are used again once the queue's own timeline has passed them.
pub(crate) struct Commands {
    pub(crate) device: Arc<Inner>,
    /// The queue's name.
    pub(crate) object: Object,
    pub(crate) family: u32,
    pool: vk::CommandPool,
    /// The queue's own timeline.
    pub(crate) own: Arc<Semaphore>,
    /// A timeline may be dropped while its signal is in flight; its semaphore may not.
    semaphores: InUse<Semaphore>,
    /// The last submission that the driver has taken.
    last: AtomicU64,
    /// Copies of what the state says, to be read without its lock: the number of the oldest in flight, `NONE` without
    /// any, and whether they are so many that the counter is to be read.
    oldest: AtomicU64,
    crowded: AtomicBool,
    state: Mutex<State>,
}

/// In the place of a submission's number.
const NONE: u64 = u64::MAX;

#[derive(Default)]
struct State {
    free: Vec<vk::CommandBuffer>,
    in_flight: VecDeque<InFlight>,
    /// With so many in flight the counter is read to find out which have finished.
    look_at: usize,
}

/// So many more are in flight each time that the counter is read on their account: while the device writes it, that costs
/// about as much as all else that is done here for a submission.
const LOOK: usize = 32;

/// What one submission uses.
#[derive(Default)]
pub(crate) struct InFlight {
    pub(crate) number: u64,
    /// The driver's queue's number for it, see [`DeferredDestroy::count_submission`](crate::device::deferred_destroy::DeferredDestroy::count_submission).
    pub(crate) submission: u64,
    pub(crate) buffers: SmallVec<[vk::CommandBuffer; 2]>,
    /// Those that it uses, if `submission` is of interest.
    pub(crate) semaphores: SmallVec<[Arc<Semaphore>; 2]>,
}

impl InFlight {
    /// As new, mostly with nothing to be dropped.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.number, self.submission) = (0, 0);
        self.buffers.clear();
        self.semaphores.clear();
    }
}

impl Commands {
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
        // SAFETY: `info` is valid, and the device was made with queues of this family.
        let pool = unsafe { device.raw().create_command_pool(&info, None) }
            .map_err(|code| device.failed(object, "vkCreateCommandPool", code))?;
        Ok(Self {
            device: device.clone(),
            object: object.clone(),
            family,
            pool,
            own,
            semaphores: InUse::default(),
            last: AtomicU64::new(0),
            oldest: AtomicU64::new(NONE),
            crowded: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// Keeps the semaphores of a submission until it has finished; those up to `finished` have.
    #[inline]
    pub(crate) fn keep(&self, semaphores: &[&Arc<Semaphore>], used: &mut InFlight, finished: u64) {
        let semaphores = semaphores.iter().copied();
        if semaphores.len() > 0 {
            self.semaphores
                .add(semaphores.clone(), used.number, finished);
        }
        if self.device.deferred_destroy.is_needed() {
            used.semaphores.extend(semaphores.cloned());
        }
    }

    /// Submissions up to `finished` have finished; others may be made meanwhile.
    pub(crate) fn rest(&self, finished: u64) {
        self.recycle(finished);
        self.semaphores.let_go(finished);
    }

    /// Takes back what finished submissions used: those up to `finished`, and if there are many, as far as the counter
    /// tells.
    #[inline]
    pub(crate) fn recycle(&self, finished: u64) {
        let oldest = self.oldest.load(Ordering::Relaxed);
        if oldest == NONE {
            return;
        }
        let crowded = self.crowded.load(Ordering::Relaxed);
        if finished >= oldest {
            self.take_back(finished);
        } else if crowded {
            self.take_back(self.finished());
        }
    }

    /// How many submissions have finished. A counter that cannot be read frees nothing; the engine meets the same error
    /// by itself.
    fn finished(&self) -> u64 {
        let value = self.own.value().ok().filter(|&value| value != u64::MAX);
        value.unwrap_or(0)
    }

    /// A buffer that is free now: before another one is made, the counter is read.
    fn free_buffer(&self) -> Option<vk::CommandBuffer> {
        {
            let mut state = lock(&self.state);
            let free = state.free.pop();
            if free.is_some() || state.in_flight.is_empty() {
                return free;
            }
        }
        self.take_back(self.finished());
        lock(&self.state).free.pop()
    }

    /// Takes back what the submissions up to `reached` used, a few at a time, as many as need no allocation.
    fn take_back(&self, reached: u64) {
        loop {
            // Their semaphores may be destroyed with them, which is a call of the driver's: not under the lock.
            let mut done: SmallVec<[InFlight; 4]> = SmallVec::new();
            {
                let mut guard = lock(&self.state);
                let state = &mut *guard;
                while done.len() < done.inline_size()
                    && let Some(front) = state.in_flight.front()
                    && front.number <= reached
                    && let Some(mut used) = state.in_flight.pop_front()
                {
                    state.free.extend(std::mem::take(&mut used.buffers));
                    done.push(used);
                }
                state.look_at = state.in_flight.len() + LOOK;
                self.note_in_flight(state);
            }
            self.note_finished(done.iter());
            if done.len() < done.inline_size() {
                return;
            }
        }
    }

    /// To be called with the lock whenever submissions have come or gone.
    fn note_in_flight(&self, state: &State) {
        let oldest = state.in_flight.front().map_or(NONE, |used| used.number);
        self.oldest.store(oldest, Ordering::Relaxed);
        let crowded = state.in_flight.len() >= state.look_at.max(LOOK);
        self.crowded.store(crowded, Ordering::Relaxed);
    }

    /// Those that wait in [`DeferredDestroy`](crate::device::deferred_destroy::DeferredDestroy) for these submissions can go.
    fn note_finished<'u>(&self, done: impl Iterator<Item = &'u InFlight>) {
        let last = done.map(|used| used.submission).max();
        let unused = self
            .device
            .deferred_destroy
            .note_finished(last.unwrap_or(0));
        self.device.destroy_semaphores(unused);
    }

    /// A buffer that is begun, for one submission.
    ///
    /// Recording into it is the caller's alone: the engine records one submission of a queue at a
    /// time, which is what keeps the pool, as Vulkan demands, on one thread at a time.
    pub(crate) fn begin(&self) -> Result<vk::CommandBuffer> {
        let failed = |call| move |code| self.device.failed(&self.object, call, code);
        let buffer = match self.free_buffer() {
            Some(buffer) => buffer,
            None => {
                let info = vk::CommandBufferAllocateInfo::default()
                    .command_pool(self.pool)
                    .level(vk::CommandBufferLevel::PRIMARY)
                    .command_buffer_count(1);
                // SAFETY: `info` is valid; the pool is ours and used by one thread at a time, see above.
                let made = unsafe { self.device.raw().allocate_command_buffers(&info) };
                made.map_err(failed("vkAllocateCommandBuffers"))?
                    .first()
                    .copied()
                    .unwrap_or_default()
            }
        };
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: a buffer of our pool, on the one thread that records for this queue. It is fresh, or its submission has
        // finished, or it was reset; and the pool lets a begin reset it.
        let begun = unsafe { self.device.raw().begin_command_buffer(buffer, &info) };
        if let Err(code) = begun {
            self.give_back(&[buffer]);
            return Err(failed("vkBeginCommandBuffer")(code));
        }
        Ok(buffer)
    }

    /// Takes back buffers, begun or ended, that were never submitted.
    pub(crate) fn give_back(&self, buffers: &[vk::CommandBuffer]) {
        for &buffer in buffers {
            // SAFETY: a buffer of our pool that was never submitted, on the one thread that records for this queue; the pool
            // allows the reset of single buffers.
            let reset = unsafe {
                self.device
                    .raw()
                    .reset_command_buffer(buffer, vk::CommandBufferResetFlags::empty())
            };
            // One that cannot be reset is left to the pool's end.
            if reset.is_ok() {
                lock(&self.state).free.push(buffer);
            }
        }
    }

    /// Notes what a submission that the driver now has uses.
    #[inline]
    pub(crate) fn submitted(&self, used: &mut InFlight) {
        used.submission = self.device.deferred_destroy.count_submission();
        if used.submission > 0 {
            for semaphore in &used.semaphores {
                semaphore.note_use(used.submission);
            }
        }
        self.last.store(used.number, Ordering::Relaxed);
        if !used.buffers.is_empty() || !used.semaphores.is_empty() {
            let mut state = lock(&self.state);
            state.in_flight.push_back(std::mem::take(used));
            self.note_in_flight(&state);
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        let state = std::mem::take(&mut *lock(&self.state));
        // The engine drops a queue's half once everything on it has finished. Only where it has given
        // the queue up after an error may work still run, and then a wait in bounded time must do.
        let last = *self.last.get_mut();
        let finished = self.device.is_lost()
            || self.own.value().is_ok_and(|value| value >= last)
            || self
                .device
                .wait_semaphores(
                    vk::SemaphoreWaitFlags::empty(),
                    &[self.own.raw()],
                    &[last],
                    Instant::now() + LAST_WAIT,
                )
                // Only a lost device uses nothing any more. Another error says nothing about the work.
                .unwrap_or_else(|_| self.device.is_lost());
        if finished {
            self.note_finished(state.in_flight.iter());
            // SAFETY: made on this device and destroyed here alone. All submissions of its buffers have finished, as the
            // queue's own timeline shows, or the device is lost and runs nothing any more.
            unsafe { self.device.raw().destroy_command_pool(self.pool, None) };
        } else {
            // Work that may still run must not lose what it uses, nor the device: leaking is the only sound end.
            let semaphores = std::mem::take(&mut self.semaphores);
            std::mem::forget((state, semaphores, self.own.clone(), self.device.clone()));
        }
    }
}
