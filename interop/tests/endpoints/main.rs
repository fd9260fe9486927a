//! P1, P3: endpoints as an application uses them.
//!
//! Covers wrong descriptors, peers that break the protocol, and other processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unsafe_code,
    missing_docs
)]

mod descriptors;
#[path = "../../src/process/tests/heap.rs"]
mod heap;
mod hostile;
mod listeners;
mod plans;
mod points;
mod processes;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use syncline::{Error, error::PeerLoss};

/// Time limit for everything that ends by itself.
const LONG: Duration = Duration::from_secs(20);

/// Runs one test at a time, because descriptors and threads are counted for the whole process.
struct Alone {
    _lock: MutexGuard<'static, ()>,
    had: (usize, usize),
}

impl Alone {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let lock = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // A new thread of the test program opens a file for a moment when it first allocates.
        // A closing thread of an earlier test may not have its name yet. It is counted later.
        let begin = Instant::now();
        let mut had = now();
        let mut same = 0;
        while same < 3 {
            let next = now();
            let is_quiet = next.1 == 0 || begin.elapsed() > LONG;
            same = if next == had && is_quiet { same + 1 } else { 0 };
            had = next;
        }
        Self { _lock: lock, had }
    }

    /// Checks that this process has as many descriptors and endpoint threads as before.
    ///
    /// Retries, because a joined thread stays in /proc for a moment.
    fn nothing_is_left(&self) {
        assert_eq!(soon(self.had), self.had);
    }
}

/// Repeats [`now`] until it returns `had`, up to a time limit. Returns the last result.
///
/// Threads that watch a process open a file of it for a moment.
fn soon(had: (usize, usize)) -> (usize, usize) {
    let begin = Instant::now();
    loop {
        let found = now();
        if found == had || begin.elapsed() > LONG {
            return found;
        }
        std::thread::yield_now();
    }
}

/// Counts the descriptors and the endpoint threads of this process.
fn now() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let threads = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter(|task| {
            let name = task.as_ref().unwrap().path().join("comm");
            std::fs::read_to_string(name).is_ok_and(|name| {
                let name = name.trim();
                name == "syncline-peer" || name == "syncline-close"
            })
        });
    (descriptors, threads.count())
}

fn loss(error: &Error) -> PeerLoss {
    match error {
        Error::PeerLost { how, .. } => *how,
        other => panic!("{other}"),
    }
}
