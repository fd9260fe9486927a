//! A lock for what takes a few instructions.
#![allow(unsafe_code, reason = "lends out what it guards")]

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::lock;

/// Guards what is changed in a few instructions, and never while the driver is called or anything else takes its time: so it
/// is hardly ever found taken, and what it costs is what counts. It is given up by a store, which is no barrier, and knows
/// of no panics: there are none in so few instructions.
pub(crate) struct Brief<T> {
    taken: AtomicBool,
    /// How many threads block.
    waiting: AtomicUsize,
    freed: (Mutex<()>, Condvar),
    guarded: UnsafeCell<T>,
}

// SAFETY: what it guards goes from thread to thread, and is never lent to two at a time.
unsafe impl<T: Send> Sync for Brief<T> {}

/// So often a thread looks before it blocks: some microseconds, much longer than the lock is held by a thread that runs.
const LOOKS: u32 = 200;

/// After so long who blocks looks again, though nobody has told him anything.
const UNSEEN: Duration = Duration::from_millis(1);

impl<T: Default> Default for Brief<T> {
    fn default() -> Self {
        Self {
            taken: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            freed: (Mutex::default(), Condvar::new()),
            guarded: UnsafeCell::default(),
        }
    }
}

impl<T> Brief<T> {
    #[inline]
    pub(crate) fn lock(&self) -> Taken<'_, T> {
        if !self.take() {
            self.wait();
        }
        Taken {
            of: self,
            lent: PhantomData,
        }
    }

    #[inline]
    fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::Acquire)
    }

    fn take_within_a_few_looks(&self) -> bool {
        (0..LOOKS).any(|_| {
            spin_loop();
            !self.taken.load(Ordering::Relaxed) && self.take()
        })
    }

    #[cold]
    fn wait(&self) {
        if self.take_within_a_few_looks() {
            return;
        }
        // Whoever gives the lock up looks for who waits, but without the barrier that would let one of the two see the other in
        // any case. He is seen to have given it up while this looks again, if he has not seen this; and if it is not so, this
        // looks by itself.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !self.take_within_a_few_looks() {
            let guard = lock(&self.freed.0);
            if self.take() {
                break;
            }
            drop(self.freed.1.wait_timeout(guard, UNSEEN));
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Somebody may have it now.
    #[cold]
    fn tell(&self) {
        drop(lock(&self.freed.0));
        self.freed.1.notify_one();
    }
}

/// The lock, until it is dropped.
pub(crate) struct Taken<'b, T> {
    of: &'b Brief<T>,
    /// Goes from thread to thread as that does.
    lent: PhantomData<&'b mut T>,
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: nobody else has the lock.
        unsafe { &*self.of.guarded.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else has the lock, and this is borrowed alone.
        unsafe { &mut *self.of.guarded.get() }
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.of.taken.store(false, Ordering::Release);
        if self.of.waiting.load(Ordering::Relaxed) > 0 {
            self.of.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: u64 = 20_000;

    /// Both words are changed together, now and then by a thread that keeps the lock for longer than others look.
    #[test]
    fn nobody_sees_what_another_is_changing() {
        let pair = Brief::<(u64, u64)>::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let pair = &pair;
                scope.spawn(move || {
                    for round in 0..EACH {
                        let mut both = pair.lock();
                        assert_eq!(both.0, both.1);
                        both.0 += 1;
                        if thread == 0 && round % 1000 == 0 {
                            std::thread::sleep(Duration::from_micros(200));
                        }
                        both.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*pair.lock(), (4 * EACH, 4 * EACH));
    }

    #[test]
    fn who_blocks_goes_on_when_it_is_given_up() {
        let word = Brief::<u64>::default();
        std::thread::scope(|scope| {
            let held = word.lock();
            for _ in 0..4 {
                scope.spawn(|| *word.lock() += 1);
            }
            while word.waiting.load(Ordering::SeqCst) < 4 {
                std::thread::yield_now();
            }
            drop(held);
        });
        assert_eq!(*word.lock(), 4);
    }
}
