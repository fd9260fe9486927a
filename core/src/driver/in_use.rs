//! Driver objects that many submissions of one queue use, each usually kept once.

use std::any::Any;
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
    /// The length above which unused objects are released: twice what the last release left.
    look_at: usize,
}

/// Objects that no submission uses any more. The engine drops them without a lock.
#[derive(Default)]
pub struct Unused(SmallVec<[Arc<dyn Any + Send + Sync>; 8]>);

impl Unused {
    /// Adds an object.
    pub fn push(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.0.push(object);
    }

    /// True if it has no space for another object.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.len() >= self.0.inline_size()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unused({})", self.0.len())
    }
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

    /// The objects that submission `number` uses and no later one.
    pub fn used_by(&self, number: u64) -> impl Iterator<Item = &Arc<T>> {
        let used = self.objects.iter().filter(move |(_, last)| *last == number);
        used.map(|(object, _)| object)
    }

    /// Moves objects that no submission after `reached` uses to `unused`, while it has space.
    pub fn take_unused(&mut self, reached: u64, unused: &mut Unused)
    where
        T: Send + Sync + 'static,
    {
        let mut at = 0;
        while at < self.objects.len() && !unused.is_full() {
            if self.objects[at].1 <= reached {
                unused.push(self.objects.swap_remove(at).0);
            } else {
                at += 1;
            }
        }
        self.look_at = 2 * self.objects.len();
    }

    /// Drops the objects that no submission after `reached` uses.
    fn release(&mut self, reached: u64) {
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

    fn take_all<T: Send + Sync + 'static>(used: &mut InUse<T>, reached: u64) {
        loop {
            let mut unused = Unused::default();
            used.take_unused(reached, &mut unused);
            if unused.is_empty() {
                return;
            }
        }
    }

    #[test]
    fn an_object_is_kept_once_and_until_its_last_use_has_finished() {
        let (mut used, once) = (InUse::default(), Arc::new(0));
        for number in 1..=1000 {
            used.add([&once], number, 0);
        }
        assert_eq!(Arc::strong_count(&once), 2);
        assert_eq!(
            (used.used_by(999).count(), used.used_by(1000).count()),
            (0, 1)
        );
        take_all(&mut used, 999);
        assert_eq!(Arc::strong_count(&once), 2);
        take_all(&mut used, 1000);
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
        take_all(&mut used, 2000);
        assert!(kept.iter().all(|object| Arc::strong_count(object) == 1));
        assert!(used.objects.is_empty());
    }
}
