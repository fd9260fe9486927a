//! The floor on Vulkan: a timeline is a semaphore with words for claimed and pending values.
//!
//! A submission that would have to be held is refused before it claims anything. No row with this
//! floor holds submissions, and the check costs the same. There is no application's work (Q6): an
//! engine records its commands before it takes the queue's lock.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ash::vk;
use smallvec::SmallVec;
use syncline::vulkan::QueueGuard;

use super::{Budget, Claims, lock, number};
use crate::raw::vulkan::{Calls, WAITS};
use crate::side::{Outcome, Stop};

/// A timeline over a semaphore of a [`Hand`](crate::raw::vulkan::Hand), which outlives it.
///
/// An engine destroys semaphores a few frames later, which costs a submission nothing.
pub(crate) struct Timeline {
    semaphore: vk::Semaphore,
    claims: Claims,
    /// The highest value whose signal was submitted.
    pending: AtomicU64,
    /// The queue that signals `pending`; 0 if it is none of these queues.
    ///
    /// Written before `pending`, by the thread that has claimed the value.
    by: AtomicUsize,
    /// Set when a submission with a claimed value was refused. The value never comes (E1).
    failed: AtomicBool,
}

impl Timeline {
    pub(crate) fn new(semaphore: vk::Semaphore) -> Self {
        Self {
            semaphore,
            claims: Claims::default(),
            pending: AtomicU64::new(0),
            by: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// # Errors
    /// If the timeline has failed. (An engine accepts the submission and fails its signals. The
    /// check costs the same.)
    #[inline]
    fn require_sound(&self) -> Outcome<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Stop::Failed("the timeline has failed".into()));
        }
        Ok(())
    }

    /// Claims `value` if all claimed values are pending. Returns the highest of them and its queue.
    #[inline]
    pub(crate) fn claim(&self, value: u64) -> Outcome<(u64, usize)> {
        self.require_sound()?;
        let before = self.pending.load(Ordering::Acquire);
        // If `pending` grows in between, the claim is refused. So `by` belongs to `before`.
        let by = self.by.load(Ordering::Relaxed);
        self.claims.claim_above(before, value)?;
        Ok((before, by))
    }

    #[inline]
    pub(crate) fn submitted(&self, value: u64, by: usize) {
        self.by.store(by, Ordering::Relaxed);
        self.pending.store(value, Ordering::Release);
    }

    /// Claims `value` for a signal that was submitted elsewhere.
    pub(crate) fn promise(&self, value: u64) -> Outcome<()> {
        self.claim(value)?;
        self.submitted(value, 0);
        Ok(())
    }
}

/// A queue with its position: a semaphore that each submission signals.
pub(crate) struct Queue {
    calls: Calls,
    number: usize,
    ended: vk::Semaphore,
    /// Shared by all queues over the same `VkQueue`.
    budget: Arc<Budget>,
    /// Locked by the submitting thread.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of submissions, and number of those known to have finished.
    position: u64,
    finished: u64,
}

impl Drop for Queue {
    fn drop(&mut self) {
        let state = lock(&self.state);
        self.budget.give_back(state.position - state.finished);
    }
}

impl Queue {
    /// `ended` is at 0 and only this queue uses it. All queues of a `VkQueue` share `budget`.
    pub(crate) fn new(calls: &Calls, ended: vk::Semaphore, budget: &Arc<Budget>) -> Self {
        Self {
            calls: calls.clone(),
            number: number(),
            ended,
            budget: budget.clone(),
            state: Mutex::default(),
        }
    }

    /// Asks the driver what has finished, because too much may be in flight.
    #[cold]
    fn look(&self, state: &mut State) -> Outcome<()> {
        let finished = self.calls.value(self.ended)?;
        self.budget.give_back(finished - state.finished);
        state.finished = finished;
        Ok(())
    }

    /// Number of submissions.
    pub(crate) fn position(&self) -> u64 {
        lock(&self.state).position
    }

    /// Submits to the `VkQueue`, which the caller has locked.
    ///
    /// # Errors
    /// A value that cannot be claimed, or a signal that is not pending; nothing has changed then.
    /// Errors of the driver.
    pub(crate) fn submit(
        &self,
        queue: &QueueGuard,
        waits: &[(&Timeline, u64)],
        signals: &[(&Timeline, u64)],
    ) -> Outcome<()> {
        let mut state = lock(&self.state);
        let (mut awaited, mut awaited_values) = (
            SmallVec::<[vk::Semaphore; WAITS]>::new(),
            SmallVec::<[u64; WAITS]>::new(),
        );
        for (timeline, value) in waits {
            timeline.require_sound()?;
            if timeline.pending.load(Ordering::Acquire) < *value {
                return Err(Stop::Failed(format!("{value} is not pending")));
            }
            awaited.push(timeline.semaphore);
            awaited_values.push(*value);
        }
        let mut claimed = SmallVec::<[u64; 8]>::new();
        let withdraw = |claimed: &[u64]| {
            for ((timeline, value), before) in signals.iter().zip(claimed) {
                if !timeline.claims.withdraw(*before, *value) {
                    // Another thread has claimed a higher value and would wait for this one
                    // forever.
                    timeline.failed.store(true, Ordering::Release);
                }
            }
        };
        let (mut signalled, mut values) = (
            SmallVec::<[vk::Semaphore; 9]>::new(),
            SmallVec::<[u64; 9]>::new(),
        );
        for (timeline, value) in signals {
            let (before, by) = match timeline.claim(*value) {
                Ok(before) => before,
                Err(stop) => {
                    withdraw(&claimed);
                    return Err(stop);
                }
            };
            claimed.push(before);
            // Signals of one timeline complete in order, also from different queues.
            if before > 0 && by != self.number {
                awaited.push(timeline.semaphore);
                awaited_values.push(before);
            }
            signalled.push(timeline.semaphore);
            values.push(*value);
        }
        signalled.push(self.ended);
        values.push(state.position + 1);
        if awaited.len() > WAITS {
            withdraw(&claimed);
            return Err(Stop::Failed(format!("{} waits", awaited.len())));
        }
        let waits = (awaited.as_slice(), awaited_values.as_slice());
        let submitted = self
            .calls
            .submit(queue, waits, (signalled.as_slice(), values.as_slice()));
        if let Err(stop) = submitted {
            withdraw(&claimed);
            return Err(stop);
        }
        state.position += 1;
        for (timeline, value) in signals {
            timeline.submitted(*value, self.number);
        }
        if self.budget.take(1) {
            self.look(&mut state)?;
        }
        Ok(())
    }
}

const _: () = {
    const fn of_any_thread<T: Send + Sync>() {}
    of_any_thread::<Timeline>();
    of_any_thread::<Queue>();
};
