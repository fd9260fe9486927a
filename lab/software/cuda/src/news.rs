//! A condition on which threads sleep that wait for the progress of any stream of this process.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::lock;

/// How often a waiting thread checks before it sleeps.
const LOOKS: u32 = 16;

static SLEEPERS: AtomicUsize = AtomicUsize::new(0);
static LOCK: Mutex<()> = Mutex::new(());
static CHANGED: Condvar = Condvar::new();

/// Wakes the waiting threads. Call after each change that one of them may wait for.
pub(crate) fn tell() {
    // Pairs with the increment in `wait_until`: either the sleeper sees the change, or it is seen
    // here.
    fence(Ordering::SeqCst);
    if SLEEPERS.load(Ordering::SeqCst) > 0 {
        drop(lock(&LOCK));
        CHANGED.notify_all();
    }
}

/// Returns once `ready` is true. It is called again after each [`tell`].
///
/// `ready` is called with a lock that `tell` takes, so it must not wait for another thread.
pub(crate) fn wait_until(ready: impl Fn() -> bool) {
    for _ in 0..LOOKS {
        if ready() {
            return;
        }
        std::thread::yield_now();
    }
    let mut held = lock(&LOCK);
    SLEEPERS.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    while !ready() {
        held = CHANGED.wait(held).unwrap_or_else(PoisonError::into_inner);
    }
    SLEEPERS.fetch_sub(1, Ordering::SeqCst);
}
