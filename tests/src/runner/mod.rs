//! Runs cases in child processes, one per subject. A hang or a crash ends one case, not the run.
//!
//! A program that runs the suite is its own child process: it starts itself again, with the
//! subject's name in the environment. [`main`] does all of it:
//!
//! ```no_run
//! use syncline_conformance::{inventory::Devices, runner};
//!
//! fn main() -> std::process::ExitCode {
//!     runner::main(Devices::probe)
//! }
//! ```
//!
//! A program with a `main` of its own first asks whether it is a [`child`], and gives a [`Runner`]
//! the cases.

mod child;
mod program;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

pub use child::{child, child_subject, serve};
pub use program::main;

use crate::expected::Expected;
use crate::report::{Ending, Record};
use crate::{Case, Settings, Subject, World};
pub(crate) use child::SUBJECT;
use child::{Answer, MARK};

/// The record for the end of a subject, when its process drops its devices and exits.
pub const TEARDOWN: &str = "subject.teardown";

/// The rule that a teardown shows (D4): dropping objects, the device last, is silent.
const TEARDOWN_RULES: &[&str] = &["D4"];

/// A suite of subjects, and of cases for them.
///
/// The author of a backend implements it. [`Devices`](crate::inventory::Devices) implements it for
/// this project's backends.
pub trait Suite {
    /// The subjects that the cases run on.
    type Subject: Subject;

    /// The names of the subjects, all different.
    fn subjects(&self) -> Vec<String>;

    /// Opens the subject of that name, ready for cases.
    ///
    /// # Errors
    /// Errors of the backend. They fail every case.
    fn open(&self, subject: &str) -> syncline::Result<World<Self::Subject>>;

    /// Returns the cases. By default those that any backend can run.
    fn cases(&self) -> Vec<Case<Self::Subject>> {
        crate::cases::all()
    }

    /// Lists failures that are known on the subject and are not its backend's.
    fn expected(&self, subject: &str) -> Vec<Expected> {
        let _ = subject;
        Vec::new()
    }

    /// Runs the [second process](crate::peer) of the subject, for cases that need two.
    ///
    /// It lasts until the first process is gone.
    fn serve_peer(&self, subject: &str) -> Option<ExitCode> {
        let _ = subject;
        None
    }

