//! The synchronization primitives of std.

use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

pub use std::sync::MutexGuard;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub(crate) use std::thread::{Thread, current, park, park_timeout, yield_now};
pub(crate) use std::time::Instant;

/// The id of a thread. Ids are not reused in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadId(std::num::NonZeroU64);

impl ThreadId {
    /// The id as a number, which is not 0.
    #[inline]
    pub(crate) const fn number(self) -> u64 {
        self.0.get()
    }
}

/// The calling thread's id. Several times as fast as std's, which counts references to the thread.
#[inline]
pub(crate) fn this_thread() -> ThreadId {
    use std::cell::Cell;
    use std::num::NonZeroU64;
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    std::thread_local! { static OWN: Cell<Option<NonZeroU64>> = const { Cell::new(None) } }
    OWN.with(|own| {
        ThreadId(own.get().unwrap_or_else(|| {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            let id = NonZeroU64::new(next).unwrap_or(NonZeroU64::MAX);
            own.set(Some(id));
            id
        }))
    })
}

/// True if it can be worth it to poll for a while before parking.
pub(crate) const CAN_SPIN: bool = true;

/// A mutex that ignores poisoning.
///
/// Every critical section leaves its data valid at each step. So a panic of the thread that holds
/// the lock does not make the data unusable for other threads.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that guards `value`.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Takes the lock, and blocks while another thread holds it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(test)]
        LOCKS.set(LOCKS.get() + 1);
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if no thread holds it. Does not block.
    #[must_use]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        #[cfg(test)]
        LOCKS.set(LOCKS.get() + 1);
        Some(guard)
    }
}

#[cfg(test)]
std::thread_local! { static LOCKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) } }

/// The number of locks that the calling thread has taken.
#[cfg(test)]
pub(crate) fn locks_taken() -> u64 {
    LOCKS.get()
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Releases the lock and blocks until notified. May also return without a notification.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks as long as `condition` is true.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_while(guard, condition);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Same as [`Condvar::wait`], but returns after `timeout` at the latest.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout(guard, timeout);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Blocks as long as `condition` is true, but until `timeout` has passed at the latest.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout_while(guard, timeout, condition);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
}

/// Starts a detached thread.
///
/// # Errors
/// The system's error if it cannot create a thread.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = std::thread::Builder::new().name(name.into());
    builder.spawn(run).map(drop)
}

/// Runs `action` and returns its panic. The panic hook still reports it.
pub(crate) fn caught<T>(action: impl FnOnce() -> T) -> std::thread::Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(action))
}

/// Runs `action` and catches its panic. The panic hook still reports it.
pub(crate) fn contain(action: impl FnOnce()) {
    if let Err(payload) = caught(action) {
        // The drop of the payload may panic, too. The payload of that panic is forgotten, because
        // its drop might panic again.
        if let Err(again) = caught(|| drop(payload)) {
            std::mem::forget(again);
        }
    }
}

/// The same time as an `Instant` of std, for callers outside the engine.
pub(crate) const fn system_time(time: Instant) -> std::time::Instant {
    time
}

/// Declares a variable of the process with a constant initial value.
macro_rules! per_process {
    (static $name:ident: $type:ty = $initial:expr) => {
        static $name: $type = $initial;
    };
}
pub(crate) use per_process;

/// Declares a thread-local variable with a constant initial value.
macro_rules! per_thread {
    (static $name:ident: $type:ty = $initial:expr) => {
        std::thread_local! {
            static $name: $type = const { $initial };
        }
    };
}
pub(crate) use per_thread;
