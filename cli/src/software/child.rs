//! Runs a child process in place of this one: the same signals, and the same end.
#![allow(unsafe_code, reason = "waits for signals")]

use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode};
use std::ptr::null_mut;

/// The signals by which users and shells end a command.
const ENDS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Runs `command` to its end. Passes signals to it, so that the caller can clean up after it.
///
/// Call this before the process has a second thread, which could take the signals.
///
/// # Errors
/// The system's.
pub(super) fn run(command: &mut Command) -> io::Result<ExitCode> {
    // SAFETY: `sigemptyset` makes a valid set of any memory, the signals exist, and this thread's
    // mask may be changed.
    let (signals, before) = unsafe {
        let (mut signals, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut signals);
        for signal in ENDS.into_iter().chain([libc::SIGCHLD]) {
            libc::sigaddset(&raw mut signals, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, &raw mut before);
        // A parent process that ignores SIGCHLD passes that on. Then `sigwait` would miss the end.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        (signals, before)
    };
    let unblock = move || {
        // SAFETY: a valid set. The call is allowed between `fork` and `exec`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
        Ok(())
    };
    // SAFETY: `unblock` makes that call and nothing else.
    unsafe { command.pre_exec(unblock) };
    let mut child = command.spawn()?;
    wait(&mut child, &signals)
}

fn wait(child: &mut Child, signals: &libc::sigset_t) -> io::Result<ExitCode> {
    loop {
        if let Some(status) = child.try_wait()? {
            let code = status.code().or_else(|| Some(128 + status.signal()?));
            let code = code.and_then(|code| u8::try_from(code).ok());
            return Ok(ExitCode::from(code.unwrap_or(2)));
        }
        let mut signal = 0;
        // SAFETY: a valid set, and memory for one integer. SIGCHLD is among the signals.
        unsafe { libc::sigwait(signals, &raw mut signal) };
        if let (true, Ok(process)) = (ENDS.contains(&signal), child.id().try_into()) {
            // SAFETY: the child has not been reaped, so its process id is still its own.
            unsafe { libc::kill(process, signal) };
        }
    }
}
