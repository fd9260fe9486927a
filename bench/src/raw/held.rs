//! Held submissions by hand: a heap behind a mutex, and a count of what is missing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// One submission that waits for a value of each of several timelines.
pub(crate) struct Missing {
    /// For each timeline its value, and the value that the submission waits for.
    timelines: Vec<Mutex<(u64, Option<u64>)>>,
    /// The number of values that have not come.
    count: AtomicU64,
}

impl Missing {
    /// So many timelines, all at 0.
    pub(crate) fn new(timelines: u64) -> Self {
        Self {
            timelines: (0..timelines).map(|_| Mutex::default()).collect(),
            count: AtomicU64::new(0),
        }
    }

    /// The number of timelines.
    pub(crate) const fn len(&self) -> usize {
        self.timelines.len()
    }

    /// Holds the submission until all timelines are at `value`, which none has reached.
    pub(crate) fn hold(&self, value: u64) {
        self.count
            .store(self.timelines.len() as u64, Ordering::Relaxed);
        for timeline in &self.timelines {
            let mut timeline = timeline.lock().unwrap_or_else(PoisonError::into_inner);
            timeline.1 = Some(value);
        }
    }

    /// Signals `value` of one timeline. True if the submission can go now.
    pub(crate) fn signal(&self, timeline: usize, value: u64) -> bool {
        let timeline = self.timelines[timeline].lock();
        let mut timeline = timeline.unwrap_or_else(PoisonError::into_inner);
        timeline.0 = value;
        if timeline.1.take_if(|waited| *waited <= value).is_none() {
            return false;
        }
        drop(timeline);
        self.count.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_that_is_missing_releases_a_submission() {
        let missing = Missing::new(3);
        for value in [1, 2] {
            missing.hold(value);
            let released = [2, 0, 0, 1].map(|timeline| missing.signal(timeline, value));
            assert_eq!(released, [false, false, false, true]);
        }
    }

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
