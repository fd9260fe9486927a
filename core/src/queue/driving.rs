//! Which thread hands a queue's submissions to the driver.

use crate::base::sync::ThreadId;
use crate::driver::enqueue::Enqueue;

/// The right to hand a queue's submissions to the driver, with what the backend needs for that.
///
/// A queue has one. The thread that has it drives the queue.
#[must_use = "no thread could drive the queue any more"]
pub(super) struct Drive<E: Enqueue>(Box<E::State>);

impl<E: Enqueue> Drive<E> {
    /// What the backend needs to record and to flush.
    #[inline]
    pub(super) fn backend(&mut self) -> &mut E::State {
        &mut self.0
    }
}

/// Which thread drives a queue, and whether it must check again.
///
/// Part of the queue's state, under its lock.
pub(super) struct Driving<E: Enqueue> {
    /// `None` while a thread drives.
    idle: Option<Drive<E>>,
    thread: Option<ThreadId>,
    /// Another thread has made a change that the driving thread may not have seen.
    must_check: bool,
}

impl<E: Enqueue> Default for Driving<E> {
    fn default() -> Self {
        Self {
            idle: Some(Drive(Box::default())),
            thread: None,
            must_check: false,
        }
    }
}

impl<E: Enqueue> Driving<E> {
    /// True if `thread` drives.
    pub(super) fn is_by(&self, thread: ThreadId) -> bool {
        self.thread == Some(thread)
    }

    /// True if no thread drives.
    pub(super) const fn is_free(&self) -> bool {
        self.idle.is_some()
    }

    /// What the backend needs. `None` while a thread drives.
    pub(super) fn backend(&mut self) -> Option<&mut E::State> {
        self.idle.as_mut().map(Drive::backend)
    }

    /// Makes `thread` the driving thread. `None` if a thread drives already.
    #[inline]
    pub(super) fn take(&mut self, thread: ThreadId) -> Option<Drive<E>> {
        let drive = self.idle.take()?;
        self.thread = Some(thread);
        Some(drive)
    }

    /// Asks the driving thread to check again. False if no thread drives.
    pub(super) const fn request_check(&mut self) -> bool {
        self.must_check = !self.is_free();
        self.must_check
    }

    /// Notes that the driving thread checks now.
    pub(super) const fn begin_check(&mut self) {
        self.must_check = false;
    }

    /// Stops driving.
    #[inline]
    pub(super) fn stop(&mut self, drive: Drive<E>) {
        self.idle = Some(drive);
        self.thread = None;
        self.must_check = false;
    }

    /// Stops driving, unless the thread must check again.
    ///
    /// # Errors
    /// The right to drive, if the thread must check again.
    #[inline]
    pub(super) fn try_stop(&mut self, drive: Drive<E>) -> Result<(), Drive<E>> {
        if self.must_check {
            return Err(drive);
        }
        self.stop(drive);
        Ok(())
    }
}
