//! Tests of what belongs to a whole process: its descriptors, threads, memory and end.
//!
//! Some of them start other processes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod counters;
mod descriptors;
mod exits;
mod no_thread;
#[allow(dead_code, reason = "the engine's tests use all of it")]
#[path = "../engine/script.rs"]
mod script;
#[path = "../engine/words/mod.rs"]
mod words;

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks out other tests. For tests that make or count descriptors or threads.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
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
