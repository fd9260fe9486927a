//! The signals of one timeline that are with the driver, in the order in which they come.

use syncline_core::Result;

use crate::event::Mark;

/// One of them.
#[derive(Clone, Default)]
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

impl Default for Reached {
    fn default() -> Self {
        Self::After(None)
    }
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
    pub(crate) const fn says_all(&self) -> bool {
        matches!(self, Self::With(_))
    }

    /// For a value with none before it.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        self.mark().is_none_or(Mark::known_done)
    }

    /// As [`Reached::is_known`], but asks the driver.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn is_now(&self) -> Result<bool> {
        self.mark().map_or(Ok(true), Mark::is_done)
    }

    /// True if it has an event that another can use.
    #[inline]
    fn is_of_use(&self) -> bool {
        matches!(self, Self::With(mark) if mark.is_plain())
    }
}

/// The most events of entries which have come that a row keeps for its next ones, or nearly that: the others go back to the device.
const SPARE: usize = 128;

/// Entries whose values rise, first come, first gone. They go round in a list of places: to add one or to pass one is a few
/// instructions, without a look where the list ends. Those that have come stay where they are, with their events, until these are
/// [used](Row::unused) again.
#[derive(Default)]
pub(crate) struct Row {
    /// As many as a power of two, or none. Where nothing stands is no mark.
    places: Box<[Entry]>,
    /// The first of those that have come and are still here, the first of those that have not, and the end: counted on and on.
    spare: usize,
    first: usize,
    end: usize,
}

