//! What becomes of one of two processes when the other is killed in the middle.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use clap::ValueEnum;
use serde_json::json;
use syncline::Inventory;

use super::Args;
use super::processes::LEFT_ALONE;
use crate::failure::Failure;
use crate::output::say;
use syncline_conformance::inventory::device_lines;
use syncline_conformance::report;

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Victim {
    /// Who simulates
    Producer,
    /// Who shades
    Consumer,
}

/// More frames than anybody makes before he is killed.
const FRAMES: u32 = 1_000_000;

/// The two, which do not outlive this.
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

/// Starts both, kills one once the first frame has been compared, and tells how the other ends.
pub(super) fn run(args: &Args, victim: Victim, inventory: &Inventory) -> Result<ExitCode, Failure> {
    let name = format!("syncline-demo-{}", std::process::id());
    let socket = std::env::temp_dir().join(name);
    let consumer = start(args, "--listen", "--consumer", &args.consumer, &socket)?;
    let mut pair = Pair {
        producer: start(args, "--connect", "--producer", &args.producer, &socket)?,
        consumer,
        socket,
    };
    // It says so once the first frame has come.
    let out = pair.consumer.stdout.take();
    let lines = BufReader::new(out.ok_or_else(|| broken("the consumer has no output"))?).lines();
    let mut lines = lines.map_while(Result::ok);
    if !lines.any(|line| line.starts_with("compared")) {
        return Err(broken(&said(&mut pair.consumer)));
    }
    let (dies, lives) = match victim {
        Victim::Producer => (&mut pair.producer, &mut pair.consumer),
        Victim::Consumer => (&mut pair.consumer, &mut pair.producer),
    };
    let process = dies.id();
    dies.kill().map_err(|error| broken(&error.to_string()))?;
    let killed = Instant::now();
    let ended = lives.wait().map_err(|error| broken(&error.to_string()))?;
    let took = killed.elapsed();
    let told = said(lives);
    let name = format!("{victim:?}").to_lowercase();
    if args.json {
        let report = json!({
            "killed": name,
            "process": process,
            "exit_code_of_the_other": ended.code(),
            "said": told.trim(),
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
            "the other  {ended}, {:.0} ms later",
            took.as_secs_f64() * 1e3
        );
        say!("it said    {}", told.trim());
    }
    let names_it = told.contains(&format!("process {process} ")) && told.contains("whole");
    Ok(match ended.code() {
        Some(code) if code == i32::from(LEFT_ALONE) && names_it => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}

fn start(
    args: &Args,
    end: &str,
    role: &str,
    device: &Option<String>,
    socket: &Path,
) -> Result<Child, Failure> {
    let own = std::env::current_exe().map_err(|error| broken(&error.to_string()))?;
    let mut command = Command::new(own);
    command
        .args(["demo", end])
        .arg(socket)
        .args(["--frames", &FRAMES.to_string()])
        .args(["--size", &args.size.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(device) = device {
        command.args([role, device]);
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
    Failure::Words(format!("there are no two processes to kill one of: {why}"))
}
