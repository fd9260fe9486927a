//! A pool of shared objects, which are used again once all their users have dropped them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::base::sync::Mutex;

/// A pool of objects behind an [`Arc`], each free once all users have dropped their handles.
///
/// It is made for driver objects that operations use and return, such as the
/// [stamps](crate::backend::Enqueue::stamp) of a queue and the events of CUDA. Then these
/// operations allocate nothing. The pool shrinks by [`Recycled::trim`] only. It holds at most about
/// twice as many objects as were ever in use at the same time.
pub struct Recycled<T>(Mutex<List<T>>);

struct List<T> {
    objects: Vec<Arc<T>>,
    /// The index of the object that is tried next. It goes round the list, so the object that was
    /// handed out longest ago, which is most likely free, is tried first.
    next: usize,
    /// The length at which the whole list is searched before another object is made.
    sort_at: usize,
}

/// How many objects a call tries before it searches the whole list or makes another.
const LOOKS: usize = 4;

impl<T> List<T> {
    /// Finds an object that is not in use and for which `renew` returns true.
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

    /// Same as [`List::unused`], over the whole list. Moves the free objects to the front first.
    #[cold]
    fn sort(&mut self, mut renew: impl FnMut(&mut Arc<T>) -> bool) -> Option<Arc<T>> {
        // Other threads drop handles meanwhile, so each count is read once here.
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
            // Some are free but cannot be used again yet.
            self.sort_at = 2 * self.objects.len();
        }
        self.next = found.map_or(0, |found| (found + 1) % self.objects.len());
        found.map(|found| self.objects[found].clone())
    }
}

/// True if the list has the only handle.
///
/// Only the list can clone a handle then. The fence orders all uses through other handles before
/// what the caller does next.
#[inline]
fn is_alone<T>(object: &Arc<T>) -> bool {
    has_handles(object, 1)
}

/// True if there are exactly `count` handles. What dropped handles did happened before, then.
#[inline]
fn has_handles<T>(object: &Arc<T>, count: usize) -> bool {
    let is_count = Arc::strong_count(object) == count;
    if is_count {
        fence(Ordering::Acquire);
    }
    is_count
}

impl<T> Recycled<T> {
    /// Returns an object without another user.
    ///
    /// It is a free one after `renew`, which runs under the pool's lock, or the result of `make`.
    ///
    /// # Errors
    /// The error of `make`.
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

    /// Same as [`Recycled::take`], for objects that are renewed through a shared reference.
    ///
    /// `renew` returns true if the object can be used again now. A call usually tries at most a few
    /// objects. No [`Weak`](std::sync::Weak) of the objects may exist.
    ///
    /// # Errors
    /// The error of `make`.
    #[inline]
    pub fn take_fit<E>(
        &self,
        renew: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        self.take_or_make(|object| renew(object), make)
    }

    /// Returns `object` again if it has no other user and `renew` returns true. Takes no lock.
    ///
    /// This pool handed out `object`, and the caller exchanges it for the next one. No
    /// [`Weak`](std::sync::Weak) of it may exist.
    #[inline]
    pub fn take_again(&self, object: Arc<T>, renew: impl FnOnce(&T) -> bool) -> Option<Arc<T>> {
        (Self::is_unshared(&object) && renew(&object)).then_some(object)
    }

    /// True if no other user has `object`, which a pool that still exists has handed out.
    ///
    /// What other users did with the object happened before the call then. No
    /// [`Weak`](std::sync::Weak) of it may exist. Without its pool the result may be wrong: two
    /// users look like one user and the pool.
    #[must_use]
    #[inline]
    pub fn is_unshared(object: &Arc<T>) -> bool {
        /// The handle of the list and that of the caller.
        const HANDLES: usize = 2;
        has_handles(object, HANDLES)
    }

    #[inline]
    fn take_or_make<E>(
        &self,
        renew: impl FnMut(&mut Arc<T>) -> bool,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let unused = self.0.lock().unused(renew);
        match unused {
            Some(old) => Ok(old),
            None => Ok(self.add(make()?)),
        }
    }

    /// Drops the objects without a user. Returns the number of the others.
    ///
    /// Drops them without the pool's lock.
    pub fn trim(&self) -> usize {
        let (unused, left) = {
            let mut list = self.0.lock();
            let unused: Vec<_> = list
                .objects
                .extract_if(.., |object| is_alone(object))
                .collect();
            list.objects.shrink_to_fit();
            list.next = 0;
            list.sort_at = 0;
            (unused, list.objects.len())
        };
        drop(unused);
        left
    }

