//! Keeps threads from destroying a driver while the process exits.
//!
//! `exit(3)`, and so the end of `main`, runs the destructors of all libraries while other threads
//! still run. The process crashes if one of these threads unloads a driver at that time. Threads of
//! the engine can do that: the watching thread of a device can hold the device's last handle.
#![allow(unsafe_code, reason = "registers what runs at exit")]

use std::sync::OnceLock;
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
        let own = Self(());
        let before = STATE.fetch_add(1, Ordering::SeqCst);
        (before & EXITING == 0).then_some(own)
    }

    /// Drops an object that the application gave to be kept. The drop may destroy a driver.
    ///
    /// Forgets the object if the process exits already.
    pub fn drop_owner<T>(owner: T) {
        match Self::begin() {
            Some(_guard) => drop(owner),
            None => std::mem::forget(owner),
        }
    }
}

impl Drop for TeardownGuard {
    fn drop(&mut self) {
        STATE.fetch_sub(1, Ordering::SeqCst);
    }
}

extern "C" fn wait_for_teardowns() {
    // All registrations together wait no longer than this.
    static DEADLINE: OnceLock<Instant> = OnceLock::new();
    STATE.fetch_or(EXITING, Ordering::SeqCst);
    let deadline = *DEADLINE.get_or_init(|| Instant::now() + MAX_WAIT);
    while STATE.load(Ordering::SeqCst) != EXITING && Instant::now() < deadline {
        sleep(Duration::from_micros(100));
    }
}
