//! Which thread hands a queue's submissions to the driver.

use crate::base::sync::ThreadId;

/// Which thread drives a queue, and whether it must check again.
///
/// Part of the queue's state, under its lock.
#[derive(Debug, Default)]
pub(super) struct Driving {
    thread: Option<ThreadId>,
    /// Another thread has made a change that the driving thread may not have seen.
    must_check: bool,
}

impl Driving {
    /// True if `thread` drives.
    pub(super) fn is_by(&self, thread: ThreadId) -> bool {
        self.thread == Some(thread)
    }

    /// True if no thread drives.
    pub(super) const fn is_free(&self) -> bool {
        self.thread.is_none()
    }

    /// Makes `thread` the driving thread, or clears its request to check again.
    pub(super) const fn take(&mut self, thread: ThreadId) {
        self.thread = Some(thread);
        self.must_check = false;
    }

    /// Asks the driving thread to check again. False if no thread drives.
    pub(super) const fn request_check(&mut self) -> bool {
        self.must_check = self.thread.is_some();
        self.must_check
    }

    /// Stops driving.
    pub(super) const fn stop(&mut self) {
        self.thread = None;
        self.must_check = false;
    }

    /// Stops driving, unless the thread must check again. Returns false then.
    pub(super) const fn try_stop(&mut self) -> bool {
        if self.must_check {
            return false;
        }
        self.stop();
        true
    }
}
