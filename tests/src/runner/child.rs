//! The child process: reads one case per line, and writes one answer per line.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::{Suite, TEARDOWN};
use crate::case::{ends_process, take_notes};
use crate::report::Ending;
use crate::{Settings, Stop, Verdict};

/// Set in a child process: the name of its subject.
pub(crate) const SUBJECT: &str = "SYNCLINE_CONFORMANCE_SUBJECT";

/// The beginning of a line with an answer.
pub(super) const MARK: &str = "\u{1}syncline-answer ";

#[derive(Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) outcome: Ending,
    pub(super) reason: Option<String>,
    /// Whether the case has no verdict of its own.
    #[serde(default)]
    pub(super) lost: bool,
    /// Whether the process ends after the case.
    #[serde(default)]
    pub(super) ends: bool,
}

impl Answer {
    fn new(id: &str, verdict: Verdict) -> Self {
        let notes = take_notes();
        let (outcome, reason) = match verdict {
            Ok(()) => (Ending::Passed, notes),
            Err(Stop::Failed(reason)) => (Ending::Failed, Some(reason)),
            Err(Stop::Skipped(reason)) => (Ending::Skipped, Some(reason)),
        };
        let id = id.into();
        Self {
            id,
            outcome,
            reason,
            lost: false,
            ends: ends_process(),
        }
    }

    pub(super) fn skipped(id: &str, reason: &str) -> Self {
        Self::new(id, Stop::skip(reason))
    }

    /// Writes the answer at once, on a new line whatever was printed before.
    fn say(&self) -> std::io::Result<()> {
        let line = format!("\n{MARK}{}\n", serde_json::to_string(self)?);
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes())?;
        out.flush()
    }
}

/// Returns the subject of this process, if a [`Runner`](super::Runner) started it.
#[must_use]
pub fn child_subject() -> Option<String> {
    std::env::var(SUBJECT).ok()
}

/// Call this first in `main` of a program that runs one suite.
///
/// In a child process it does the work of the child, and returns the exit code for `main`.
pub fn child<L: Suite>(make: impl FnOnce(&Settings) -> L) -> Option<ExitCode> {
    let subject = child_subject()?;
    Some(serve(&make(&Settings::from_env()), &subject))
}

/// Returns what was added to a list that only grows since its length was `known`.
fn news(said: Vec<String>, known: &mut usize) -> Option<String> {
    let new = said.get(*known..).unwrap_or_default().join("; ");
    *known = said.len();
    (!new.is_empty()).then_some(new)
}

/// Runs a child process: it answers cases of `subject` until its input ends.
///
/// In the second process of the subject, same as [`Suite::serve_peer`].
pub fn serve<L: Suite>(suite: &L, subject: &str) -> ExitCode {
    if crate::peer::is_peer() {
        return suite.serve_peer(subject).unwrap_or(ExitCode::from(2));
    }
    if !suite.subjects().iter().any(|name| name == subject) {
        // Nothing was run. That must not look like success.
        eprintln!(
            "error: {SUBJECT} is set for child processes only, and {subject:?} is no subject"
        );
        return ExitCode::from(2);
    }
    let world = suite.open(subject);
    let cases = suite.cases();
    // Complaints about opening the devices count against the first case.
    let (mut complaints, mut remarks) = (0, 0);
    let mut heard = |verdict: Verdict| {
        let new = news(suite.complaints(), &mut complaints);
        let aside = news(suite.remarks(), &mut remarks);
        match verdict {
            Err(Stop::Failed(reason)) => {
                let told = [new, aside].into_iter().flatten();
                Stop::fail(told.fold(reason, |all, said| format!("{all}; meanwhile: {said}")))
            }
            verdict => new.map_or(verdict, |said| Stop::fail(format!("validation: {said}"))),
        }
    };
    for id in std::io::stdin().lines().map_while(Result::ok) {
        let judged = match (&world, cases.iter().find(|case| case.id == id)) {
            (Err(error), _) => Err(format!("the subject cannot be opened: {error}")),
            (Ok(_), None) => Err("there is no such case".into()),
            (Ok(world), Some(case)) => catch_unwind(AssertUnwindSafe(|| world.run(case)))
                .map_err(|_| "the case panicked".into()),
        };
        let lost = judged.is_err();
        let verdict = judged.unwrap_or_else(Stop::fail);
        let answer = Answer {
            lost,
            ..Answer::new(&id, heard(verdict))
        };
        if answer.say().is_err() {
            return ExitCode::FAILURE;
        }
        if answer.ends {
            break;
        }
    }
    let gone = catch_unwind(AssertUnwindSafe(|| drop(world)))
        .map_err(|_| Stop::Failed("letting go of the devices panicked".into()));
    match Answer::new(TEARDOWN, heard(gone)).say() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
