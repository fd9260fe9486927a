//! Raw calls that may hang, in a process that can be killed.

use std::process::ExitCode;

/// Set for a child process: what it is to run.
const JOB: &str = "SYNCLINE_BENCH_JOB";

/// A child's life, if this process is one.
pub(crate) fn serve() -> Option<ExitCode> {
    let job = std::env::var(JOB).ok()?;
    eprintln!("error: {JOB} is set for child processes only, and {job:?} is no job");
    Some(ExitCode::from(2))
}
