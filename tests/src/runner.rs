//! Runs cases in child processes, one per subject, so that a hang or a crash ends one case and not the run.

use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use syncline::backend::Device as _;
use syncline::{Inventory, ProbeOptions};

use crate::report::{DeviceLine, Ending, Record};
use crate::{Case, Stop, Subject as _, World};

/// Set for a child process: the subject it runs.
const SUBJECT: &str = "SYNCLINE_CONFORMANCE_SUBJECT";

/// Set to load the Vulkan validation layer; what it complains about fails the case.
const VALIDATION: &str = "SYNCLINE_VALIDATION";

/// How long a case may take before it counts as hung.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The devices that one round of the suite runs on, by their numbers in the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectName {
    left: usize,
    right: usize,
    /// In words.
    pub name: String,
}

impl SubjectName {
    /// True if the device with this number in the inventory is one of its sides.
    #[must_use]
    pub const fn involves(&self, index: usize) -> bool {
        self.left == index || self.right == index
    }
}

/// What is not part of any subject, with the reasons: backends that are absent, devices that are refused.
#[must_use]
pub fn left_out(inventory: &Inventory) -> Vec<String> {
    let refused = inventory
        .devices()
        .iter()
        .filter_map(syncline::Found::rejected);
    let absent = inventory.unavailable().iter();
    absent.chain(refused).map(ToString::to_string).collect()
}

/// Every device, and every ordered pair of devices.
#[must_use]
pub fn subjects(inventory: &Inventory) -> Vec<SubjectName> {
    let usable: Vec<_> = inventory
        .devices()
        .iter()
        .filter(|f| f.rejected().is_none())
        .collect();
    let name = |index: usize| {
        let info = inventory.devices()[index].info();
        let same = usable
            .iter()
            .filter(|f| f.info().name == info.name && f.info().backend == info.backend);
        let number = if same.count() > 1 {
            format!(" #{index}")
        } else {
            String::new()
        };
        match info.backend.name() {
            "host" => "host".to_owned(),
            backend => format!("{backend} {}{number}", info.name),
        }
    };
    let mut subjects = Vec::new();
    for left in &usable {
        let left = left.index();
        subjects.push(SubjectName {
            left,
            right: left,
            name: name(left),
        });
    }
    for left in &usable {
        for right in usable.iter().filter(|right| right.index() != left.index()) {
            let (left, right) = (left.index(), right.index());
            let name = format!("{} -> {}", name(left), name(right));
            subjects.push(SubjectName { left, right, name });
        }
    }
    subjects
}

/// The devices of the machine, for a report.
#[must_use]
pub fn device_lines(inventory: &Inventory) -> Vec<DeviceLine> {
    let line = |found: &syncline::Found| {
        let info = found.info();
        DeviceLine {
            index: found.index(),
            backend: info.backend.to_string(),
            name: info.name.clone(),
            uuid: info.uuid.map(|uuid| uuid.to_string()),
            driver: info.driver.clone(),
        }
    };
    inventory.devices().iter().map(line).collect()
}

/// Every case, for the devices of this crate's backends.
#[must_use]
pub fn cases() -> Vec<Case<syncline::Device>> {
    let mut cases = crate::cases::all();
    cases.extend(crate::cases::devices::cases());
    cases.extend(crate::cases::sharing::cases());
    #[cfg(feature = "vulkan")]
    cases.extend(crate::cases::handles::cases());
    cases
}

#[derive(Serialize, Deserialize)]
struct Answer {
    outcome: Ending,
    reason: Option<String>,
}

/// To be called first in `main` of a program that runs the suite. True if this process was a child,
/// which has done its work then.
#[must_use]
pub fn is_child() -> bool {
    let Ok(subject) = std::env::var(SUBJECT) else {
        return false;
    };
    let numbers: Option<Vec<usize>> = subject.split('+').map(|n| n.parse().ok()).collect();
    let Some([left, right]) = numbers.as_deref() else {
        // Nothing was run, and that must not look like success.
        eprintln!(
            "error: {SUBJECT} is set for child processes only, and {subject:?} is no subject"
        );
        std::process::exit(2);
    };
    serve(*left, *right);
    true
}

/// How a child looks for devices.
pub(crate) fn options() -> ProbeOptions {
    ProbeOptions {
        validation: std::env::var_os(VALIDATION).is_some(),
    }
}

