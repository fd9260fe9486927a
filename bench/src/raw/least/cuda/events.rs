//! The events of one queue, and what stands before them in the stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::super::Room;
use super::{CROWDED, Mark};
use crate::lab::Outcome;
use crate::raw::cuda::Calls;

/// Events of a queue, to be used again.
#[derive(Default)]
pub(super) struct Events {
    /// With what is in the stream.
    recorded: VecDeque<Recorded>,
    /// Complete: those without timing, and those with.
    free: [VecDeque<Arc<Mark>>; 2],
    crowded: usize,
}

struct Recorded {
    position: u64,
    mark: Arc<Mark>,
    timed: bool,
    /// The room that is taken by what ends with it.
    units: u64,
}

impl Events {
    /// The submission at `position` ends with `mark`.
    #[inline]
    pub(super) fn push(&mut self, position: u64, mark: Arc<Mark>, timed: bool, units: u64) {
        self.recorded.push_back(Recorded {
            position,
            mark,
            timed,
            units,
        });
    }

    /// Everything up to `position` is complete.
    pub(super) fn finished(&mut self, position: u64, room: &Room) {
        let through = self
            .recorded
            .partition_point(|recorded| recorded.position <= position);
        let mut units = 0;
        for recorded in self.recorded.drain(..through) {
            units += recorded.units;
            self.free[usize::from(recorded.timed)].push_back(recorded.mark);
        }
        room.give_back(units);
    }

    /// Finds out whether the older half is complete.
    #[cold]
    pub(super) fn look(&mut self, calls: &Calls, room: &Room) -> Outcome<()> {
        if let Some(middle) = self.recorded.get(self.recorded.len() / 2)
            && calls.ask(middle.mark.event)?
        {
            self.finished(middle.position, room);
        }
        self.crowded = 2 * self.recorded.len();
        Ok(())
    }

    /// One that is complete and that nobody else has, or a new one.
    #[inline]
    pub(super) fn take(&mut self, calls: &Calls, timed: bool, room: &Room) -> Outcome<Arc<Mark>> {
        /// Timelines keep some until they look what is complete.
        const TRIES: u32 = 2;
        if self.recorded.len() >= self.crowded.max(CROWDED) {
            self.look(calls, room)?;
        }
        let free = &mut self.free[usize::from(timed)];
        for _ in 0..TRIES {
            let Some(mark) = free.pop_front() else {
                break;
            };
            // Others get one only from who has one, and now that is nobody but this.
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

    /// Gives back the room that is still taken: the queue ends.
    pub(super) fn end(&mut self, room: &Room) {
        let units = self.recorded.drain(..).map(|recorded| recorded.units);
        room.give_back(units.sum());
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free[0].len()
    }
}
