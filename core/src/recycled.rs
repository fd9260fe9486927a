//! Shared objects that are used again once nobody has them any more.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Objects handed out behind an [`Arc`], which go to the next user once all others have let go of them: for the
/// [stamps](crate::backend::Enqueue::stamp) of a queue, so that a timed record allocates nothing.
///
/// It keeps them all: at most about twice as many as were ever in use at the same time.
pub struct Recycled<T>(Mutex<List<T>>);

struct List<T> {
    /// Taken from the front, put to the back: those at the front have mostly been let go of.
    objects: VecDeque<Arc<T>>,
    /// The size at which all are looked at before one more is made.
    sort_at: usize,
}

/// How many in use at the front are passed over at each call.
const LOOKS: usize = 4;

impl<T> List<T> {
    /// Takes one out that is in nobody's hands.
    fn unused(&mut self) -> Option<Arc<T>> {
        for _ in 0..LOOKS.min(self.objects.len()) {
            if self.objects.front().is_some_and(is_alone) {
                return self.objects.pop_front();
            }
            self.objects.rotate_left(1);
        }
        if self.objects.len() < self.sort_at.max(2 * LOOKS) {
            return None;
        }
        let objects = self.objects.make_contiguous();
        // Each is asked once: others let go of them meanwhile.
        let mut free = 0;
        for at in 0..objects.len() {
            if is_alone(&objects[at]) {
                objects.swap(free, at);
                free += 1;
            }
        }
        self.sort_at = 2 * (objects.len() - free);
        let front = self.objects.front().is_some_and(is_alone);
        front.then(|| self.objects.pop_front()).flatten()
    }
}

/// True if nobody else has it, who could let another have it.
fn is_alone<T>(object: &Arc<T>) -> bool {
    Arc::strong_count(object) == 1
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
        let mut list = self.list();
        // True if there is one, as nobody can have got hold of it since.
        if let Some(mut old) = list.unused()
            && let Some(value) = Arc::get_mut(&mut old)
        {
            renew(value);
            list.objects.push_back(old.clone());
            return Ok(old);
        }
        drop(list);
        let made = Arc::new(make()?);
        self.list().objects.push_back(made.clone());
        Ok(made)
    }

    fn list(&self) -> std::sync::MutexGuard<'_, List<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Recycled<T> {
    fn default() -> Self {
        Self(Mutex::new(List {
            objects: VecDeque::new(),
            sort_at: 0,
        }))
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
    fn an_object_that_cannot_be_made_leaves_nothing() {
        let pool = Recycled::<u32>::default();
        assert_eq!(pool.take(|_| (), || Err("no")), Err("no"));
        assert!(pool.list().objects.is_empty());
    }
}
