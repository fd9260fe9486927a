//! A lock on a driver's queue that applications can take, too.

use std::fmt;

use crate::base::run::wake_all;
use crate::base::sync::{AtomicU64, Condvar, Mutex, Ordering};
use crate::driver::enqueue::Waker;

/// A lock that the engine only ever tries, since it must not block, and that an application may block for. Guards what
/// a driver wants called by one thread at a time.
///
/// A queue that finds it locked leaves its waker, and whoever unlocks wakes it. Where nobody meets, each of locking and
/// unlocking is one instruction.
pub struct Gate {
    word: AtomicU64,
    others: Mutex<Others>,
    unlocked: Condvar,
}

/// What the word says. Nobody holds it.
const FREE: u64 = 0;
/// Somebody holds it.
const LOCKED: u64 = 1;
/// Somebody holds it, and who unlocks has to look after the others.
const WANTED: u64 = 2;

/// Those who found it locked. The word says that there are such, and that is written under their mutex: so whoever
/// unlocks and reads it finds them. The mutex is only ever held for a few instructions, so that trying never blocks.
#[derive(Default)]
struct Others {
    /// Threads of the application that block.
    waiting: usize,
    /// Queues that have gone on to other things.
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
    /// Takes the lock, or leaves the waker with whoever has it. Never blocks.
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

    /// Takes the lock if it is free, else tells whoever has it that somebody wants it. To be called with the others'
    /// mutex: no one else writes that the lock is wanted.
    fn take_or_want(&self, others: &Others) -> bool {
        // Whom the one before has not looked after is left to this one.
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

    /// Gives the lock up, for whoever has it, and wakes who found it locked: queues then submit on this thread.
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
