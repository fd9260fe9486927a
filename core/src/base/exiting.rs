//! Keeps threads from destroying a driver while the process exits.
//!
//! `exit(3)`, and so the end of `main`, runs the destructors of all libraries while other threads
//! still run. The process crashes if one of these threads unloads a driver at that time. Threads of
//! the engine can do that: the watching thread of a device can hold the device's last handle. The
//! process also crashes if a driver executes work on a thread of the process at that time.
#![allow(unsafe_code, reason = "registers what runs at exit")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::base::process::MakerProcess;
use crate::base::run::run_contained;

/// The number of threads that destroy a driver's objects, plus [`EXITING`].
static STATE: AtomicUsize = AtomicUsize::new(0);

/// The bit of [`STATE`] which says that the process exits.
const EXITING: usize = 1 << (usize::BITS - 1);

/// The queues whose work an exit waits for, each with the process that has made it.
// A mutex of std: a process exits outside of every loom model, and only tries the lock.
static QUEUES: Mutex<Vec<(MakerProcess, Weak<dyn RunsInProcess>)>> = Mutex::new(Vec::new());

/// The longest time for which an exit waits for those threads and queues.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// A queue whose driver executes work on threads of this process.
pub trait RunsInProcess: Send + Sync {
    /// True if no work of the queue runs or waits in the driver. Does not block.
    fn is_idle(&self) -> bool;
}

/// A guard during which an exit of the process waits, for two seconds at most.
///
/// A backend holds one while it destroys a device or an instance, on whichever thread.
#[derive(Debug)]
pub struct TeardownGuard(());

impl TeardownGuard {
    /// Makes an exit wait for the guards before it runs the destructors of libraries.
    ///
    /// Call it each time a library of a driver has been loaded. An exit first runs what was
    /// registered last, and a library registers its destructors when it is loaded or first used.
    /// Each call takes 32 bytes of the C library's list.
    pub fn register() {
        // SAFETY: the function does not unwind, and lives as long as the code of this library.
        unsafe { libc::atexit(wait_for_teardowns) };
    }

    /// A guard, or `None` if the process exits already.
    ///
    /// After `None` the caller leaves the driver as it is. The system frees everything.
    #[must_use]
    pub fn begin() -> Option<Self> {
        // Other code may have loaded or initialized drivers since the last call.
        Self::register();
        Self::begin_registered()
    }

    fn begin_registered() -> Option<Self> {
        let own = Self(());
        let before = STATE.fetch_add(1, Ordering::SeqCst);
        (before & EXITING == 0).then_some(own)
    }

    /// Makes an exit also wait until `queue` is idle, unless the queue is gone by then.
    pub fn register_queue(queue: Weak<dyn RunsInProcess>) {
        Self::register();
        let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        queues.push((MakerProcess::this(), queue));
    }

    /// Drops an object that the application gave to be kept. An exit waits for the drop.
    ///
    /// Forgets the object if the process exits already. A panic of the drop ends here. If the drop
    /// may destroy a driver, call [`TeardownGuard::register`] before.
    pub fn drop_owner<T>(owner: T) {
        match Self::begin_registered() {
            Some(_guard) => run_contained(|| drop(owner)),
            None => std::mem::forget(owner),
        }
    }
}

impl Drop for TeardownGuard {
    fn drop(&mut self) {
        STATE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// In a forked child the lock may be held by a thread that the child does not have.
fn queues_of_this_process() -> Vec<Arc<dyn RunsInProcess>> {
    let Ok(queues) = QUEUES.try_lock() else {
        return Vec::new();
    };
    let own = queues.iter().filter(|(maker, _)| maker.is_this());
    own.filter_map(|(_, queue)| queue.upgrade()).collect()
}

extern "C" fn wait_for_teardowns() {
    // All registrations together wait no longer than this.
    static DEADLINE: OnceLock<Instant> = OnceLock::new();
    STATE.fetch_or(EXITING, Ordering::SeqCst);
    let deadline = *DEADLINE.get_or_init(|| Instant::now() + MAX_WAIT);
    let queues = queues_of_this_process();
    let is_done = || {
        let busy = queues.iter().any(|queue| !queue.is_idle());
        STATE.load(Ordering::SeqCst) == EXITING && !busy
    };
    while !is_done() && Instant::now() < deadline {
        sleep(Duration::from_micros(100));
    }
    // A drop could wait for work, or take a driver down.
    std::mem::forget(queues);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsInDrop;

    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            panic!("the owner's drop");
        }
    }

    #[test]
    fn a_panic_of_an_owners_drop_does_not_end_the_thread() {
        TeardownGuard::drop_owner(PanicsInDrop);
    }
}
