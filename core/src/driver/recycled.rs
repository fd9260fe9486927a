//! Shared objects that are used again once nobody has them any more.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Objects handed out behind an [`Arc`], which go to the next user once all others have let go of them: for the
/// [stamps](crate::backend::Enqueue::stamp) of a queue, so that a timed record allocates nothing.
///
/// It keeps them all: at most about twice as many as were ever in use at the same time.
pub struct Recycled<T>(Mutex<List<T>>);

struct List<T> {
    objects: Vec<Arc<T>>,
    /// The place of the next one to be looked at, round and round: what was handed out longest ago has mostly been let go of.
    next: usize,
    /// The size at which all are looked at before one more is made.
    sort_at: usize,
}

/// How many that are in use are passed over at each call.
const LOOKS: usize = 4;

impl<T> List<T> {
    /// One that is in nobody's hands, after `renew`, if that says that it can be used.
    #[inline]
    fn unused(&mut self, mut renew: impl FnMut(&mut Arc<T>) -> bool) -> Option<Arc<T>> {
        for _ in 0..LOOKS {
            let object = self.objects.get_mut(self.next)?;
            let found = is_alone(object) && renew(object);
            let object = found.then(|| object.clone());
            self.next += 1;
            if self.next == self.objects.len() {
                self.next = 0;
            }
            if object.is_some() {
                return object;
            }
        }
        if self.objects.len() < self.sort_at.max(2 * LOOKS) {
            return None;
        }
        self.sort(renew)
    }

    /// As [`List::unused`], once what nobody has stands in front.
    #[cold]
    fn sort(&mut self, mut renew: impl FnMut(&mut Arc<T>) -> bool) -> Option<Arc<T>> {
        // Each is asked once: others let go of them meanwhile.
        let mut free = 0;
        for at in 0..self.objects.len() {
            if is_alone(&self.objects[at]) {
                self.objects.swap(free, at);
                free += 1;
            }
        }
        self.sort_at = 2 * (self.objects.len() - free);
        let found = self.objects[..free]
            .iter_mut()
            .position(|object| is_alone(object) && renew(object));
        if found.is_none() {
            // Nobody has them, but they cannot be used yet.
            self.sort_at = 2 * self.objects.len();
        }
        self.next = found.map_or(0, |found| (found + 1) % self.objects.len());
        found.map(|found| self.objects[found].clone())
    }
}

/// True if nobody else has it, who could let another have it. What others did with it comes before what is done with it now.
#[inline]
fn is_alone<T>(object: &Arc<T>) -> bool {
    let alone = Arc::strong_count(object) == 1;
    if alone {
        fence(Ordering::Acquire);
    }
    alone
}

impl<T> Recycled<T> {
    /// An object that nobody else has: an old one after `renew`, which runs under a lock, or what `make` returns.
    ///
    /// # Errors
    /// That of `make`.
    pub fn take<E>(
        &self,
        renew: impl FnOnce(&mut T),
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut renew = Some(renew);
        let renewed = |object: &mut Arc<T>| {
            let alone = Arc::get_mut(object);
            if let Some((object, renew)) = alone.and_then(|object| Some((object, renew.take()?))) {
                renew(object);
                return true;
            }
            false
        };
        self.take_or_make(renewed, make)
    }

    /// As [`Recycled::take`], for objects that can be renewed as they lie: `renew` tells whether this one can be used again
    /// now, and runs for a few of them at the most as a rule. Nobody has a [`Weak`](std::sync::Weak) of them.
    ///
    /// # Errors
    /// That of `make`.
    #[inline]
    pub fn take_fit<E>(
        &self,
        renew: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        self.take_or_make(|object| renew(object), make)
    }

