//! Child processes: this program once more, with a job in its environment.
//!
//! Raw calls that may hang run in a child that can be killed. Rows with two processes use one as
//! well.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::side::{Outcome, Stop};

/// The environment variable with the job of a child.
const JOB: &str = "SYNCLINE_BENCH_JOB";

/// The beginning of the answer's line.
const MARK: &str = "\u{1}syncline-samples";

/// Set once this program has checked whether it is a child. Only such a program can be a child.
static OFFERED: AtomicBool = AtomicBool::new(false);

/// How a child has ended.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    /// It has returned these samples, in nanoseconds.
    Samples(Vec<f64>),
    /// It did not end, and was killed.
    Hung,
}

/// Returns an error if this program cannot be started as a child.
///
/// # Errors
/// A skip, with the reason.
pub(crate) fn offered() -> Outcome<()> {
    if OFFERED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let reason =
        "raw calls that may hang run in a child process, which this program is not made for";
    Err(Stop::Skipped(reason.into()))
}

/// Runs `job` in a child process, for at most `patience`.
pub(crate) fn run(job: &str, patience: Duration) -> Outcome<End> {
    offered()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.env(JOB, job);
    supervised(command, patience)
}

/// A child process that is killed when this is dropped.
pub(crate) struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a child for `job` with this standard input and output.
pub(crate) fn keep(job: &str, input: OwnedFd, output: OwnedFd) -> Outcome<Kept> {
    offered()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.env(JOB, job).stdin(input).stdout(output);
    Ok(Kept(command.spawn()?))
}

/// Returns the samples that `command` prints, if it ends in time.
fn supervised(mut command: Command, patience: Duration) -> Outcome<End> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut child = command.spawn()?;
    let deadline = Instant::now() + patience;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(End::Hung);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut text = String::new();
    if let Some(mut out) = child.stdout.take() {
        // The child has ended, and its output fits into the pipe.
        out.read_to_string(&mut text)?;
    }
    match samples(&text) {
        Some(samples) if status.success() => Ok(End::Samples(samples)),
        _ => Err(Stop::Failed(format!(
            "the raw calls failed in their own process ({status})"
        ))),
    }
}

/// The samples in the output of a child.
fn samples(text: &str) -> Option<Vec<f64>> {
    let line = text.lines().find_map(|line| line.strip_prefix(MARK))?;
    line.split_whitespace()
        .map(|word| word.parse().ok())
        .collect()
}

/// Runs the job of a child, if this process is one.
pub(crate) fn serve() -> Option<ExitCode> {
    OFFERED.store(true, Ordering::Relaxed);
    let job = std::env::var(JOB).ok()?;
    match perform(&job) {
        // A job for two processes has no samples, and its output may not be read any more.
        Ok(samples) if samples.is_empty() => Some(ExitCode::SUCCESS),
        Ok(samples) => {
            let words: Vec<String> = samples.iter().map(f64::to_string).collect();
            println!("\n{MARK} {}", words.join(" "));
            Some(ExitCode::SUCCESS)
        }
        Err(stop) => {
            eprintln!("error: {JOB} is set for child processes only: {stop}");
            Some(ExitCode::from(2))
        }
    }
}

fn perform(job: &str) -> Outcome<Vec<f64>> {
    let words: Vec<&str> = job.split_whitespace().collect();
    let number = |at: usize| -> Outcome<u64> {
        let word = words.get(at).and_then(|word| word.parse().ok());
        word.ok_or_else(|| Stop::Failed(format!("{job:?} is no job")))
    };
    match words.first() {
        // For a test of children.
        Some(&"echo") => Ok(vec![number(1)? as f64]),
        #[cfg(feature = "cuda")]
        Some(&"roundtrip") => {
            let inventory = syncline::Inventory::probe(&syncline::ProbeOptions::default());
            let machine = crate::Machine::new(inventory);
            let rounds = number(3)?.min(1000) as u32;
            crate::rows::risky(&machine, number(1)? as usize, number(2)?, rounds)
        }
        Some(&"partner") => crate::rows::partner().map(|()| Vec::new()),
        _ => Err(Stop::Failed(format!("{job:?} is no job"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_among_other_output() {
        let text = format!("loading\n{MARK} 1 2.5\n");
        assert_eq!(samples(&text), Some(vec![1.0, 2.5]));
        assert_eq!(samples("1 2.5"), None);
        assert_eq!(samples(&format!("{MARK} one")), None);
    }

    #[test]
    fn a_child_that_does_not_end_is_killed() {
        let start = Instant::now();
        let mut sleep = Command::new("sleep");
        sleep.arg("60");
        assert_eq!(supervised(sleep, Duration::from_millis(50)), Ok(End::Hung));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn samples_and_failures_of_a_child_are_returned() {
        let mut print = Command::new("echo");
        print.arg(format!("{MARK} 3 4"));
        let patience = Duration::from_secs(20);
        let samples = End::Samples(vec![3.0, 4.0]);
        assert_eq!(supervised(print, patience), Ok(samples));
        let failed = supervised(Command::new("false"), patience);
        assert!(matches!(failed, Err(Stop::Failed(_))), "{failed:?}");
    }

    /// The program of a test would run its tests once more, and those their children.
    #[test]
    fn a_program_that_is_no_child_starts_none() {
        let started = run("echo 7", Duration::from_secs(20));
        assert!(matches!(started, Err(Stop::Skipped(_))), "{started:?}");
    }

    #[test]
    fn an_unknown_job_is_refused() {
        assert!(perform("nonsense").is_err());
        assert!(perform("echo").is_err());
        assert_eq!(perform("echo 7"), Ok(vec![7.0]));
    }
}