impl Row {
    /// How many have not come.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.end.wrapping_sub(self.first)
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.end == self.first
    }

    #[inline]
    fn place(&self, number: usize) -> Option<&Entry> {
        let around = self.places.len().wrapping_sub(1);
        self.places.get(number & around)
    }

    #[inline]
    fn place_mut(&mut self, number: usize) -> Option<&mut Entry> {
        let around = self.places.len().wrapping_sub(1);
        self.places.get_mut(number & around)
    }

    /// The one at this index, of those that have not come.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&Entry> {
        if at < self.len() {
            self.place(self.first.wrapping_add(at))
        } else {
            None
        }
    }

    /// The first that has not come.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Entry> {
        self.get(0)
    }

    #[inline]
    pub(crate) fn last(&self) -> Option<&Entry> {
        self.get(self.len().wrapping_sub(1))
    }

    /// How many lie at or below `value`.
    pub(crate) fn through(&self, value: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle).is_some_and(|entry| entry.value <= value) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Adds one above all others.
    #[inline]
    pub(crate) fn push(&mut self, value: u64, domain: u64, reached: Reached) {
        if self.end.wrapping_sub(self.spare) == self.places.len() {
            self.grow();
        }
        if let Some(place) = self.place_mut(self.end) {
            place.value = value;
            place.domain = domain;
            // There was none.
            std::mem::forget(std::mem::replace(&mut place.reached, reached));
            self.end = self.end.wrapping_add(1);
        }
    }

    #[cold]
    fn grow(&mut self) {
        let larger = (2 * self.places.len()).max(8);
        let mut places: Box<[Entry]> = (0..larger).map(|_| Entry::default()).collect();
        let mut from = self.spare;
        while from != self.end {
            if let Some(place) = self.place_mut(from) {
                places[from & (larger - 1)] = std::mem::take(place);
            }
            from = from.wrapping_add(1);
        }
        self.places = places;
    }

    /// Takes the last one out, if it has not come.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        self.end = self.end.wrapping_sub(1);
        self.place_mut(self.end).map(std::mem::take)
    }

    /// Passes the first ones, for as long as they `have_come`, and tells whether there are any. With `keeps`, their events are kept.
    #[inline]
    pub(crate) fn pass_while(
        &mut self,
        keeps: bool,
        mut have_come: impl FnMut(&Entry) -> bool,
    ) -> bool {
        let around = self.places.len().wrapping_sub(1);
        let mut first = self.first;
        while first != self.end
            && let Some(place) = self.places.get_mut(first & around)
            && have_come(place)
        {
            if !(keeps && place.reached.is_of_use()) {
                place.reached = Reached::After(None);
            }
            first = first.wrapping_add(1);
        }
        let any = first != self.first;
        if !keeps {
            // Of those that have come before, some may have been kept.
            while self.spare != self.first {
                self.drop_spare();
            }
            self.spare = first;
        }
        self.first = first;
        while first.wrapping_sub(self.spare) > SPARE {
            self.drop_spare();
        }
        any
    }

    #[cold]
    fn drop_spare(&mut self) {
        if let Some(place) = self.place_mut(self.spare) {
            place.reached = Reached::After(None);
        }
        self.spare = self.spare.wrapping_add(1);
    }

    /// An event of an entry that has come, if nobody else has it any more. (If somebody has, those behind it wait until he
    /// lets it go, or until it is one too many.)
    #[inline]
    pub(crate) fn unused(&mut self) -> Option<Mark> {
        while self.spare != self.first {
            let place = self.place_mut(self.spare)?;
            let found = match &place.reached {
                Reached::With(mark) if !mark.is_alone() => return None,
                Reached::With(_) => std::mem::take(&mut place.reached),
                Reached::After(_) => Reached::After(None),
            };
            self.spare = self.spare.wrapping_add(1);
            if let Reached::With(mark) = found {
                mark.renew();
                return Some(mark);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::emulated;
    use crate::event::Events;

    fn values(row: &Row) -> VecDeque<u64> {
        (0..row.len())
            .filter_map(|at| row.get(at))
            .map(|entry| entry.value)
            .collect()
    }

    /// It grows while it stands across its end, and has what a deque would have.
    #[test]
    fn it_has_what_was_added_and_has_not_come() {
        let (mut row, mut model) = (Row::default(), VecDeque::new());
        assert!(row.first().is_none() && row.last().is_none() && row.pop().is_none());
        for step in 1..2000_u64 {
            row.push(2 * step, 7, Reached::default());
            model.push_back(2 * step);
            for _ in 0..step * step % 4 {
                let first = model.pop_front();
                let passed = row.pass_while(step % 3 == 0, |entry| Some(entry.value) == first);
                assert_eq!(passed, first.is_some());
            }
            if step % 11 == 0 {
                assert_eq!(row.pop().map(|entry| entry.value), model.pop_back());
            }
            assert_eq!(values(&row), model);
            assert_eq!(row.last().map(|entry| entry.value), model.back().copied());
            let low = (2 * step).saturating_sub(9);
            let through = model.partition_point(|&value| value <= low);
            assert_eq!(row.through(low), through);
            assert!(row.unused().is_none());
        }
    }

    fn passed(events: &Events, count: u64, keeps: bool) -> (Row, Vec<Mark>) {
        let mut row = Row::default();
        let marks: Vec<_> = (0..count).map(|_| events.take().unwrap()).collect();
        for (mark, value) in marks.iter().zip(1..) {
            row.push(value, 7, Reached::With(mark.clone()));
        }
        assert!(row.pass_while(keeps, |_| true));
        (row, marks)
    }

    #[test]
    fn events_that_have_come_are_used_again_and_no_more_are_kept() {
        let device = emulated::device();
        let events = device.plain_events();
        let (mut row, marks) = passed(events, 300, true);
        assert!(row.unused().is_none(), "somebody else has them");
        drop(marks);
        let again: Vec<_> = std::iter::from_fn(|| row.unused()).collect();
        assert_eq!(again.len(), SPARE);
        assert!(again.iter().all(|mark| !mark.is_recorded()));
        let (mut row, marks) = passed(events, 300, false);
        drop(marks);
        assert!(row.unused().is_none());
        // One that was kept until then goes, too.
        let (mut row, marks) = passed(events, 5, true);
        row.push(6, 7, Reached::default());
        assert!(row.pass_while(false, |_| true));
        assert!(marks.iter().all(Mark::is_alone));
        assert!(row.unused().is_none());
    }
}
