//! Deferred destruction of semaphores that a driver still uses after their last signal.
//!
//! Mesa emulates timeline semaphores for lavapipe. The thread behind lavapipe's one queue signals
//! the semaphores of a submission first, and releases the semaphores that it waited for after that.
//! An application may destroy a semaphore in between (VUID-vkDestroySemaphore-semaphore-05149). The
//! thread then writes to freed memory. In Mesa 22.3.6, `vk_sync_timeline_point_release` crashed
//! once in some hundred rounds. The thread executes submissions in order, so it has released a
//! semaphore once a later submission has signalled.

use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk;
use syncline_core::backend::kit::Mutex;

/// The semaphores of one device whose destruction is deferred.
#[derive(Default)]
pub(crate) struct DeferredDestroy {
    /// True if the driver needs deferred destruction. If false, nothing is counted or deferred.
    is_needed: bool,
    /// Number of the last submission that the driver has taken.
    submitted: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of the last submission that is known to have signalled.
    finished: u64,
    /// Each deferred semaphore with the number of the last submission that used it.
    deferred: Vec<(u64, vk::Semaphore)>,
}

impl DeferredDestroy {
    pub(crate) fn new(is_needed: bool) -> Self {
        Self {
            is_needed,
            ..Self::default()
        }
    }

    /// Numbers the submission that the driver has just taken, from 1.
    ///
    /// Returns 0 if the driver needs no deferred destruction. The caller holds the gate of the
    /// `VkQueue`, or the driver has taken the submission earlier. The number may be too high then,
    /// and its semaphores are destroyed later.
    pub(crate) fn count_submission(&self) -> u64 {
        if self.is_needed {
            self.submitted.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            0
        }
    }

    /// Notes that `submission` has signalled. Returns the semaphores to destroy now.
    pub(crate) fn note_finished(&self, submission: u64) -> Vec<vk::Semaphore> {
        if submission == 0 {
            return Vec::new();
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.finished = state.finished.max(submission);
        let is_free = |(last_use, _): &mut (u64, vk::Semaphore)| *last_use < state.finished;
        state
            .deferred
            .extract_if(.., is_free)
            .map(|(_, raw)| raw)
            .collect()
    }

    /// Defers the destruction of a semaphore that `submission` was the last to use.
    ///
    /// Returns false if the caller can destroy it at once.
    pub(crate) fn defer(&self, submission: u64, semaphore: vk::Semaphore) -> bool {
        if submission == 0 {
            return false;
        }
        let mut state = self.state.lock();
        let defers = submission >= state.finished;
        if defers {
            state.deferred.push((submission, semaphore));
        }
        defers
    }

    /// The number of deferred semaphores.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().deferred.len()
    }

    /// Removes and returns all deferred semaphores. Called when the device is idle for good.
    pub(crate) fn take_all(&self) -> Vec<vk::Semaphore> {
        let mut state = self.state.lock();
        state.deferred.drain(..).map(|(_, raw)| raw).collect()
    }
}

#[cfg(test)]
mod tests {
    use ash::vk::Handle as _;

    use super::*;

    #[test]
    fn a_semaphore_is_released_once_a_later_submission_has_signalled() {
        let destroys = DeferredDestroy::new(true);
        let semaphore = vk::Semaphore::from_raw;
        for number in 1..=3 {
            assert_eq!(destroys.count_submission(), number);
        }
        assert!(!destroys.defer(0, semaphore(9)), "never used");
        assert!(destroys.defer(1, semaphore(10)));
        assert!(destroys.defer(2, semaphore(20)));
        assert_eq!(destroys.note_finished(1), []);
        assert_eq!(destroys.note_finished(2), [semaphore(10)]);
        assert!(!destroys.defer(1, semaphore(11)));
        assert_eq!(destroys.take_all(), [semaphore(20)]);
        let unneeded = DeferredDestroy::new(false);
        assert!(!unneeded.defer(unneeded.count_submission(), semaphore(1)));
    }
}
