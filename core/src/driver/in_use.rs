//! Driver objects that many submissions of one queue use, each kept once.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::sync::Mutex;

/// How many of the newest entries a search for an object compares.
const LOOKS: usize = 16;

/// Driver objects in use by the submissions of one queue, each with the last submission using it.
///
/// It is made for semaphores: a queue uses the same few in most submissions. An object is kept
/// once, until the last submission that uses it has finished.
pub struct InUse<T>(Mutex<List<T>>);

struct List<T> {
    objects: Vec<(Arc<T>, u64)>,
    /// The index that the next search compares first: the one after the latest object.
    ///
    /// Submissions often use the same objects in the same order.
    next: usize,
    /// The length above which unused objects are released: twice what the last release left.
    look_at: usize,
}

impl<T> List<T> {
    #[inline]
    fn add(&mut self, object: &Arc<T>, number: u64) {
        match self.objects.get_mut(self.next) {
            Some((kept, last)) if Arc::ptr_eq(kept, object) => *last = number,
            _ => self.find_and_add(object, number),
        }
        self.next += 1;
        if self.next >= self.objects.len() {
            self.next = 0;
        }
    }

    /// Same as [`List::add`], for an object that is not at the index `next`. Sets `next` to it.
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
}

impl<T> fmt::Debug for InUse<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InUse({})", self.0.lock().objects.len())
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            next: 0,
            look_at: 0,
        }
    }
}

impl<T> Default for InUse<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> InUse<T> {
    /// Notes that the submission `number` uses `objects`.
    ///
    /// `number` is the highest so far. Submissions up to `reached` have finished.
    pub fn add<'o>(&self, objects: impl IntoIterator<Item = &'o Arc<T>>, number: u64, reached: u64)
    where
        T: 'o,
    {
        let crowded = {
            let mut list = self.0.lock();
            for object in objects {
                list.add(object, number);
            }
            list.objects.len() > list.look_at.max(LOOKS)
        };
        if crowded {
            self.release(reached);
        }
    }

    /// Releases the objects that no submission after `reached` uses.
    pub fn release(&self, reached: u64) {
        loop {
            // Dropped without the lock, because a drop may destroy an object of the driver.
            let mut done: SmallVec<[Arc<T>; 8]> = SmallVec::new();
            {
                let mut list = self.0.lock();
                let mut at = 0;
                while at < list.objects.len() && done.len() < done.inline_size() {
                    if list.objects[at].1 <= reached {
                        done.push(list.objects.swap_remove(at).0);
                    } else {
                        at += 1;
                    }
                }
                list.look_at = 2 * list.objects.len();
            }
            if done.len() < done.inline_size() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_kept_once_and_until_its_last_use_has_finished() {
        let (used, once) = (InUse::default(), Arc::new(0));
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
        let used = InUse::default();
        for number in 1..=1000 {
            used.add([&Arc::new(number)], number, number - 1);
        }
        assert!(used.0.lock().objects.len() <= 2 * LOOKS);
        let kept: Vec<_> = (0..100).map(Arc::new).collect();
        used.add(&kept, 2000, 1000);
        assert!(kept.iter().all(|object| Arc::strong_count(object) > 1));
        used.release(2000);
        assert!(kept.iter().all(|object| Arc::strong_count(object) == 1));
        assert!(used.0.lock().objects.is_empty());
    }
}
