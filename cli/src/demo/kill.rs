//! Kills one of two processes while they work, and reports how the other ends.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::json;
use syncline::Inventory;

use super::Args;
use super::processes::{LAST_WHOLE, LEFT_ALONE, RIGHT, WRONG};
use crate::failure::Failure;
use crate::output::say;
use syncline_conformance::inventory::device_lines;
use syncline_conformance::report;

/// The process to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Victim {
    /// The process that simulates
    Producer,
    /// The process that draws
    Consumer,
}

impl std::fmt::Display for Victim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Producer => "producer",
            Self::Consumer => "consumer",
        })
    }
}

/// More frames than the pair can make before the kill.
const FRAMES: u32 = 1_000_000;

/// Time limit for both processes to start and to compare the first frame.
const FIRST_FRAME: Duration = Duration::from_secs(60);

/// Time limit for the surviving process to end.
///
/// E3 allows one second. The rest is for a loaded machine and for the end of its drivers.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Both processes. The drop kills them.
struct Pair {
    socket: PathBuf,
    consumer: Child,
    producer: Child,
}

impl Drop for Pair {
    fn drop(&mut self) {
        for child in [&mut self.consumer, &mut self.producer] {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// How the surviving process ended.
struct Ended {
    /// The exit code, or the signal.
    status: ExitStatus,
    /// What it wrote to standard error.
    said: String,
}

/// Starts both, kills one after a right frame, and reports how the other ends.
pub(super) fn run(args: &Args, victim: Victim, inventory: &Inventory) -> Result<ExitCode, Failure> {
    let name = format!("syncline-demo-{}", std::process::id());
    let socket = std::env::temp_dir().join(name);
    let consumer = start(args, "--listen", &socket)?;
    let mut pair = Pair {
        producer: start(args, "--connect", &socket)?,
        consumer,
        socket,
    };
    let out = pair.consumer.stdout.take();
    let lines = read(out.ok_or_else(|| broken("the consumer has no output"))?);
    let mut compared = Vec::new();
    await_frame(&lines, &mut compared).map_err(|why| {
        // `said` reads until the process ends.
        let _ = pair.consumer.kill();
        broken(&format!("{why}. {}", said(&mut pair.consumer).trim()))
    })?;
    let (dies, lives, other) = match victim {
        Victim::Producer => (&mut pair.producer, &mut pair.consumer, "consumer"),
        Victim::Consumer => (&mut pair.consumer, &mut pair.producer, "producer"),
    };
    let process = dies.id();
    dies.kill().map_err(|error| broken(&error.to_string()))?;
    let killed = Instant::now();
    let name = victim.to_string();
    let ended = ends_within(lives, ENDS_WITHIN).map_err(|error| broken(&error.to_string()))?;
    let took = killed.elapsed();
    let Some(ended) = ended else {
        return Err(Failure::Words(format!(
            "the {other}, process {}, has not ended {took:.1?} after the {name}, process {process}, was killed, and was killed, too. It said: {}",
            lives.id(),
            said(lives).trim()
        )));
    };
    // Nothing more can come after both processes have ended.
    let _ = dies.wait();
    compared.extend(lines.iter());
    let fault = fault(process, &compared, &ended);
    let (status, told) = (ended.status, ended.said);
    if args.json {
        let report = json!({
            "killed": name,
            "process": process,
            "exit_code_of_the_other": status.code(),
            "said": told.trim(),
            "fault": fault,
            "seconds_until_it_ended": (took.as_secs_f64() * 1e4).round() / 1e4,
            "commit": syncline_conformance::COMMIT,
            "date": report::now(),
            "command": report::command(),
            "devices": device_lines(inventory),
        });
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        say!("killed     the {name}, process {process}");
        say!(
            "the other  {status}, {:.0} ms later",
            took.as_secs_f64() * 1e3
        );
        say!("it said    {}", told.trim());
        if let Some(fault) = &fault {
            say!("but        {fault}");
        }
    }
    Ok(match fault {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::from(1),
    })
}

/// Reads lines on a thread of its own, until `from` is closed.
fn read(from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let lines = BufReader::new(from).lines().map_while(Result::ok);
        lines.for_each(|line| {
            let _ = send.send(line);
        });
    });
    receive
}

/// Waits for the first right frame and keeps every line up to it. A wrong frame is an error.
fn await_frame(lines: &Receiver<String>, kept: &mut Vec<String>) -> Result<(), String> {
    let until = Instant::now() + FIRST_FRAME;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("no frame was right in {FIRST_FRAME:?}"),
            RecvTimeoutError::Disconnected => "the consumer ended before a frame was right".into(),
        })?;
        if line.starts_with(WRONG) {
            return Err(format!("frames are not right: {line}"));
        }
        let right = line.starts_with(RIGHT);
        kept.push(line);
        if right {
            return Ok(());
        }
    }
}

