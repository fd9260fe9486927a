//! The lock of a driver queue, which applications can take, too.

use std::fmt;

use crate::base::run::wake_all;
use crate::base::sync::{AtomicU64, Condvar, Mutex, Ordering, this_thread};
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

/// The word of a gate that is not locked. Otherwise it has the owner's id above the lowest bit.
const FREE: u64 = 0;
/// The lowest bit of the word: the unlocking thread must wake those in [`Others`].
const WANTED: u64 = 1;

/// The word of a gate that the calling thread has locked, and that no thread or queue wants.
#[inline]
fn locked_here() -> u64 {
    this_thread().number() << 1
}

/// The threads and queues that found the gate locked.
///
/// [`WANTED`] is set under the mutex around this. So an unlocking thread that reads the bit finds
/// them here. The mutex is held only for a few instructions, so a try does not block
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
        self.change(FREE, locked_here()) || self.try_lock_again(waker)
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
    ///
    /// Returns false, without an effect, if the calling thread has it already.
    #[must_use = "the lock may not be taken"]
    pub fn lock(&self) -> bool {
        let locked = locked_here();
        if self.change(FREE, locked) {
            return true;
        }
        // Only this thread writes and removes its own id.
        if self.word.load(Ordering::Relaxed) & !WANTED == locked {
            return false;
        }
        let mut others = self.others.lock();
        while !self.take_or_want(&others) {
            others.waiting += 1;
            others = self.unlocked.wait(others);
            others.waiting -= 1;
        }
        true
    }

    /// Takes the lock if it is free. Otherwise sets [`WANTED`] and returns false.
    ///
    /// The caller holds the mutex of `others`. Only code that holds it sets the bit.
    fn take_or_want(&self, others: &Others) -> bool {
        // The last holder woke only some of the waiting threads, or none. This holder wakes the
        // rest.
        let taken = if others.waiting == 0 && others.blocked.is_empty() {
            locked_here()
        } else {
            locked_here() | WANTED
        };
        loop {
            if self.change(FREE, taken) {
                return true;
            }
            let found = self.word.load(Ordering::Relaxed);
            if found & WANTED != 0 {
                return false;
            }
            if found != FREE
                && self
                    .word
                    .compare_exchange(found, found | WANTED, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                return false;
            }
        }
    }

    /// Unlocks the gate and wakes the threads and queues that found it locked.
    ///
    /// Queues then submit on this thread. The thread that has locked unlocks.
    #[inline]
    pub fn unlock(&self) {
        if self.word.swap(FREE, Ordering::Release) & WANTED != 0 {
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
