//! No driver is taken down while the process exits.
//!
//! `exit(3)`, and with it the end of `main`, runs the destructors of all libraries while other threads go on. The process crashes if one of
//! these threads unloads a driver meanwhile. Such a thread may be one of ours: the thread that watches a device can have its last handle.
#![allow(unsafe_code, reason = "registers what runs at exit")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How many threads take a driver down, and [`EXITS`].
static STATE: AtomicUsize = AtomicUsize::new(0);

/// The process exits.
const EXITS: usize = 1 << (usize::BITS - 1);

/// How long an exit waits for those threads at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// An exit of the process waits while one of these lives, for two seconds at most.
///
/// A backend has one while it destroys a device or an instance, on whichever thread.
#[derive(Debug)]
pub struct TakingDown(());

impl TakingDown {
    /// Called whenever libraries of a driver have been loaded, so that an exit is known of before their destructors run.
    pub fn prepare() {
        // What is registered last runs first.
        // SAFETY: the function is valid for as long as this library is, and does not unwind.
        unsafe { libc::atexit(wait_for_the_others) };
    }

    /// `None` if the process exits already: the caller leaves the driver as it is then, and the system frees everything.
    #[must_use]
    pub fn begin() -> Option<Self> {
        // Others may have loaded drivers since.
        Self::prepare();
        let own = Self(());
        let before = STATE.fetch_add(1, Ordering::SeqCst);
        (before & EXITS == 0).then_some(own)
    }

    /// Drops what an application has given to be kept, which may take a driver down. Forgets it if the process exits already.
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

extern "C" fn wait_for_the_others() {
    STATE.fetch_or(EXITS, Ordering::SeqCst);
    let begun = Instant::now();
    while STATE.load(Ordering::SeqCst) != EXITS && begun.elapsed() < PATIENCE {
        sleep(Duration::from_micros(100));
    }
}