    /// Returns all complaints so far from outside the cases, such as those of a validation layer.
    ///
    /// The list only grows. A new complaint fails the case that ran meanwhile.
    fn complaints(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns remarks that may explain a failure.
    ///
    /// The list only grows. A new remark is reported with a case that failed meanwhile.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Runs the cases of one subject in a child process, which starts with the first case.
#[derive(Debug)]
pub struct Runner {
    subject: String,
    settings: Settings,
    quiet: bool,
    expected: Vec<Expected>,
    child: Option<Served>,
}

#[derive(Debug)]
struct Served {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<Answer>,
}

/// A case ended without a verdict.
struct Lost(String);

impl Runner {
    /// Creates a runner for `subject`.
    #[must_use]
    pub fn new(subject: &str, settings: &Settings) -> Self {
        Self {
            subject: subject.into(),
            settings: settings.clone(),
            quiet: false,
            expected: Vec::new(),
            child: None,
        }
    }

    /// Discards the standard error of the process.
    #[must_use]
    pub const fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Sets cases that are expected to fail. Their failures do no harm, and passing is a failure.
    #[must_use]
    pub fn expecting(mut self, expected: Vec<Expected>) -> Self {
        self.expected = expected;
        self
    }

    /// Runs one case, for at most [`Settings::case_limit`].
    pub fn run<S>(&mut self, case: &Case<S>) -> Record {
        self.run_id(case.id, case.rules)
    }

    /// Runs a case of which only the name and the rules are known.
    pub fn run_id(&mut self, id: &str, rules: &[&str]) -> Record {
        let start = Instant::now();
        let ended = self.ask(id);
        if ended.is_err() {
            self.end();
        }
        self.record(id, rules, start, ended)
    }

    /// Waits until the process drops its devices and ends by itself.
    ///
    /// The record is a failure if the process hangs, crashes, complains or does not exit with
    /// success.
    pub fn finish(&mut self) -> Record {
        let start = Instant::now();
        let Some(served) = self.child.take() else {
            let reason = "no process was left: it ended with an earlier case";
            let ended = Ok(Answer::skipped(TEARDOWN, reason));
            return self.record(TEARDOWN, TEARDOWN_RULES, start, ended);
        };
        let ended = tear_down(served, self.settings.case_limit);
        self.record(TEARDOWN, TEARDOWN_RULES, start, ended)
    }

    fn record(
        &self,
        id: &str,
        rules: &[&str],
        start: Instant,
        ended: Result<Answer, Lost>,
    ) -> Record {
        let (outcome, reason, lost) = match ended {
            Ok(answer) => (answer.outcome, answer.reason, answer.lost),
            Err(Lost(reason)) => (Ending::Failed, Some(reason), true),
        };
        let why = self.expected.iter().find(|known| known.case == id);
        let (outcome, reason) = match (outcome, why.map(|known| &known.why)) {
            (Ending::Failed, Some(why)) => {
                let found = reason.unwrap_or_default();
                (Ending::Known, Some(format!("{why} ({found})")))
            }
            (Ending::Passed, Some(why)) => {
                let reason = format!("passes, but is expected to fail: {why}");
                (Ending::Failed, Some(reason))
            }
            (outcome, _) => (outcome, reason),
        };
        Record {
            id: id.into(),
            rules: rules.iter().map(|&rule| rule.into()).collect(),
            subject: self.subject.clone(),
            outcome,
            reason,
            lost,
            seconds: (start.elapsed().as_secs_f64() * 1e4).round() / 1e4,
        }
    }

    fn ask(&mut self, id: &str) -> Result<Answer, Lost> {
        let served = match &mut self.child {
            Some(served) => served,
            none => none.insert(
                start(&self.subject, &self.settings, self.quiet)
                    .map_err(|error| Lost(format!("the process cannot be started: {error}")))?,
            ),
        };
        // If the process has ended, this write fails. The reason shows below.
        let asked = writeln!(served.questions, "{id}");
        match served.answers.recv_timeout(self.settings.case_limit) {
            Ok(answer) if answer.id == id && answer.ends => self.ended_by(answer),
            Ok(answer) if answer.id == id => Ok(answer),
            Ok(other) => Err(Lost(format!("the process answered for {}", other.id))),
            Err(RecvTimeoutError::Timeout) => Err(Lost(format!(
                "hung: killed after {:?}",
                self.settings.case_limit
            ))),
            Err(RecvTimeoutError::Disconnected) => {
                let when = if asked.is_err() { "before" } else { "in" };
                Err(Lost(match exit(&mut served.child, GRACE) {
                    Some(status) => format!("the process ended {when} the case: {status}"),
                    None => format!("the process closed its output {when} the case"),
                }))
            }
        }
    }

    /// Waits for the end of a process that ends with its case.
    fn ended_by(&mut self, answer: Answer) -> Result<Answer, Lost> {
        if let Some(served) = self.child.take() {
            let own = match (answer.outcome, &answer.reason) {
                (Ending::Failed, Some(reason)) => format!("{reason}; then "),
                _ => String::new(),
            };
            let ended = tear_down(served, self.settings.case_limit);
            let ended = ended.map_err(|Lost(reason)| Lost(format!("{own}{reason}")))?;
            if ended.outcome == Ending::Failed {
                return Err(Lost(own + &ended.reason.unwrap_or_default()));
            }
        }
        Ok(answer)
    }

    fn end(&mut self) {
        if let Some(served) = self.child.take() {
            kill(served.child);
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.end();
    }
}

/// Time limit for a process to end after it has closed its output.
const GRACE: Duration = Duration::from_secs(5);

fn kill(mut child: Child) {
    // Both fail only if the process has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits for the exit of `child`, up to `limit`.
fn exit(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            _ => return None,
        }
    }
}

fn tear_down(served: Served, limit: Duration) -> Result<Answer, Lost> {
    let Served {
        mut child,
        questions,
        answers,
    } = served;
    drop(questions);
    let answer = answers.recv_timeout(limit);
    let Some(status) = exit(&mut child, limit) else {
        kill(child);
        return Err(Lost(format!(
            "hung while it let go of its devices: killed after {limit:?}"
        )));
    };
    if !status.success() {
        return Err(Lost(format!(
            "the process ended badly while it let go of its devices: {status}"
        )));
    }
    match answer {
        Ok(answer) if answer.id == TEARDOWN => Ok(answer),
        _ => Err(Lost(
            "the process ended without a word on its teardown".into(),
        )),
    }
}

fn start(subject: &str, settings: &Settings, quiet: bool) -> std::io::Result<Served> {
    let mut command = Command::new(std::env::current_exe()?);
    settings.tell(&mut command);
    if quiet {
        command.stderr(Stdio::null());
    }
    let mut child = command
        .env(SUBJECT, subject)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (Some(questions), Some(printed)) = (child.stdin.take(), child.stdout.take()) else {
        kill(child);
        return Err(std::io::Error::other("it has no pipes"));
    };
    let (lines, answers) = channel();
    std::thread::spawn(move || {
        // Drivers and cases print, too. Answers begin with a mark.
        for line in BufReader::new(printed).split(b'\n').map_while(Result::ok) {
            let answer = line.strip_prefix(MARK.as_bytes()).unwrap_or_default();
            let Ok(answer) = serde_json::from_slice(answer) else {
                continue;
            };
            if lines.send(answer).is_err() {
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