/// Waits for the process to end. After `bound` it kills the process and returns `None`.
fn ends_within(child: &mut Child, bound: Duration) -> io::Result<Option<Ended>> {
    let until = Instant::now() + bound;
    loop {
        if let Some(status) = child.try_wait()? {
            let said = said(child);
            return Ok(Some(Ended { status, said }));
        }
        if Instant::now() >= until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns what was wrong, if anything, with the compared frames or with the surviving process.
fn fault(killed: u32, compared: &[String], ended: &Ended) -> Option<String> {
    let line = |begins| compared.iter().find(|line| line.starts_with(begins));
    if let Some(wrong) = line(WRONG) {
        return Some(format!("frames are not right: {wrong}"));
    }
    if line(RIGHT).is_none() {
        return Some("no frame was right".into());
    }
    if ended.status.code() != Some(LEFT_ALONE.into()) {
        return Some(format!("it should end with exit code {LEFT_ALONE}"));
    }
    let needed = [format!("process {killed}: "), LAST_WHOLE.into()];
    let missing = needed.iter().find(|&words| !ended.said.contains(words))?;
    Some(format!("it does not say {missing:?}"))
}

fn start(args: &Args, end: &str, socket: &Path) -> Result<Child, Failure> {
    let own = std::env::current_exe().map_err(|error| broken(&error.to_string()))?;
    let mut command = Command::new(own);
    command
        .args(["demo", end])
        .arg(socket)
        .args(["--frames", &FRAMES.to_string()])
        .args(["--size", &args.size().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    super::pass_devices(args, &mut command);
    if args.no_sync {
        command.arg("--no-sync");
    }
    let started = command.spawn();
    started.map_err(|error| broken(&format!("a process cannot be started: {error}")))
}

fn said(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut errors) = child.stderr.take() {
        let _ = errors.read_to_string(&mut text);
    }
    text
}

fn broken(why: &str) -> Failure {
    Failure::Words(format!(
        "there are no two processes at work to kill one of: {why}"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn child(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.stderr(Stdio::piped()).spawn().unwrap()
    }

    fn left_alone(said: &str, code: u8) -> Ended {
        let mut child = child(&format!("echo '{said}' >&2; exit {code}"));
        ends_within(&mut child, FIRST_FRAME).unwrap().unwrap()
    }

    #[test]
    fn a_process_that_hangs_is_killed_and_reaped() {
        let mut hangs = child("exec sleep 600");
        assert!(ends_within(&mut hangs, Duration::ZERO).unwrap().is_none());
        assert!(hangs.try_wait().unwrap().is_some());
    }

    #[test]
    fn right_frames_and_both_sentences_are_required() {
        let lines =
            |lines: &[&str]| -> Vec<String> { lines.iter().map(|&line| line.to_owned()).collect() };
        let right = lines(&["ordered by x", "right      frame 1, the first"]);
        let said = "error: the producer is gone: process 7: it has ended; the last frame that was whole is 3 of 9";
        assert_eq!(fault(7, &right, &left_alone(said, 3)), None);

        let found = |compared: &[String], said: &str, code| {
            fault(7, compared, &left_alone(said, code)).unwrap()
        };
        assert!(found(&right, said, 0).contains("exit code 3"));
        let other = said.replace("process 7:", "process 77:");
        assert!(found(&right, &other, 3).contains("process 7: "));
        let none = "error: the producer is gone: process 7: it has ended; no frame was whole";
        assert!(found(&right, none, 3).contains("the last frame"));
        assert!(found(&lines(&["ordered by x"]), said, 3).contains("no frame"));
        let wrong = lines(&[
            "right      frame 1, the first",
            "wrong      frame 2, the first",
        ]);
        assert!(found(&wrong, said, 3).contains("frame 2"));
    }
}
