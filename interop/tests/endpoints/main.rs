//! P1, P3: endpoints as an application has them: descriptors that are none, a side that keeps to nothing, and other processes.

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

use syncline::process::Disagreement;
use syncline::{Error, PeerLoss};

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(20);

/// What descriptors and threads are counted in belongs to one test at a time.
struct Alone {
    _lock: MutexGuard<'static, ()>,
    had: (usize, usize),
}

impl Alone {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let lock = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // Threads of the test program that begin open a file for a moment, when they first allocate.
        // A closing thread of an earlier test may not have had its name when that was done, and so was not counted.
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

    /// As many descriptors and endpoints' threads as before. Threads that were joined are in /proc for a moment more.
    fn nothing_is_left(&self) {
        assert_eq!(soon(self.had), self.had);
    }
}

/// What [`now`] tells, once that is `had`, or if it does not come to that. Threads that look after a process have a file of its open for a moment.
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

/// How many descriptors this process has, and how many threads of endpoints.
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

fn error<T: std::fmt::Debug>(answer: Result<T, Disagreement>) -> Error {
    match answer.unwrap_err() {
        Disagreement::Error(error) => error,
        conflict => panic!("{conflict}"),
    }
}

fn loss(error: &Error) -> PeerLoss {
    match error {
        Error::PeerLost { how, .. } => *how,
        other => panic!("{other}"),
    }
}
