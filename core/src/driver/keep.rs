//! The objects that a submission keeps until it has finished.

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

/// The objects and the units of a budget that a submission keeps until it has finished.
#[derive(Default)]
pub struct Keep {
    objects: SmallVec<[Kept; 2]>,
    units: u64,
}

type Kept = Arc<dyn Any + Send + Sync>;

/// The most units that one [`Keep`] counts. Above every budget, and sums of many do not overflow.
const MOST_UNITS: u64 = 1 << 48;

impl Keep {
    /// Adds one object.
    #[inline]
    pub fn push(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.objects.push(object);
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
        self.objects.is_empty()
    }

    /// Takes out the objects. The units stay.
    #[inline]
    pub(crate) fn take_objects(&mut self) -> Self {
        Self {
            objects: std::mem::take(&mut self.objects),
            units: 0,
        }
    }

    /// The units that it takes of the budget.
    #[inline]
    pub(crate) const fn units(&self) -> u64 {
        self.units
    }

    /// Moves everything `other` keeps into this one.
    #[inline]
    pub fn append(&mut self, other: &mut Self) {
        self.objects.append(&mut other.objects);
        self.take_in_flight(std::mem::take(&mut other.units));
    }
}

impl std::fmt::Debug for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keep({})", self.objects.len())
    }
}