/// A child's life: one case per line in, one answer per line out.
fn serve(left: usize, right: usize) {
    let inventory = Inventory::probe(&options());
    let world = open(&inventory, left, right);
    let cases = cases();
    // What opening the devices was complained about counts against the first case.
    let mut complaints = 0;
    for id in std::io::stdin().lines().map_while(Result::ok) {
        let verdict = match (&world, cases.iter().find(|case| case.id == id)) {
            (Err(error), _) => Stop::fail(format!("the subject cannot be opened: {error}")),
            (Ok(_), None) => Stop::fail("there is no such case"),
            (Ok(world), Some(case)) => catch_unwind(AssertUnwindSafe(|| (case.run)(world)))
                .unwrap_or_else(|_| Stop::fail("the case panicked")),
        };
        let said = inventory.validation_errors();
        let verdict = match said.get(complaints..) {
            Some(new @ [_, ..]) if !matches!(verdict, Err(Stop::Failed(_))) => {
                Stop::fail(format!("validation: {}", new.join("; ")))
            }
            _ => verdict,
        };
        complaints = said.len();
        let answer = match verdict {
            Ok(()) => Answer {
                outcome: Ending::Passed,
                reason: None,
            },
            Err(Stop::Failed(reason)) => Answer {
                outcome: Ending::Failed,
                reason: Some(reason),
            },
            Err(Stop::Skipped(reason)) => Answer {
                outcome: Ending::Skipped,
                reason: Some(reason),
            },
        };
        let Ok(line) = serde_json::to_string(&answer) else {
            return;
        };
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

fn open(
    inventory: &Inventory,
    left: usize,
    right: usize,
) -> syncline::Result<World<syncline::Device>> {
    let device = |index: usize| -> syncline::Result<syncline::Device> {
        let found =
            inventory
                .devices()
                .get(index)
                .ok_or_else(|| syncline::Error::NoSuchDevice {
                    asked: index.to_string(),
                    have: format!("{} devices", inventory.devices().len()),
                })?;
        let device = found.open()?;
        device.check()?;
        device.prepare()?;
        Ok(device)
    };
    let left_device = device(left)?;
    let right_device = if right == left {
        left_device.clone()
    } else {
        device(right)?
    };
    Ok(World {
        left: left_device,
        right: right_device,
    })
}

/// Runs the cases of one subject.
#[derive(Debug)]
pub struct Runner {
    subject: SubjectName,
    validation: bool,
    child: Option<Served>,
}

#[derive(Debug)]
struct Served {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<String>,
}

impl Runner {
    /// A runner for `subject`. The child starts with the first case.
    #[must_use]
    pub const fn new(subject: SubjectName, validation: bool) -> Self {
        Self {
            subject,
            validation,
            child: None,
        }
    }

    /// Runs one case, for at most [`TIME_LIMIT`].
    pub fn run(&mut self, case: &Case<syncline::Device>) -> Record {
        let start = Instant::now();
        let (outcome, reason) = match self.ask(case.id) {
            Ok(Answer { outcome, reason }) => (outcome, reason),
            Err(reason) => {
                self.end();
                (Ending::Failed, Some(reason))
            }
        };
        Record {
            id: case.id.into(),
            rules: case.rules.iter().map(|&rule| rule.into()).collect(),
            subject: self.subject.name.clone(),
            outcome,
            reason,
            seconds: (start.elapsed().as_secs_f64() * 1e4).round() / 1e4,
        }
    }

    fn ask(&mut self, id: &str) -> Result<Answer, String> {
        let served = match &mut self.child {
            Some(served) => served,
            none => none.insert(start(&self.subject, self.validation)?),
        };
        writeln!(served.questions, "{id}")
            .map_err(|error| format!("the test process is gone: {error}"))?;
        match served.answers.recv_timeout(TIME_LIMIT) {
            Ok(line) => serde_json::from_str(&line)
                .map_err(|error| format!("the test process printed {line:?}: {error}")),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("hung: killed after {} s", TIME_LIMIT.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = served.child.wait().map(|status| status.to_string());
                Err(format!(
                    "the test process died: {}",
                    status.unwrap_or_else(|e| e.to_string())
                ))
            }
        }
    }

    fn end(&mut self) {
        if let Some(mut served) = self.child.take() {
            // Either fails only if the process is gone already.
            let _ = served.child.kill();
            let _ = served.child.wait();
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.end();
    }
}

fn start(subject: &SubjectName, validation: bool) -> Result<Served, String> {
    let failed = |error: std::io::Error| format!("the test process cannot be started: {error}");
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.env(SUBJECT, format!("{}+{}", subject.left, subject.right));
    if validation {
        command.env(VALIDATION, "1");
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (Some(questions), Some(printed)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the test process has no pipes".into());
    };
    let (lines, answers) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(printed).lines().map_while(Result::ok) {
            // Drivers print too; answers are the lines that are JSON objects.
            if line.starts_with('{') && lines.send(line).is_err() {
                return;
            }
        }
    });
    Ok(Served {
        child,
        questions,
        answers,
    })
}
