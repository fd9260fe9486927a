//! Keeps threads from destroying a driver while the process exits.
//!
//! `exit(3)`, and so the end of `main`, runs the destructors of all libraries while other threads
//! still run. The process crashes if one of these threads unloads a driver at that time. Threads of
//! the engine can do that: the watching thread of a device can hold the device's last handle.
#![allow(unsafe_code, reason = "registers what runs at exit")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
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
    /// registered last, and a library registers its destructors when it is loaded.
    pub fn register() {
        let mut has_removal = HAS_REMOVAL.lock().unwrap_or_else(PoisonError::into_inner);
        MOVES.set(true);
        // SAFETY: the functions do not unwind. They are valid until this library is unloaded, which
        // removes both: its own exit functions run then, and `remove` is one of them.
        unsafe {
            *has_removal = *has_removal || libc::atexit(remove) == 0;
            if *has_removal {
                // Frees the place of the earlier registration, so that the list does not grow.
                __cxa_finalize(owner());
                __cxa_atexit(wait_for_teardowns, null_mut(), owner());
            }
        }
        MOVES.set(false);
    }

    /// A guard, or `None` if the process exits already.
    ///
    /// After `None` the caller leaves the driver as it is. The system frees everything.
    #[must_use]
    pub fn begin() -> Option<Self> {
        // Other code may have loaded drivers since the last call.
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

// The functions behind atexit(3) and dlclose(3) (Itanium C++ ABI, 3.3.6). The last parameter says
// which library a function belongs to.
unsafe extern "C" {
    fn __cxa_atexit(
        function: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
    /// Runs and removes the functions of a library.
    fn __cxa_finalize(library: *mut c_void);
}

/// Whether [`remove`] is registered. The lock is held while [`wait_for_teardowns`] is moved.
static HAS_REMOVAL: Mutex<bool> = Mutex::new(false);

thread_local! {
    /// True while this thread moves [`wait_for_teardowns`] to the end of the list. The C library
    /// calls it then, without an exit.
    static MOVES: Cell<bool> = const { Cell::new(false) };
}

/// Stands for a library that has [`wait_for_teardowns`] as its only exit function.
fn owner() -> *mut c_void {
    static OWNER: AtomicUsize = AtomicUsize::new(0);
    OWNER.as_ptr().cast()
}

/// Removes [`wait_for_teardowns`] when this library is unloaded.
extern "C" fn remove() {
    // SAFETY: it has one function at most, which does not unwind.
    unsafe { __cxa_finalize(owner()) };
}

extern "C" fn wait_for_teardowns(_: *mut c_void) {
    if MOVES.get() {
        return;
    }
    // An exit runs it again if a thread registers it meanwhile.
    static DEADLINE: OnceLock<Instant> = OnceLock::new();
    STATE.fetch_or(EXITING, Ordering::SeqCst);
    let deadline = *DEADLINE.get_or_init(|| Instant::now() + MAX_WAIT);
    while STATE.load(Ordering::SeqCst) != EXITING && Instant::now() < deadline {
        sleep(Duration::from_micros(100));
    }
}