    /// `object`, which this has handed out, after `renew`, if nobody else has it and that says that it can be used again: for who brings
    /// one back when he takes one, and so needs no lock. As for [`Recycled::take_fit`], nobody has a [`Weak`](std::sync::Weak) of it.
    #[inline]
    pub fn take_again(&self, object: Arc<T>, renew: impl FnOnce(&T) -> bool) -> Option<Arc<T>> {
        /// It is in the list, too.
        const ALONE: usize = 2;
        let alone = Arc::strong_count(&object) == ALONE;
        if alone {
            fence(Ordering::Acquire);
        }
        (alone && renew(&object)).then_some(object)
    }

    #[inline]
    fn take_or_make<E>(
        &self,
        renew: impl FnMut(&mut Arc<T>) -> bool,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let unused = self.list().unused(renew);
        match unused {
            Some(old) => Ok(old),
            None => self.add(make()?),
        }
    }

    #[cold]
    fn add<E>(&self, made: T) -> Result<Arc<T>, E> {
        let made = Arc::new(made);
        self.list().objects.push(made.clone());
        Ok(made)
    }

    #[inline]
    fn list(&self) -> MutexGuard<'_, List<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            next: 0,
            sort_at: 0,
        }
    }
}

impl<T> Default for Recycled<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> fmt::Debug for Recycled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recycled({})", self.list().objects.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// The number that a fresh one gets; one that is used again has 100 more than it had.
    fn take(pool: &Recycled<u32>, fresh: u32) -> Arc<u32> {
        let taken = pool.take(|old| *old += 100, || Ok::<_, Infallible>(fresh));
        taken.unwrap_or_else(|never| match never {})
    }

    #[test]
    fn what_somebody_has_is_nobody_elses() {
        let pool = Recycled::default();
        let (one, two) = (take(&pool, 1), take(&pool, 2));
        assert_eq!((*one, *two), (1, 2));
        drop(one);
        assert_eq!(*take(&pool, 3), 101);
        assert_eq!(*two, 2);
    }

    #[test]
    fn a_few_that_are_kept_for_long_do_not_make_it_grow() {
        let pool = Recycled::default();
        let _kept: Vec<_> = (0..50).map(|n| take(&pool, n)).collect();
        for n in 50..2000 {
            drop(take(&pool, n));
        }
        assert!(pool.list().objects.len() <= 102, "{pool:?}");
    }

    #[test]
    fn one_that_is_not_fit_is_passed_over_until_it_is() {
        let pool = Recycled::default();
        drop((take(&pool, 1), take(&pool, 2)));
        let even = |fresh| {
            let taken = pool.take_fit(|old| old % 2 == 0, || Ok::<_, Infallible>(fresh));
            taken.unwrap_or_else(|never| match never {})
        };
        for _ in 0..3 {
            assert_eq!(*even(9), 2);
        }
        let _two = even(9);
        assert_eq!(*even(7), 7);
        assert_eq!(pool.list().objects.len(), 3);
    }

    #[test]
    fn one_that_is_brought_back_is_used_again_if_nobody_else_has_it() {
        let pool = Recycled::default();
        let (one, two) = (take(&pool, 1), take(&pool, 2));
        let also = two.clone();
        assert!(pool.take_again(two, |_| true).is_none());
        let again = pool.take_again(one, |_| true).unwrap();
        assert_eq!(*again, 1);
        // While somebody has it, it is nobody else's; refused, it is the next one's.
        assert_eq!(*take(&pool, 3), 3);
        assert!(pool.take_again(again, |_| false).is_none());
        assert!(pool.take_again(also, |_| false).is_none());
        let mut all: Vec<_> = (0..3).map(|_| take(&pool, 9)).collect();
        all.sort();
        assert_eq!(all.iter().map(|n| **n).collect::<Vec<_>>(), [101, 102, 103]);
    }

    #[test]
    fn an_object_that_cannot_be_made_leaves_nothing() {
        let pool = Recycled::<u32>::default();
        assert_eq!(pool.take(|_| (), || Err("no")), Err("no"));
        assert!(pool.list().objects.is_empty());
    }
}
