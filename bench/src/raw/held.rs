//! Held submissions by hand: a heap behind a mutex.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};

use crate::side::Outcome;

/// The value that is waited for, the queue, and the value that the queue signals then.
type Waiting = Reverse<(u64, usize, u64)>;

/// Held submissions, by the value that they wait for, the lowest first.
pub(crate) struct Held(Mutex<BinaryHeap<Waiting>>);

impl Held {
    /// An empty list with room for this many submissions.
    pub(crate) fn with_room(count: u64) -> Self {
        Self(Mutex::new(BinaryHeap::with_capacity(count as usize)))
    }

    /// Holds a submission to `queue`, which signals `done`, until `value` is signalled.
    #[inline]
    pub(crate) fn hold(&self, value: u64, queue: usize, done: u64) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.push(Reverse((value, queue, done)));
    }

    /// Signals all values up to `value`.
    ///
    /// Calls `submit` with the queue and the value to signal of each submission that is released.
    #[inline]
    pub(crate) fn release(
        &self,
        value: u64,
        mut submit: impl FnMut(usize, u64) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(Reverse((wanted, queue, done))) = held.peek().copied()
            && wanted <= value
        {
            held.pop();
            submit(queue, done)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_submissions_are_released_in_order_and_once() {
        let held = Held::with_room(3);
        for (value, queue) in [(3, 0), (1, 1), (2, 2)] {
            held.hold(value, queue, 7);
        }
        let released = |upto| {
            let mut queues = Vec::new();
            let released = held.release(upto, |queue, done| {
                queues.push((queue, done));
                Ok(())
            });
            assert_eq!(released, Ok(()));
            queues
        };
        assert_eq!(released(0), []);
        assert_eq!(released(2), [(1, 7), (2, 7)]);
        assert_eq!(released(9), [(0, 7)]);
        assert_eq!(released(9), []);
    }
}
