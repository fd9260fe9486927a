//! Driver objects that many submissions of one queue use, each kept once.

use std::fmt;
use std::sync::Arc;

/// How many of the newest entries a search for an object compares.
const LOOKS: usize = 16;

/// Driver objects in use by the submissions of one queue, each with the last submission using it.
///
/// It is made for semaphores: a queue uses the same few in most submissions. An object is kept
/// once, until the last submission that uses it has finished.
pub struct InUse<T> {
    objects: Vec<(Arc<T>, u64)>,
    /// The index that the next search compares first: the one after the latest object.
    ///
    /// Submissions often use the same objects in the same order.
    next: usize,
    /// The length above which unused objects are released: twice what the last release left.
    look_at: usize,
}

impl<T> InUse<T> {
    /// Notes that the submission `number` uses `objects`.
    ///
    /// `number` is the highest so far. Submissions up to `reached` have finished.
    pub fn add<'o>(
        &mut self,
        objects: impl IntoIterator<Item = &'o Arc<T>>,
        number: u64,
        reached: u64,
    ) where
        T: 'o,
    {
        for object in objects {
            self.add_one(object, number);
        }
        if self.objects.len() > self.look_at.max(LOOKS) {
            self.release(reached);
        }
    }

    #[inline]
    fn add_one(&mut self, object: &Arc<T>, number: u64) {
        match self.objects.get_mut(self.next) {
            Some((kept, last)) if Arc::ptr_eq(kept, object) => *last = number,
            _ => self.find_and_add(object, number),
        }
        self.next += 1;
        if self.next >= self.objects.len() {
            self.next = 0;
        }
    }

    /// Same as `add_one`, for an object that is not at the index `next`. Sets `next` to it.
    fn find_and_add(&mut self, object: &Arc<T>, number: u64) {
        let latest = self.objects.len().saturating_sub(LOOKS);
        let is_it = |(kept, _): &(Arc<T>, u64)| Arc::ptr_eq(kept, object);
        let found = self.objects[latest..].iter().rposition(is_it);
        self.next = found.map_or(self.objects.len(), |found| latest + found);
        match self.objects.get_mut(self.next) {
            Some((_, last)) => *last = number,
            None => self.objects.push((object.clone(), number)),
        }
    }

    /// Releases the objects that no submission after `reached` uses.
    pub fn release(&mut self, reached: u64) {
        self.objects.retain(|(_, last)| *last > reached);
        self.look_at = 2 * self.objects.len();
    }
}

impl<T> fmt::Debug for InUse<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InUse({})", self.objects.len())
    }
}

impl<T> Default for InUse<T> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            next: 0,
            look_at: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_kept_once_and_until_its_last_use_has_finished() {
        let (mut used, once) = (InUse::default(), Arc::new(0));
        for number in 1..=1000 {
            used.add([&once], number, 0);
        }
        assert_eq!(Arc::strong_count(&once), 2);
        used.release(999);
        assert_eq!(Arc::strong_count(&once), 2);
        used.release(1000);
        assert_eq!(Arc::strong_count(&once), 1);
    }

    #[test]
    fn many_objects_are_released_as_their_submissions_finish() {
        let mut used = InUse::default();
        for number in 1..=1000 {
            used.add([&Arc::new(number)], number, number - 1);
        }
        assert!(used.objects.len() <= 2 * LOOKS);
        let kept: Vec<_> = (0..100).map(Arc::new).collect();
        used.add(&kept, 2000, 1000);
        assert!(kept.iter().all(|object| Arc::strong_count(object) > 1));
        used.release(2000);
        assert!(kept.iter().all(|object| Arc::strong_count(object) == 1));
        assert!(used.objects.is_empty());
    }
}
