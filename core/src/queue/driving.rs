//! Which thread hands a queue's submissions to the driver.

use crate::base::sync::ThreadId;

/// The thread that drives a queue, and whether it has to look again. A field of the queue's state, under its lock.
#[derive(Debug, Default)]
pub(super) struct Driving {
    thread: Option<ThreadId>,
    /// Another thread has changed something that the driving thread may not have seen.
    look_again: bool,
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

    /// `thread` begins to drive, or goes on with it and is about to look at everything again.
    pub(super) const fn take(&mut self, thread: ThreadId) {
        self.thread = Some(thread);
        self.look_again = false;
    }

    /// Asks the driving thread to look again. False if no thread drives.
    pub(super) const fn ask_to_look_again(&mut self) -> bool {
        self.look_again = self.thread.is_some();
        self.look_again
    }

    /// The driving thread stops.
    pub(super) const fn stop(&mut self) {
        self.thread = None;
        self.look_again = false;
    }

    /// The driving thread stops, unless it has to look again: then this is false.
    pub(super) const fn try_stop(&mut self) -> bool {
        if self.look_again {
            return false;
        }
        self.stop();
        true
    }
}
