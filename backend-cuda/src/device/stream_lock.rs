//! Which thread has a stream to itself: for one submission, or for the application.

use std::marker::PhantomData;
use std::sync::Condvar;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use syncline_core::backend::Mutex;

/// A lock without a guard, which the engine only ever tries, and which a thread of the application can take again
/// while it has it.
#[derive(Default)]
pub(crate) struct StreamLock {
    /// The thread that has it; 0 for none.
    owner: AtomicUsize,
    /// How often the owner has taken it.
    depth: AtomicU64,
    /// How many threads block.
    waiting: AtomicUsize,
    changed: (Mutex<()>, Condvar),
}

/// After so long who blocks looks again, though nobody has told him anything.
const RETRY: Duration = Duration::from_millis(1);

/// A number for this thread, unlike that of any other that lives.
#[inline]
fn this_thread() -> usize {
    thread_local! { static HERE: u8 = const { 0 } }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl StreamLock {
    /// Takes it if nobody has it, not even this thread. For the engine.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        let taken = self
            .owner
            .compare_exchange(0, this_thread(), Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if taken {
            self.depth.store(1, Ordering::Relaxed);
        }
        taken
    }

    /// Takes it, or blocks until nobody else has it.
    pub(crate) fn lock(&self) -> StreamLockGuard<'_> {
        if let Some(held) = self.try_lock_reentrant() {
            return held;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.changed.0.lock();
        // Whoever leaves looks for who waits, but without the barrier that would let one of the two see the other in any
        // case: each submission would pay for that. Who was not seen looks again by himself.
        while !self.try_lock() {
            guard = self
                .changed
                .1
                .wait_timeout(guard, RETRY)
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.assume_locked()
    }

    /// Takes it if nobody else has it. Never blocks.
    pub(crate) fn try_lock_reentrant(&self) -> Option<StreamLockGuard<'_>> {
        if self.owner.load(Ordering::Relaxed) == this_thread() {
            let depth = self.depth.load(Ordering::Relaxed);
            self.depth.store(depth + 1, Ordering::Relaxed);
            return Some(self.assume_locked());
        }
        self.try_lock().then(|| self.assume_locked())
    }

    /// True if a thread blocks until it gets it.
    #[cfg(test)]
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Somebody may have it now.
    #[cold]
    fn wake_waiters(&self) {
        drop(self.changed.0.lock());
        self.changed.1.notify_all();
    }

    /// What [`Turn::try_enter`] took, to be given up with what is returned.
    #[inline]
    pub(crate) const fn assume_locked(&self) -> StreamLockGuard<'_> {
        StreamLockGuard {
            lock: self,
            _this_thread: PhantomData,
        }
    }
}

/// Takes both turns; one of them twice if they are the same. The order is that of their addresses,
/// so that two threads which take the same two do not block each other.
pub(crate) fn lock_both<'t>(
    one: &'t StreamLock,
    other: &'t StreamLock,
) -> (StreamLockGuard<'t>, StreamLockGuard<'t>) {
    if std::ptr::from_ref(one) <= std::ptr::from_ref(other) {
        let first = one.lock();
        (first, other.lock())
    } else {
        let first = other.lock();
        (one.lock(), first)
    }
}

/// The turn, until it is dropped. That happens on the thread that took it.
pub(crate) struct StreamLockGuard<'t> {
    lock: &'t StreamLock,
    _this_thread: PhantomData<*const ()>,
}

impl StreamLockGuard<'_> {
    /// True if it is that turn.
    pub(crate) fn is_for(&self, lock: &StreamLock) -> bool {
        std::ptr::eq(self.lock, lock)
    }
}

impl Drop for StreamLockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Only the owner has anything to do with the depth.
        let depth = self.lock.depth.load(Ordering::Relaxed);
        if depth > 1 {
            self.lock.depth.store(depth - 1, Ordering::Relaxed);
            return;
        }
        self.lock.owner.store(0, Ordering::Release);
        if self.lock.waiting.load(Ordering::Acquire) > 0 {
            self.lock.wake_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_takes_it_again_and_the_engine_never_waits() {
        let lock = StreamLock::default();
        let first = lock.lock();
        let second = lock.lock();
        assert!(!lock.try_lock());
        drop(first);
        assert!(!lock.try_lock());
        drop(second);
        assert!(lock.try_lock());
        assert!(!lock.try_lock());
        drop(lock.assume_locked());
        assert!(lock.try_lock());
    }

    #[test]
    fn others_wait_for_it() {
        let (lock, left) = (StreamLock::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let held = lock.lock();
            for _ in 0..4 {
                scope.spawn(|| {
                    let _held = lock.lock();
                    assert!(left.load(Ordering::SeqCst));
                });
            }
            std::thread::sleep(Duration::from_millis(20));
            left.store(true, Ordering::SeqCst);
            drop(held);
        });
        assert!(lock.try_lock());
    }
}
