//! The lock of a driver queue, which applications can take, too.

use std::fmt;

use crate::base::run::wake_all;
use crate::base::sync::{AtomicU64, Condvar, Mutex, Ordering};
use crate::driver::enqueue::Waker;

/// The lock of a driver queue that needs external synchronization, such as a `VkQueue`.
///
/// The engine only tries it and never blocks. An application may block on it. A queue that finds
/// the gate locked leaves its waker there, and the unlocking thread wakes that queue. Without
/// contention, each of lock and unlock is one atomic operation.
pub struct Gate {
    word: AtomicU64,
    others: Mutex<Others>,
    unlocked: Condvar,
}

/// State of the word: the gate is not locked.
const FREE: u64 = 0;
/// State of the word: the gate is locked, and no thread or queue wants it.
const LOCKED: u64 = 1;
/// State of the word: the gate is locked, and the unlocking thread must wake those in [`Others`].
const WANTED: u64 = 2;

/// The threads and queues that found the gate locked.
///
/// The word is set to [`WANTED`] under the mutex around this. So an unlocking thread that reads
/// `WANTED` finds them here. The mutex is held only for a few instructions, so a try does not block
/// for long.
#[derive(Default)]
struct Others {
    /// The number of application threads that block.
    waiting: usize,
    /// The wakers of queues that did not block.
    blocked: Vec<Waker>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(FREE),
            others: Mutex::default(),
            unlocked: Condvar::default(),
        }
    }
}

impl Gate {
    /// Takes the lock, or leaves the waker for the thread that holds it. Never blocks.
    #[must_use = "it stays locked until it is unlocked"]
    #[inline]
    pub fn try_lock(&self, waker: &dyn Fn() -> Waker) -> bool {
        self.change(FREE, LOCKED) || self.try_lock_again(waker)
    }

    #[cold]
    fn try_lock_again(&self, waker: &dyn Fn() -> Waker) -> bool {
        let mut others = self.others.lock();
        let taken = self.take_or_want(&others);
        if !taken {
            others.blocked.push(waker());
        }
        taken
    }

    /// Takes the lock. Blocks while another thread has it.
    pub fn lock(&self) {
        if self.change(FREE, LOCKED) {
            return;
        }
        let mut others = self.others.lock();
        while !self.take_or_want(&others) {
            others.waiting += 1;
            others = self.unlocked.wait(others);
            others.waiting -= 1;
        }
    }

    /// Takes the lock if it is free. Otherwise sets the word to [`WANTED`] and returns false.
    ///
    /// The caller holds the mutex of `others`. Only code that holds it writes `WANTED`.
    fn take_or_want(&self, others: &Others) -> bool {
        // The last holder woke only some of the waiting threads, or none. This holder wakes the
        // rest.
        let taken = if others.waiting == 0 && others.blocked.is_empty() {
            LOCKED
        } else {
            WANTED
        };
        loop {
            if self.change(FREE, taken) {
                return true;
            }
            let wanted =
                self.word
                    .compare_exchange(LOCKED, WANTED, Ordering::Relaxed, Ordering::Relaxed);
            if matches!(wanted, Ok(_) | Err(WANTED)) {
                return false;
            }
        }
    }

    /// Unlocks the gate and wakes the threads and queues that found it locked.
    ///
    /// Queues then submit on this thread. Any thread may unlock, not only the one that locked.
    #[inline]
    pub fn unlock(&self) {
        if self.word.swap(FREE, Ordering::Release) == WANTED {
            self.look_after_others();
        }
    }

    #[cold]
    fn look_after_others(&self) {
        let blocked = {
            let mut others = self.others.lock();
            if others.waiting > 0 {
                self.unlocked.notify_one();
            }
            std::mem::take(&mut others.blocked)
        };
        wake_all(blocked.into_iter().map(|waker| waker.0));
    }

    #[inline]
    fn change(&self, from: u64, to: u64) -> bool {
        self.word
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locked = self.word.load(Ordering::Relaxed) != FREE;
        write!(f, "Gate({})", if locked { "locked" } else { "free" })
    }
}
