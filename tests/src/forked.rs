//! Code that runs in a forked child of a case.
#![allow(unsafe_code, reason = "forks")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::case::{Stop, Verdict};

/// Seconds after which a signal ends a child that waits for a thread of its parent.
const PATIENCE: u32 = 60;

/// Runs `run` in a forked child, which ends by `_exit`. Waits for the child.
///
/// # Errors
/// The child did not end well, or `run` returned a reason.
pub(crate) fn in_child(run: impl FnOnce() -> Result<(), String>) -> Verdict {
    // SAFETY: the child uses copies of its parent's memory, and ends below.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a signal ends the child after this time.
        unsafe { libc::alarm(PATIENCE) };
        let status = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => 0,
            Ok(Err(reason)) => {
                eprintln!("forked child: {reason}");
                1
            }
            Err(_) => 2,
        };
        // SAFETY: the child ends here, without exit handlers.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: the child's id, and memory for its status.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    if (ended, status) != (child, 0) {
        return Stop::fail(format!(
            "the forked child ended with the status {status:#x} (its reason is on standard error)"
        ));
    }
    Ok(())
}
