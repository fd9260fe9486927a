//! The events of one queue, and the submissions that they end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::super::Budget;
use super::{CROWDED, Mark};
use crate::raw::cuda::Calls;
use crate::side::Outcome;

/// The events of a queue, which are recorded again.
#[derive(Default)]
pub(super) struct Events {
    /// Events in the stream.
    recorded: VecDeque<Recorded>,
    /// Complete events: without timing, and with timing.
    free: [VecDeque<Arc<Mark>>; 2],
    /// All submissions up to this position are complete.
    pub(super) finished: u64,
    crowded: usize,
}

struct Recorded {
    position: u64,
    mark: Arc<Mark>,
    timed: bool,
    /// Units in flight of the submission that ends with the event.
    units: u64,
}

impl Events {
    /// Adds the submission at `position`, which ends with `mark`.
    #[inline]
    pub(super) fn push(&mut self, position: u64, mark: Arc<Mark>, timed: bool, units: u64) {
        self.recorded.push_back(Recorded {
            position,
            mark,
            timed,
            units,
        });
    }

    /// Frees the events of all submissions up to `position`, which are complete.
    pub(super) fn finished(&mut self, position: u64, budget: &Budget) {
        let through = self
            .recorded
            .partition_point(|recorded| recorded.position <= position);
        let mut units = 0;
        for recorded in self.recorded.drain(..through) {
            units += recorded.units;
            self.free[usize::from(recorded.timed)].push_back(recorded.mark);
        }
        budget.give_back(units);
        self.finished = position;
    }

    /// Checks whether the older half is complete.
    #[cold]
    pub(super) fn look(&mut self, calls: &Calls, budget: &Budget) -> Outcome<()> {
        if let Some(middle) = self.recorded.get(self.recorded.len() / 2)
            && calls.ask(middle.mark.event)?
        {
            self.finished(middle.position, budget);
        }
        self.crowded = 2 * self.recorded.len();
        Ok(())
    }

    /// Returns a complete event that only this queue has, or a new one.
    #[inline]
    pub(super) fn take(
        &mut self,
        calls: &Calls,
        timed: bool,
        budget: &Budget,
    ) -> Outcome<Arc<Mark>> {
        /// Timelines keep some complete events until they check them.
        const TRIES: u32 = 2;
        if self.recorded.len() >= self.crowded.max(CROWDED) {
            self.look(calls, budget)?;
        }
        let free = &mut self.free[usize::from(timed)];
        for _ in 0..TRIES {
            let Some(mark) = free.pop_front() else {
                break;
            };
            // A new reference needs an existing one, and this is the only one left.
            if Arc::strong_count(&mark) == 1 {
                fence(Ordering::Acquire);
                return Ok(mark);
            }
            free.push_back(mark);
        }
        Ok(Arc::new(Mark {
            calls: *calls,
            event: calls.create(timed)?,
        }))
    }

    /// Returns the units of all submissions, because the queue ends.
    pub(super) fn end(&mut self, budget: &Budget) {
        let units = self.recorded.drain(..).map(|recorded| recorded.units);
        budget.give_back(units.sum());
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free[0].len()
    }
}
