//! Runs the suite with the command, with a bug planted.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libtest_mimic::Failed;
use serde_json::Value;

use crate::table::{Place, Planted, Side};

/// Software GPUs that have a CUDA and a Vulkan device: parts of their names.
const GPUS: [(&str, &str); 2] = [("lavapipe", "llvmpipe"), ("swiftshader", "SwiftShader")];

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed {
        reason: String,
        /// Whether its process crashed.
        is_lost: bool,
    },
    /// The case was not run.
    Skipped(String),
}

/// The environment variable that plants a bug.
const fn variable(place: Place) -> &'static str {
    match place {
        Place::Cuda => "SYNCLINE_SOFTWARE_CUDA_BUG",
        Place::Layer => "SYNCLINE_SOFTWARE_LAYER_BUG",
        Place::Peer => "SYNCLINE_CONFORMANCE_PEER_BUG",
    }
}

/// The command, without environment variables that change which devices it finds.
fn conformance(planted: Option<&Planted>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
    command.args(["conformance", "--software"]);
    for other in ["SYNCLINE_SOFTWARE", "SYNCLINE_CUDA_DRIVER"] {
        command.env_remove(other);
    }
    for place in [Place::Cuda, Place::Layer, Place::Peer] {
        command.env_remove(variable(place));
    }
    if let Some(planted) = planted {
        command.env(variable(planted.place), planted.bug);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn output(command: &mut Command) -> Result<Output, String> {
    command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))
}

/// Returns the output of `--list`.
fn list(planted: Option<&Planted>) -> Result<String, Failed> {
    static WITHOUT: OnceLock<Result<String, String>> = OnceLock::new();
    let now = || list_now(planted);
    if planted.is_some() {
        return Ok(now()?);
    }
    Ok(WITHOUT.get_or_init(now).clone()?)
}

fn list_now(planted: Option<&Planted>) -> Result<String, String> {
    let output = output(conformance(planted).arg("--list"))?;
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("--list: {}", text(&output.stderr)))
}

/// Returns what the command prints if a planted name belongs to no bug.
pub(crate) fn with_unknown_bug(place: Place) -> Result<String, Failed> {
    let output = output(conformance(None).arg("--list").env(variable(place), "none"))?;
    Ok(text(&output.stderr))
}

/// Returns the rules that each case shows.
pub(crate) fn cases() -> Result<HashMap<String, Vec<String>>, Failed> {
    let list = list(None)?;
    let cases = list.lines().filter_map(|line| {
        let mut words = line.strip_prefix("case ")?.split_whitespace();
        let case = words.next()?.to_owned();
        Some((case, words.map(str::to_owned).collect()))
    });
    Ok(cases.collect())
}

/// Returns the name of the subject with these sides, or `None` without a software Vulkan driver.
pub(crate) fn subject(planted: Option<&Planted>, sides: &[Side]) -> Result<Option<String>, Failed> {
    let list = list(planted)?;
    let subjects: Vec<_> = list
        .lines()
        .filter_map(|line| line.strip_prefix("subject  "))
        .collect();
    let has = |vulkan: &str| {
        let mut names = subjects.iter();
        names.any(|name| name.starts_with("vulkan ") && name.contains(vulkan))
    };
    let gpu = GPUS.into_iter().find(|(_, vulkan)| has(vulkan));
    if gpu.is_none() && sides.contains(&Side::Vulkan) {
        return Ok(None);
    }
    let (cuda, vulkan) = gpu.unwrap_or(GPUS[0]);
    let is_side = |name: &str, side: Side| match side {
        Side::Cuda => name.starts_with("cuda ") && name.contains(cuda),
        Side::OtherCuda => name.starts_with("cuda ") && !name.contains(cuda),
        Side::Vulkan => name.starts_with("vulkan ") && name.contains(vulkan),
        Side::Host => name == "host",
    };
    let is_subject = |subject: &&&str| {
        let named: Vec<_> = subject.split(" -> ").collect();
        named.len() == sides.len()
            && named
                .iter()
                .zip(sides)
                .all(|(name, side)| is_side(name, *side))
    };
    match subjects.iter().find(is_subject) {
        Some(found) => Ok(Some((*found).to_owned())),
        None => Err(format!("there is no subject of {sides:?} in {subjects:?}").into()),
    }
}

/// Returns a path for a file of one run.
fn scratch() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("planted-{}-{number}.json", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs one case on one subject.
pub(crate) fn run(
    planted: Option<&Planted>,
    subject: &str,
    case: &str,
    patience: Duration,
) -> Result<Outcome, Failed> {
    let file = scratch();
    let mut command = conformance(planted);
    command
        .args(["--device", subject, "--filter", case, "--json"])
        .arg(&file)
        .env("SYNCLINE_PATIENCE_MS", patience.as_millis().to_string())
        .env(
            "SYNCLINE_CASE_LIMIT_MS",
            (6 * patience).as_millis().to_string(),
        );
    let output = output(&mut command)?;
    let report = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    let report = report
        .ok()
        .and_then(|report| serde_json::from_str(&report).ok());
    let report: Value = report.ok_or_else(|| {
        let said = text(&output.stderr);
        format!("{command:?} writes no report: {said}")
    })?;
    let records = report["cases"].as_array().into_iter().flatten();
    let mut records = records.filter(|record| record["id"] == case && record["subject"] == subject);
    let record = records.next();
    let record = record.ok_or_else(|| format!("{case} is not in the report"))?;
    let reason = record["reason"].as_str().unwrap_or_default().to_owned();
    Ok(match record["outcome"].as_str() {
        Some("passed") => Outcome::Passed,
        Some("failed") => Outcome::Failed {
            reason,
            is_lost: record["lost"] == true,
        },
        _ => Outcome::Skipped(reason),
    })
}