    /// Adds an object to the pool, in use by the caller.
    #[cold]
    pub fn add(&self, made: T) -> Arc<T> {
        let made = Arc::new(made);
        self.0.lock().objects.push(made.clone());
        made
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
        write!(f, "Recycled({})", self.0.lock().objects.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::AtomicBool;

    /// Takes an object. A new one is `fresh`, and one that is used again grows by 100.
    fn take(pool: &Recycled<u32>, fresh: u32) -> Arc<u32> {
        let taken = pool.take(|old| *old += 100, || Ok::<_, Infallible>(fresh));
        taken.unwrap_or_else(|never| match never {})
    }

    #[test]
    fn an_object_in_use_is_not_handed_out() {
        let pool = Recycled::default();
        let (one, two) = (take(&pool, 1), take(&pool, 2));
        assert_eq!((*one, *two), (1, 2));
        drop(one);
        assert_eq!(*take(&pool, 3), 101);
        assert_eq!(*two, 2);
    }

    #[test]
    fn an_added_object_is_in_use_until_its_handle_is_dropped() {
        let pool = Recycled::default();
        let added = pool.add(1);
        assert_eq!(*take(&pool, 2), 2);
        drop(added);
        let all = [take(&pool, 3), take(&pool, 4)];
        assert_eq!(all.iter().map(|n| **n).sum::<u32>(), 101 + 102);
    }

    #[test]
    fn objects_that_are_kept_for_long_do_not_make_the_pool_grow() {
        let pool = Recycled::default();
        let _kept: Vec<_> = (0..50).map(|n| take(&pool, n)).collect();
        for n in 50..2000 {
            drop(take(&pool, n));
        }
        assert!(pool.0.lock().objects.len() <= 102, "{pool:?}");
    }

    #[test]
    fn an_object_is_used_again_only_when_renew_accepts_it() {
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
        assert_eq!(pool.0.lock().objects.len(), 3);
    }

    #[test]
    fn an_object_that_is_given_back_is_used_again_if_it_has_no_other_user() {
        let pool = Recycled::default();
        let (one, two) = (take(&pool, 1), take(&pool, 2));
        let also = two.clone();
        assert!(!Recycled::is_unshared(&two) && Recycled::is_unshared(&one));
        assert!(pool.take_again(two, |_| true).is_none());
        let again = pool.take_again(one, |_| true).unwrap();
        assert_eq!(*again, 1);
        // An object in use is not handed out. One that `renew` refused is free for the next call.
        assert_eq!(*take(&pool, 3), 3);
        assert!(pool.take_again(again, |_| false).is_none());
        assert!(pool.take_again(also, |_| false).is_none());
        let mut all: Vec<_> = (0..3).map(|_| take(&pool, 9)).collect();
        all.sort();
        assert_eq!(all.iter().map(|n| **n).collect::<Vec<_>>(), [101, 102, 103]);
    }

    #[test]
    fn a_trim_leaves_what_is_in_use() {
        let pool = Recycled::default();
        let mut kept: Vec<_> = (0..50).map(|n| take(&pool, n)).collect();
        assert_eq!(pool.trim(), 50);
        kept.retain(|object| **object == 30);
        assert_eq!(pool.trim(), 1);
        let again = pool.take_again(kept.remove(0), |_| true).unwrap();
        assert_eq!((*again, *take(&pool, 60)), (30, 60));
        assert_eq!(*take(&pool, 61), 160);
        drop(again);
        assert_eq!(pool.trim(), 0);
    }

    #[test]
    fn an_error_of_make_leaves_the_pool_empty() {
        let pool = Recycled::<u32>::default();
        assert_eq!(pool.take(|_| (), || Err("no")), Err("no"));
        assert!(pool.0.lock().objects.is_empty());
    }

    /// An object is in use until another thread drops the last handle.
    #[test]
    fn an_object_has_one_user_at_a_time_on_many_threads() {
        let pool = Recycled::default();
        let (sender, receiver) = std::sync::mpsc::channel::<Arc<AtomicBool>>();
        let receiver = std::sync::Mutex::new(receiver);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Ok(Ok(handle)) = receiver.lock().map(|receiver| receiver.recv()) {
                        handle.store(false, Ordering::Relaxed);
                        drop(handle);
                    }
                });
            }
            for sender in [sender.clone(), sender.clone(), sender] {
                let pool = &pool;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let make = || Ok::<_, Infallible>(AtomicBool::new(false));
                        let taken = pool.take_fit(|_| true, make);
                        let taken = taken.unwrap_or_else(|never| match never {});
                        assert!(!taken.swap(true, Ordering::Relaxed), "two users");
                        let _ = sender.send(taken);
                    }
                });
            }
        });
        let mut all = pool.0.lock();
        assert!(
            all.objects
                .iter_mut()
                .all(|one| Arc::get_mut(one).is_some())
        );
    }
}
