//! What `syncline doctor` prints.

use serde::Serialize;

use super::Checked;
use super::checks::{Check, Outcome};
use super::facts::Facts;
use crate::output::say;

/// The results, in the form of the JSON.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    commit: &'static str,
    date: String,
    command: String,
    software: bool,
    shares: bool,
    checks: Vec<Line>,
    /// How many of the checks are the command's own. They come first.
    #[serde(skip)]
    own: usize,
}

#[derive(Debug, Serialize)]
struct Line {
    id: String,
    result: &'static str,
    /// What was found, or how it is known that the check holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<String>,
    /// What to do.
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
    /// The check because of which this one was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<&'static str>,
}

impl Line {
    fn new(id: String, outcome: Outcome) -> Self {
        let (result, what, fix, after) = match outcome {
            Outcome::Ok(what) => ("ok", Some(what), None, None),
            Outcome::Found { what, fix } => ("found", Some(what), Some(fix), None),
            Outcome::Skipped { after } => ("skipped", None, None, Some(after)),
        };
        Self {
            id,
            result,
            what,
            fix,
            after,
        }
    }

    fn is_ok(&self) -> bool {
        self.result == "ok"
    }
}

impl Report {
    /// Of the command's own checks, and those of foreign backends.
    pub(super) fn new(
        facts: &Facts,
        own: Vec<(&'static Check, Outcome)>,
        foreign: Vec<Checked>,
    ) -> Self {
        let own = own.into_iter();
        let own: Vec<_> = own
            .map(|(check, outcome)| Line::new(check.id.into(), outcome))
            .collect();
        let foreign = foreign.into_iter();
        let foreign = foreign.map(|checked| Line::new(checked.id, checked.outcome));
        Self {
            commit: syncline_conformance::COMMIT,
            date: syncline_conformance::report::now(),
            command: syncline_conformance::report::command(),
            software: facts.is_software(),
            shares: own.iter().all(Line::is_ok),
            own: own.len(),
            checks: own.into_iter().chain(foreign).collect(),
        }
    }

    /// True if no check has found anything.
    pub(super) fn is_fine(&self) -> bool {
        self.checks.iter().all(Line::is_ok)
    }

    pub(super) fn print(&self) {
        for line in &self.checks {
            // Skipped checks are counted below.
            let Some(what) = &line.what else { continue };
            say!("{:<8} {:<20} {what}", line.result, line.id);
            if let Some(fix) = &line.fix {
                say!("{:>8} {fix}", "->");
            }
        }
        let found = |lines: &[Line]| {
            let found = lines.iter().filter(|line| line.result == "found");
            found.map(|line| line.id.clone()).collect::<Vec<_>>()
        };
        let skipped = self.checks.iter().filter(|line| line.after.is_some());
        match skipped.count() {
            0 => {}
            count => {
                let checks = if count == 1 { "check" } else { "checks" };
                let count = format!("{count} {checks}");
                say!(
                    "{:<8} {count:<20} after {}",
                    "skipped",
                    found(&self.checks[..self.own]).join(", ")
                );
            }
        }
        say!("");
        let found = found(&self.checks);
        match found.first() {
            Some(first) => say!(
                "Found {}. Repair {first} first, then run this again.",
                found.join(", ")
            ),
            None if self.software => {
                say!("CUDA and Vulkan share timelines and memory, in software. No GPU was used.");
            }
            None => say!("CUDA and Vulkan share timelines and memory on this machine."),
        }
    }
}
