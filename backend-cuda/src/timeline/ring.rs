//! The event ring: the pending signals of one timeline, in the order in which they are reached.

use std::collections::VecDeque;

use syncline_core::Result;

use crate::device::event::Mark;

/// A pending signal.
#[derive(Clone)]
pub(crate) struct Entry {
    value: u64,
    domain: u64,
    reached: Reached,
}

impl Entry {
    #[inline]
    pub(crate) const fn value(&self) -> u64 {
        self.value
    }

    /// The order domain of the signalling stream, or [`NO_STREAM`] if the stream may be gone.
    #[inline]
    pub(crate) const fn domain(&self) -> u64 {
        self.domain
    }

    #[inline]
    pub(crate) const fn reached(&self) -> &Reached {
        &self.reached
    }
}

/// The domain of no stream.
pub(crate) const NO_STREAM: u64 = 0;

/// What must complete so that a value is reached.
#[derive(Clone)]
pub(crate) enum Reached {
    /// The event. All earlier values are reached with it too.
    With(Mark),
    /// All earlier values, and this event of another stream if there is one.
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

    /// True if the value is known to be reached, provided that it is the first of its ring.
    #[inline]
    pub(crate) fn is_known_reached(&self) -> bool {
        self.mark().is_none_or(Mark::is_known_done)
    }

    /// Same as [`Reached::is_known_reached`], but queries the driver.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn is_reached_now(&self) -> Result<bool> {
        self.mark().map_or(Ok(true), Mark::is_done)
    }
}

/// The most events of reached signals that a ring keeps. Others return to the device's pool.
const SPARE: usize = 128;

/// Pending signals in the order of their values, and events of reached signals for reuse.
#[derive(Default)]
pub(crate) struct Ring {
    outstanding: VecDeque<Entry>,
    /// Events of reached signals, oldest first.
    spare: VecDeque<Mark>,
}

impl Ring {
    /// The number of pending signals.
    pub(crate) fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// The pending signal at this index.
    pub(crate) fn get(&self, at: usize) -> Option<&Entry> {
        self.outstanding.get(at)
    }

    /// The pending signal with the lowest value.
    pub(crate) fn first(&self) -> Option<&Entry> {
        self.outstanding.front()
    }

    pub(crate) fn last(&self) -> Option<&Entry> {
        self.outstanding.back()
    }

    /// The number of pending signals at or below `value`.
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

    /// Removes the last pending signal.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        self.outstanding.pop_back()
    }

    /// Removes the first signals as long as `is_reached` returns true.
    ///
    /// Keeps their events if `keeps` is set.
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
        while self.spare.len() > kept {
            self.spare.pop_front();
        }
    }

    /// The oldest kept event, if no other mark of it exists.
    ///
    /// Kept events are of the device's pool, which the port of the ring keeps.
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
    fn events_of_reached_signals_are_reused_up_to_a_limit() {
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
        // An event that was kept before is dropped too.
        let (mut ring, marks) = passed(events, 5, true);
        ring.push(6, 7, Reached::After(None));
        ring.retire_while(false, |_| true);
        assert!(marks.iter().all(Mark::is_unshared));
        assert!(ring.unused().is_none());
    }
}
