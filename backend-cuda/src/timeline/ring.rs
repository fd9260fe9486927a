//! The signals of one timeline that are with the driver, in the order in which they come.

use std::collections::VecDeque;

use syncline_core::Result;

use crate::device::event::Mark;

/// One of them.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) value: u64,
    /// The stream that signals it, if that is known to be still the same one; otherwise [`NO_STREAM`].
    pub(crate) domain: u64,
    pub(crate) reached: Reached,
}

/// No stream has this number.
pub(crate) const NO_STREAM: u64 = 0;

/// When a value is reached.
#[derive(Clone)]
pub(crate) enum Reached {
    /// When this is complete. Then everything before it is reached, too.
    With(Mark),
    /// When the value before it is, and this, of another stream, is complete.
    After(Option<Mark>),
}

impl Reached {
    #[inline]
    pub(crate) const fn mark(&self) -> Option<&Mark> {
        match self {
            Self::With(mark) => Some(mark),
            Self::After(mark) => mark.as_ref(),
        }
    }

    #[inline]
    pub(crate) const fn covers_all_before(&self) -> bool {
        matches!(self, Self::With(_))
    }

    /// For a value with none before it.
    #[inline]
    pub(crate) fn is_known_reached(&self) -> bool {
        self.mark().is_none_or(Mark::is_known_done)
    }

    /// As [`Reached::is_known`], but asks the driver.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn is_reached_now(&self) -> Result<bool> {
        self.mark().map_or(Ok(true), Mark::is_done)
    }
}

/// How many events of signals that have come are kept at most. The others go back to the device's pool.
const SPARE: usize = 128;

/// Signals in the order of their values. Events of signals that have come are kept for the next ones.
#[derive(Default)]
pub(crate) struct Ring {
    outstanding: VecDeque<Entry>,
    /// Events of entries that have come, oldest first.
    spare: VecDeque<Mark>,
}

impl Ring {
    /// The number of outstanding signals.
    pub(crate) fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// The outstanding signal at this index.
    pub(crate) fn get(&self, at: usize) -> Option<&Entry> {
        self.outstanding.get(at)
    }

    /// The outstanding signal that comes first.
    pub(crate) fn first(&self) -> Option<&Entry> {
        self.outstanding.front()
    }

    pub(crate) fn last(&self) -> Option<&Entry> {
        self.outstanding.back()
    }

    /// How many lie at or below `value`.
    pub(crate) fn through(&self, value: u64) -> usize {
        self.outstanding
            .partition_point(|entry| entry.value <= value)
    }

    /// Adds a signal above all others.
    pub(crate) fn push(&mut self, value: u64, domain: u64, reached: Reached) {
        self.outstanding.push_back(Entry {
            value,
            domain,
            reached,
        });
    }

    /// Takes out the last outstanding signal.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        self.outstanding.pop_back()
    }

    /// Takes out the first signals for as long as they `have_come`. With `keeps`, their events are kept for other signals.
    pub(crate) fn retire_while(&mut self, keeps: bool, mut is_reached: impl FnMut(&Entry) -> bool) {
        while self.outstanding.front().is_some_and(&mut is_reached)
            && let Some(entry) = self.outstanding.pop_front()
        {
            if let Reached::With(mark) = entry.reached
                && keeps
                && mark.is_plain()
            {
                self.spare.push_back(mark);
            }
        }
        let kept = if keeps { SPARE } else { 0 };
        let excess = self.spare.len().saturating_sub(kept);
        self.spare.drain(..excess);
    }

    /// The oldest kept event, if nothing else holds a mark of it.
    pub(crate) fn unused(&mut self) -> Option<Mark> {
        self.spare.front().filter(|mark| mark.is_unshared())?;
        let mark = self.spare.pop_front()?;
        mark.renew();
        Some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::event::Events;
    use crate::driver::emulated;

    fn passed(events: &Events, count: u64, keeps: bool) -> (Ring, Vec<Mark>) {
        let mut ring = Ring::default();
        let marks: Vec<_> = (0..count).map(|_| events.take().unwrap()).collect();
        for (mark, value) in marks.iter().zip(1..) {
            ring.push(value, 7, Reached::With(mark.clone()));
        }
        ring.retire_while(keeps, |_| true);
        (ring, marks)
    }

    #[test]
    fn events_that_have_come_are_used_again_and_no_more_are_kept() {
        let device = emulated::device();
        let events = device.plain_events();
        let (mut ring, marks) = passed(events, 300, true);
        assert!(ring.unused().is_none(), "they are in use");
        drop(marks);
        let again: Vec<_> = std::iter::from_fn(|| ring.unused()).collect();
        assert_eq!(again.len(), SPARE);
        assert!(again.iter().all(|mark| !mark.is_recorded()));
        let (mut ring, marks) = passed(events, 300, false);
        drop(marks);
        assert!(ring.unused().is_none());
        // One that was kept until then goes, too.
        let (mut ring, marks) = passed(events, 5, true);
        ring.push(6, 7, Reached::After(None));
        ring.retire_while(false, |_| true);
        assert!(marks.iter().all(Mark::is_unshared));
        assert!(ring.unused().is_none());
    }
}
