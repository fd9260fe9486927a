//! The lock of a stream: one thread holds it for a submission, or the application holds it.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use syncline_core::backend::kit::{Condvar, Mutex};

/// A reentrant lock, held by a thread until it drops its guards.
///
/// The engine only tries the lock and never blocks on it. A thread of the application that holds
/// the lock may take it again.
#[derive(Default)]
pub(crate) struct StreamLock {
    /// The thread that holds the lock, or 0.
    owner: AtomicUsize,
    /// How often the owner has taken it.
    depth: AtomicU64,
    /// The number of blocked threads.
    waiting: AtomicUsize,
    changed: (Mutex<()>, Condvar),
}

/// A blocked thread retries after this time even if no other thread has woken it.
const RETRY: Duration = Duration::from_millis(1);

/// A number for this thread. No other living thread has the same number.
#[inline]
fn this_thread() -> usize {
    thread_local! { static HERE: u8 = const { 0 } }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl StreamLock {
    /// Takes the lock if no thread holds it, not even this thread. For the engine.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<StreamLockGuard<'_>> {
        self.owner
            .compare_exchange(0, this_thread(), Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        Some(self.hold(1))
    }

    /// Takes the lock, and blocks while another thread holds it.
    pub(crate) fn lock(&self) -> StreamLockGuard<'_> {
        if let Some(held) = self.try_lock_reentrant() {
            return held;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.changed.0.lock();
        // The unlocking thread checks for blocked threads without a full barrier, because each
        // submission would pay for the barrier. A blocked thread that it misses retries after
        // [`RETRY`].
        let held = loop {
            match self.try_lock() {
                Some(held) => break held,
                None => guard = self.changed.1.wait_timeout(guard, RETRY),
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        held
    }

    /// Takes the lock if no other thread holds it. Never blocks.
    pub(crate) fn try_lock_reentrant(&self) -> Option<StreamLockGuard<'_>> {
        if self.owner.load(Ordering::Relaxed) == this_thread() {
            return Some(self.hold(self.depth.load(Ordering::Relaxed) + 1));
        }
        self.try_lock()
    }

    /// True if a thread is blocked in [`StreamLock::lock`].
    #[cfg(test)]
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Wakes the blocked threads after the lock was released.
    #[cold]
    fn wake_waiters(&self) {
        drop(self.changed.0.lock());
        self.changed.1.notify_all();
    }

    /// The guard of this thread, which owns the lock, for its `depth`-th lock.
    #[inline]
    fn hold(&self, depth: u64) -> StreamLockGuard<'_> {
        self.depth.store(depth, Ordering::Relaxed);
        StreamLockGuard {
            lock: self,
            _this_thread: PhantomData,
        }
    }
}

/// Takes both locks, or one lock twice if they are the same.
///
/// The order is that of their addresses, so two threads that take the same two locks cannot
/// deadlock.
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

/// Holds a [`StreamLock`] until it is dropped, on the thread that took it.
pub(crate) struct StreamLockGuard<'t> {
    lock: &'t StreamLock,
    _this_thread: PhantomData<*const ()>,
}

impl StreamLockGuard<'_> {
    /// True if this guard holds `lock`.
    pub(crate) fn is_for(&self, lock: &StreamLock) -> bool {
        std::ptr::eq(self.lock, lock)
    }
}

impl Drop for StreamLockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Only the owner reads and writes the depth.
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
    fn a_thread_locks_again_and_the_engine_never_blocks() {
        let lock = StreamLock::default();
        let first = lock.lock();
        let second = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(first);
        assert!(lock.try_lock().is_none());
        drop(second);
        let engine = lock.try_lock();
        assert!(engine.is_some());
        assert!(lock.try_lock().is_none());
        drop(engine);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn other_threads_block_until_the_unlock() {
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
        assert!(lock.try_lock().is_some());
    }
}
