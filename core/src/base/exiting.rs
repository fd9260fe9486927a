//! Keeps threads from destroying a driver while the process exits.
//!
//! `exit(3)`, and so the end of `main`, runs the destructors of all libraries while other threads
//! still run. The process crashes if one of these threads unloads a driver at that time. Threads of
//! the engine can do that: the watching thread of a device can hold the device's last handle.
#![allow(unsafe_code, reason = "registers what runs at exit")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The number of threads that destroy a driver's objects, plus [`EXITING`].
static STATE: AtomicUsize = AtomicUsize::new(0);

/// The bit of [`STATE`] which says that the process exits.
const EXITING: usize = 1 << (usize::BITS - 1);

/// The longest time for which an exit waits for those threads.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// A guard during which an exit of the process waits, for two seconds at most.
///
/// A backend holds one while it destroys a device or an instance, on whichever thread.
#[derive(Debug)]
pub struct TakingDown(());

impl TakingDown {
    /// Registers with atexit(3). Call it each time a library of a driver has been loaded.
    ///
    /// The engine is then told of an exit before the library's destructors run.
    pub fn prepare() {
        // The function that was registered last runs first.
        // SAFETY: the function is valid for as long as this library is, and does not unwind.
        unsafe { libc::atexit(wait_for_teardowns) };
    }

    /// A guard, or `None` if the process exits already.
    ///
    /// After `None` the caller leaves the driver as it is. The system frees everything.
    #[must_use]
    pub fn begin() -> Option<Self> {
        // Other code may have loaded drivers since the last call.
        Self::prepare();
        let own = Self(());
        let before = STATE.fetch_add(1, Ordering::SeqCst);
        (before & EXITING == 0).then_some(own)
    }

    /// Drops an application's object that was to be kept, and whose drop may destroy a driver.
    ///
    /// Forgets the object if the process exits already.
    pub fn let_go<T>(owner: T) {
        match Self::begin() {
            Some(_going) => drop(owner),
            None => std::mem::forget(owner),
        }
    }
}

impl Drop for TakingDown {
    fn drop(&mut self) {
        STATE.fetch_sub(1, Ordering::SeqCst);
    }
}

extern "C" fn wait_for_teardowns() {
    STATE.fetch_or(EXITING, Ordering::SeqCst);
    let begun = Instant::now();
    while STATE.load(Ordering::SeqCst) != EXITING && begun.elapsed() < MAX_WAIT {
        sleep(Duration::from_micros(100));
    }
}
