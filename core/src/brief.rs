//! A lock for what takes a few instructions.
#![allow(unsafe_code, reason = "lends out what it guards")]

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A lock for what is mostly changed in a few instructions, and never kept while a driver is called or what is the application's runs; at
/// the longest, while lists are gone through, or the graph of what is held. So it is hardly ever found taken, and what it costs is what counts. It is given up by a store, which is no barrier, and asks nothing of
/// panics: together 40 instructions and two locked ones fewer than std's mutex for each signal of a CUDA timeline, which takes it twice, and a
/// fourteenth of its time. Who finds it taken for long sleeps, and is told; or looks again after a millisecond, if he was not seen.
pub struct Brief<T> {
    word: Word,
    guarded: UnsafeCell<T>,
}

// SAFETY: a shared `Brief` lends what it guards to one `Briefly` at a time, on whichever thread, so that only `Send` is
// needed of it. Taking the lock acquires what giving it up has released.
unsafe impl<T: Send> Sync for Brief<T> {}

/// The lock, whatever it guards.
struct Word {
    taken: AtomicBool,
    /// How many threads block.
    waiting: AtomicUsize,
    freed: (Mutex<()>, Condvar),
}

/// So often a thread looks before it blocks: some microseconds, much longer than the lock is held by a thread that runs.
const LOOKS: u32 = 200;

/// After so long who blocks looks again, though nobody has told him anything.
const UNSEEN: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 1 });

impl<T: Default> Default for Brief<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Brief<T> {
    /// Guards `value`.
    #[must_use]
    pub const fn new(value: T) -> Self {
        let word = Word {
            taken: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            freed: (Mutex::new(()), Condvar::new()),
        };
        Self {
            word,
            guarded: UnsafeCell::new(value),
        }
    }

    /// Takes the lock, or blocks until it is given up, and gives it up when the result is dropped.
    #[inline]
    pub fn lock(&self) -> Briefly<'_, T> {
        if !self.word.take() {
            wait(&self.word);
        }
        Briefly {
            of: self,
            lent: PhantomData,
        }
    }
}

impl Word {
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
}

/// Takes the lock that another thread has. In C's way, as [`tell`]: so who locks knows that no panic comes out of it, and keeps in registers
/// what he would have to drop then.
#[cold]
extern "C" fn wait(word: &Word) {
    if word.take_within_a_few_looks() {
        return;
    }
    // Whoever gives the lock up looks for who waits, but without the barrier that would let one of the two see the other in
    // any case. He is seen to have given it up while this looks again, if he has not seen this; and if it is not so, this
    // looks by itself.
    word.waiting.fetch_add(1, Ordering::SeqCst);
    while !word.take_within_a_few_looks() {
        let guard = word.freed.0.lock();
        if word.take() {
            break;
        }
        let guard = guard.unwrap_or_else(PoisonError::into_inner);
        drop(word.freed.1.wait_timeout(guard, UNSEEN));
    }
    word.waiting.fetch_sub(1, Ordering::SeqCst);
}

/// Somebody may have it now.
#[cold]
extern "C" fn tell(word: &Word) {
    drop(word.freed.0.lock());
    word.freed.1.notify_one();
}

/// The lock, until it is dropped.
pub struct Briefly<'b, T> {
    of: &'b Brief<T>,
    /// Goes from thread to thread as that does.
    lent: PhantomData<&'b mut T>,
}

impl<T> Deref for Briefly<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this has the lock until it is dropped, which no other `Briefly` of the same `Brief` has then.
        unsafe { &*self.of.guarded.get() }
    }
}

impl<T> DerefMut for Briefly<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; and this is borrowed mutably, so no reference from `deref` is left.
        unsafe { &mut *self.of.guarded.get() }
    }
}

impl<T> Drop for Briefly<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let word = &self.of.word;
        word.taken.store(false, Ordering::Release);
        if word.waiting.load(Ordering::Relaxed) > 0 {
            tell(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

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
            while word.word.waiting.load(Ordering::SeqCst) < 4 {
                std::thread::yield_now();
            }
            drop(held);
            let told = Instant::now();
            while *word.lock() < 4 {
                // Long before they look by themselves.
                assert!(told.elapsed() < UNSEEN / 2, "somebody was not told");
                std::thread::yield_now();
            }
        });
    }
}
