//! The objects that a submission keeps until it has finished.

use std::any::Any;
use std::sync::Arc;

/// The objects and the units of a budget that a submission keeps until it has finished.
#[derive(Default)]
pub struct Keep {
    /// The first objects, stored inline. Empty if the first is `None`.
    few: [Option<Kept>; 2],
    more: Vec<Kept>,
    units: u64,
}

type Kept = Arc<dyn Any + Send + Sync>;

/// Exceeds every budget. The sum of tens of thousands of it does not overflow.
const MOST_UNITS: u64 = 1 << 48;

impl Keep {
    /// Adds one object.
    #[inline]
    pub fn push(&mut self, object: Arc<dyn Any + Send + Sync>) {
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(object),
            None => self.more.push(object),
        }
    }

    /// Takes more units of the queue's [budget](crate::backend::Enqueue::in_flight_budget).
    ///
    /// A submission takes at most 2^48 units; a larger sum counts as 2^48.
    #[inline]
    pub fn take_in_flight(&mut self, units: u64) {
        self.units = self.units.saturating_add(units).min(MOST_UNITS);
    }

    /// True if no object is kept.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.few[0].is_none()
    }

    /// True if it keeps no object and takes no units.
    #[inline]
    pub(crate) const fn is_nothing(&self) -> bool {
        self.few[0].is_none() && self.units == 0
    }

    /// The units that it takes of the budget.
    #[inline]
    pub(crate) const fn units(&self) -> u64 {
        self.units
    }

    /// Moves everything `other` keeps into this one.
    #[inline]
    pub fn append(&mut self, other: &mut Self) {
        if !other.is_empty() {
            self.append_objects(other);
        }
        self.take_in_flight(std::mem::take(&mut other.units));
    }

    fn append_objects(&mut self, other: &mut Self) {
        let few = other.few.iter_mut().filter_map(Option::take);
        for object in few.chain(other.more.drain(..)) {
            self.push(object);
        }
    }
}

impl std::fmt::Debug for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Keep({})",
            self.few.iter().flatten().count() + self.more.len()
        )
    }
}
