//! Reports calls of a driver that come while the process exits.
#![allow(unsafe_code, reason = "registers what runs at exit")]

use std::ffi::c_int;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

/// The number of milliseconds for which an exit stays in the driver's destructors. Unset: 0.
const PAUSE: &str = "SYNCLINE_SOFTWARE_EXIT_PAUSE";

/// `1`: the exiting thread may make no call either.
const STRICT: &str = "SYNCLINE_SOFTWARE_EXIT_STRICT";

/// The thread that runs the driver's destructors, or 0.
static EXITS: AtomicI32 = AtomicI32::new(0);

/// See [`STRICT`].
static IS_STRICT: AtomicBool = AtomicBool::new(false);

fn this_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Stands for the destructors of a real driver.
extern "C" fn destructors() {
    let strict = std::env::var(STRICT).is_ok_and(|text| text == "1");
    IS_STRICT.store(strict, Ordering::Relaxed);
    EXITS.store(this_thread(), Ordering::SeqCst);
    let pause = std::env::var(PAUSE).ok().and_then(|text| text.parse().ok());
    std::thread::sleep(Duration::from_millis(pause.unwrap_or(0)));
}

/// Registers the driver's destructors, once. Call it when an application begins to use the driver.
pub fn register_destructors() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the function does not unwind. The C library calls it before the code is unloaded.
        unsafe { atexit(destructors) };
    }
}

/// Aborts the process if another thread has begun to run the driver's destructors.
///
/// A real driver would use what its destructors have freed. The exiting thread may call, unless
/// `STRICT` is set: a driver can answer it with an error.
#[inline]
pub fn check_exit(call: &str) {
    let exits = EXITS.load(Ordering::SeqCst);
    if exits != 0 && (exits != this_thread() || IS_STRICT.load(Ordering::Relaxed)) {
        let _ = writeln!(
            std::io::stderr(),
            "software driver: {call} during the exit of the process, after the destructors of the driver"
        );
        std::process::abort();
    }
}
