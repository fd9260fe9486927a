//! Driver objects that many submissions of one queue use, each kept once.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

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
    /// The length above which the list is crowded: twice what the last removal left.
    crowded_above: usize,
}

/// Some of the objects that no submission uses any more.
///
/// Drop them without a lock, because a drop may destroy an object of the driver.
pub type Unused<T> = SmallVec<[Arc<T>; 8]>;

impl<T> InUse<T> {
    /// Notes that the submission `number` uses `object`. `number` is the highest so far.
    #[inline]
    pub fn add(&mut self, object: &Arc<T>, number: u64) {
        match self.objects.get_mut(self.next) {
            Some((kept, last)) if Arc::ptr_eq(kept, object) => *last = number,
            _ => self.find_and_add(object, number),
        }
        self.next += 1;
        if self.next >= self.objects.len() {
            self.next = 0;
        }
    }

    /// Same as [`InUse::add`], for an object that is not at the index `next`. Sets `next` to it.
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

    /// True if the list has grown so much that unused objects should be taken out.
    #[must_use]
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.objects.len() > self.crowded_above.max(LOOKS)
    }

    /// Takes out objects that no submission after `reached` uses. Call it until it returns none.
    #[must_use]
    pub fn take_unused(&mut self, reached: u64) -> Unused<T> {
        let mut unused = Unused::new();
        let mut at = 0;
        while at < self.objects.len() && unused.len() < unused.inline_size() {
            if self.objects[at].1 <= reached {
                unused.push(self.objects.swap_remove(at).0);
            } else {
                at += 1;
            }
        }
        self.crowded_above = 2 * self.objects.len();
        unused
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
            crowded_above: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release<T>(used: &mut InUse<T>, reached: u64) {
        while !used.take_unused(reached).is_empty() {}
    }

    #[test]
    fn an_object_is_kept_once_and_until_its_last_use_has_finished() {
        let (mut used, once) = (InUse::default(), Arc::new(0));
        for number in 1..=1000 {
            used.add(&once, number);
        }
        assert_eq!(Arc::strong_count(&once), 2);
        release(&mut used, 999);
        assert_eq!(Arc::strong_count(&once), 2);
        release(&mut used, 1000);
        assert_eq!(Arc::strong_count(&once), 1);
    }

    #[test]
    fn many_objects_are_released_as_their_submissions_finish() {
        let mut used = InUse::default();
        for number in 1..=1000 {
            used.add(&Arc::new(number), number);
            if used.is_crowded() {
                release(&mut used, number - 1);
            }
        }
        assert!(used.objects.len() <= 2 * LOOKS);
        let kept: Vec<_> = (0..100).map(Arc::new).collect();
        kept.iter().for_each(|object| used.add(object, 2000));
        release(&mut used, 1000);
        assert!(kept.iter().all(|object| Arc::strong_count(object) > 1));
        assert!(!used.is_crowded());
        release(&mut used, 2000);
        assert!(kept.iter().all(|object| Arc::strong_count(object) == 1));
        assert!(used.objects.is_empty());
    }
}
