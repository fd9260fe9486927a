//! Semaphores that a driver uses for a moment longer than it should.
//!
//! Mesa emulates timelines for lavapipe: the thread behind its one queue signals what a submission signals, and only
//! then lets go of what that submission waited for. A semaphore that is destroyed in between, which Vulkan allows
//! (VUID-vkDestroySemaphore-semaphore-05149), is written to after it has been freed; seen in 22.3.6, as a crash in
//! `vk_sync_timeline_point_release` once in some hundred rounds. The thread does one submission after the other, so
//! it has let go once a later one has signalled.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk;

use crate::driver::error::lock;

/// The semaphores of one device that are still to be destroyed.
#[derive(Default)]
pub(crate) struct Late {
    /// The device has such a driver. If not, nothing is counted or kept.
    applies: bool,
    /// The last submission that the driver's queue has taken.
    submitted: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last submission known to have signalled.
    finished: u64,
    /// With the last submission that used each.
    kept: Vec<(u64, vk::Semaphore)>,
}

impl Late {
    pub(crate) fn new(applies: bool) -> Self {
        Self {
            applies,
            ..Self::default()
        }
    }

    /// True if submissions are counted.
    pub(crate) const fn applies(&self) -> bool {
        self.applies
    }

    /// The number, from 1, of the submission that the driver has just taken; the caller holds its queue's lock. 0 if
    /// that is of no interest.
    pub(crate) fn count(&self) -> u64 {
        if self.applies {
            self.submitted.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            0
        }
    }

    /// That submission has signalled. Gives back what can be destroyed now.
    pub(crate) fn finished(&self, submission: u64) -> Vec<vk::Semaphore> {
        if submission == 0 {
            return Vec::new();
        }
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.finished = state.finished.max(submission);
        let free = |(used, _): &mut (u64, vk::Semaphore)| *used < state.finished;
        state
            .kept
            .extract_if(.., free)
            .map(|(_, raw)| raw)
            .collect()
    }

    /// Keeps a semaphore that `submission` was the last to use. False if it can be destroyed at once.
    pub(crate) fn keep(&self, submission: u64, semaphore: vk::Semaphore) -> bool {
        if submission == 0 {
            return false;
        }
        let mut state = lock(&self.state);
        let keeps = submission >= state.finished;
        if keeps {
            state.kept.push((submission, semaphore));
        }
        keeps
    }

    /// What is left once the device has nothing more to do.
    pub(crate) fn take(&self) -> Vec<vk::Semaphore> {
        let mut state = lock(&self.state);
        state.kept.drain(..).map(|(_, raw)| raw).collect()
    }
}

#[cfg(test)]
mod tests {
    use ash::vk::Handle as _;

    use super::*;

    #[test]
    fn a_semaphore_goes_once_a_later_submission_has_signalled() {
        let late = Late::new(true);
        let semaphore = vk::Semaphore::from_raw;
        assert_eq!((late.count(), late.count(), late.count()), (1, 2, 3));
        assert!(!late.keep(0, semaphore(9)), "never used");
        assert!(late.keep(1, semaphore(10)));
        assert!(late.keep(2, semaphore(20)));
        assert_eq!(late.finished(1), []);
        assert_eq!(late.finished(2), [semaphore(10)]);
        assert!(!late.keep(1, semaphore(11)));
        assert_eq!(late.take(), [semaphore(20)]);
        let sound = Late::new(false);
        assert!(!sound.keep(sound.count(), semaphore(1)));
    }
}
