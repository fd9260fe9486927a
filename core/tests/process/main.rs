//! Tests of state that belongs to a whole process: its descriptors, threads and memory.
//!
//! Some of them start other processes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod counters;
mod descriptors;
mod exits;
mod no_thread;
#[path = "../engine/words/mod.rs"]
mod words;

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Locks out other tests. For tests that make or count descriptors or threads.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The result of `count`, once three more calls in a row return the same.
///
/// A thread of the test program that is starting has a file open for a moment.
fn settled<T: PartialEq>(count: impl Fn() -> T) -> T {
    let mut found = count();
    let mut same = 0;
    while same < 3 {
        let next = count();
        same = if next == found { same + 1 } else { 0 };
        found = next;
    }
    found
}

/// The result of `count`, once it is `expected` or after 20 seconds.
fn soon<T: PartialEq>(count: impl Fn() -> T, expected: &T) -> T {
    let begun = Instant::now();
    loop {
        let found = count();
        if found == *expected || begun.elapsed() > Duration::from_secs(20) {
            return found;
        }
        std::thread::yield_now();
    }
}

/// The environment variable that is set in a process that runs a single test.
const APART: &str = "SYNCLINE_PROCESS_APART";

/// Runs the calling test in a process of its own and returns true. Returns false in that process.
fn runs_apart() -> bool {
    if std::env::var_os(APART).is_some() {
        return false;
    }
    let thread = std::thread::current();
    // With `--test-threads=1` the main thread runs the tests, one at a time.
    let Some(name) = thread.name().filter(|name| *name != "main") else {
        return false;
    };
    let _alone = alone();
    let ran = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(APART, "1")
        .output()
        .unwrap();
    let [out, err] = [&ran.stdout, &ran.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(
        ran.status.success() && out.contains("test result: ok. 1 passed"),
        "{}\n{out}{err}",
        ran.status
    );
    true
}
