//! Which thread hands a queue's submissions to the driver.

use crate::base::sync::ThreadId;
use crate::driver::enqueue::Enqueue;

/// The right to hand a queue's submissions to the driver, with what the backend needs for that.
///
/// A queue has one. A thread that has it must give it back, with [`Turns::end`] or
/// [`Turns::try_end`].
#[must_use = "no thread could submit any more"]
pub(super) struct Turn<E: Enqueue>(Box<E::State>);

impl<E: Enqueue> Turn<E> {
    /// What the backend needs to record and to flush.
    #[inline]
    pub(super) fn backend(&mut self) -> &mut E::State {
        &mut self.0
    }
}

/// Which thread has the turn, and whether it must check again.
///
/// Part of the queue's state, under its lock.
pub(super) struct Turns<E: Enqueue> {
    /// `None` while a thread has it.
    free: Option<Turn<E>>,
    thread: Option<ThreadId>,
    /// Another thread has made a change that the thread with the turn may not have seen.
    must_check: bool,
}

impl<E: Enqueue> Default for Turns<E> {
    fn default() -> Self {
        Self {
            free: Some(Turn(Box::default())),
            thread: None,
            must_check: false,
        }
    }
}

impl<E: Enqueue> Turns<E> {
    /// True if it is the turn of `thread`.
    #[inline]
    pub(super) fn is_of(&self, thread: ThreadId) -> bool {
        self.thread == Some(thread)
    }

    /// True if no thread has the turn.
    #[inline]
    pub(super) const fn is_free(&self) -> bool {
        self.free.is_some()
    }

    /// What the backend needs. `None` while a thread has the turn.
    pub(super) fn backend(&mut self) -> Option<&mut E::State> {
        self.free.as_mut().map(Turn::backend)
    }

    /// Gives the turn to `thread`. If a thread has it, asks that to check again.
    #[inline]
    pub(super) fn begin(&mut self, thread: ThreadId) -> Option<Turn<E>> {
        let turn = self.free.take();
        match turn {
            Some(_) => self.thread = Some(thread),
            None => self.must_check = true,
        }
        turn
    }

    /// Notes that the thread that has the turn checks now.
    pub(super) const fn begin_check(&mut self) {
        self.must_check = false;
    }

    /// Ends the turn.
    #[inline]
    pub(super) fn end(&mut self, turn: Turn<E>) {
        self.free = Some(turn);
        self.thread = None;
        self.must_check = false;
    }

    /// Ends the turn. Returns it if the thread must check again.
    #[inline]
    pub(super) fn try_end(&mut self, turn: Turn<E>) -> Option<Turn<E>> {
        if self.must_check {
            return Some(turn);
        }
        self.end(turn);
        None
    }
}
