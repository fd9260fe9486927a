//! What a submission keeps until the device has finished with it.

use std::any::Any;
use std::sync::Arc;

/// What a submission keeps until the device has finished with it: objects alive, and budget in the driver taken.
#[derive(Default)]
pub struct Keep {
    /// As many as most submissions have stand in place: to see that there are none, and nothing to drop, is a look at the
    /// first.
    few: [Option<Kept>; 2],
    more: Vec<Kept>,
    units: u64,
}

type Kept = Arc<dyn Any + Send + Sync>;

/// What fills every budget, and of which tens of thousands together are still far from the end of the numbers.
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

    /// Takes so many more units of the queue's [budget](crate::backend::Enqueue::in_flight_budget), for what has gone or will go to the driver: all together
    /// 2^48 at the most, which stand for any larger number. So what is in flight can be counted, whatever work says of itself.
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

    /// True if it keeps no object and takes no budget.
    #[inline]
    pub(crate) const fn is_nothing(&self) -> bool {
        self.few[0].is_none() && self.units == 0
    }

    /// True if it keeps no object, and has no room for more than it has in place.
    #[inline]
    pub(crate) const fn has_no_room(&self) -> bool {
        self.few[0].is_none() && self.more.capacity() == 0
    }

    /// How many units of budget it takes.
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
