//! The results of a run: for terminals, as JSON, and as JUnit XML.

mod baseline;
mod grid;

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

pub use baseline::{Exception, exceptions};

use crate::COMMIT;

/// How a case ended on a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// It passed.
    Passed,
    /// It failed, hung, or crashed its process.
    Failed,
    /// The subject cannot run it.
    Skipped,
    /// It failed, and that is [expected](crate::expected) of this driver.
    Known,
}

/// One case on one subject.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The case.
    pub id: String,
    /// The rules it shows.
    pub rules: Vec<String>,
    /// The device, or the two devices.
    pub subject: String,
    /// How it ended.
    pub outcome: Ending,
    /// Why it did not pass. If it passed, what it did less than on other subjects.
    pub reason: Option<String>,
    /// Whether this is no verdict of the case.
    ///
    /// Its process hung or crashed, it panicked, or its subject could not be opened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// How long it took.
    pub seconds: f64,
}

/// A device of the machine, as a report lists it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceLine {
    /// Its number in the inventory.
    pub index: usize,
    /// Its backend.
    pub backend: String,
    /// Its name.
    pub name: String,
    /// Its UUID, if it has one.
    pub uuid: Option<String>,
    /// Its driver.
    pub driver: String,
    /// Whether it is software. Its results do not count as results of a GPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub software: bool,
}

impl DeviceLine {
    /// Returns its name for tables, which says if it is software.
    #[must_use]
    pub fn marked_name(&self) -> String {
        let mark = if self.software { " (software)" } else { "" };
        format!("{}{mark}", self.name)
    }
}

/// Returns a warning for a page with recordings of software devices.
#[must_use]
pub fn warning<'d>(devices: impl IntoIterator<Item = &'d DeviceLine>) -> &'static str {
    if devices.into_iter().any(|device| device.software) {
        "**Devices marked as *software* compute on the host's processors. Their results are not results of a GPU.**\n\n"
    } else {
        ""
    }
}

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The commit that ran.
    pub commit: String,
    /// When, in UTC (RFC 3339).
    pub date: String,
    /// The command line.
    pub command: String,
    /// The devices of the machine.
    pub devices: Vec<DeviceLine>,
    /// Every case on every subject.
    pub cases: Vec<Record>,
}

/// Numbers of cases by ending. `Display` writes the last line of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Skipped.
    pub skipped: usize,
    /// Failed as expected.
    pub known: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )?;
        match self.known {
            0 => Ok(()),
            known => write!(f, ", {known} failed as is known"),
        }
    }
}

impl Tally {
    /// Counts one more case.
    pub const fn count(&mut self, ending: Ending) {
        match ending {
            Ending::Passed => self.passed += 1,
            Ending::Failed => self.failed += 1,
            Ending::Skipped => self.skipped += 1,
            Ending::Known => self.known += 1,
        }
    }
}

/// Returns the present time in UTC, in the form of reports.
#[must_use]
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Returns the command line of this process, without the folders of its paths.
#[must_use]
pub fn command() -> String {
    let name = |argument: String| {
        let path = std::path::Path::new(&argument);
        let name = path.file_name().filter(|_| path.is_absolute());
        name.map_or_else(
            || argument.clone(),
            |name| name.to_string_lossy().into_owned(),
        )
    };
    let mut arguments = std::env::args().map(name);
    let program = arguments.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    let words: Vec<String> = std::iter::once(program).chain(arguments).collect();
    words.join(" ")
}

impl Report {
    /// Creates a report of this build, run now with this command line.
    #[must_use]
    pub fn new(devices: Vec<DeviceLine>) -> Self {
        Self {
            commit: COMMIT.into(),
            date: now(),
            command: command(),
            devices,
            cases: Vec::new(),
        }
    }

    /// Counts the cases by ending.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.cases
            .iter()
            .for_each(|record| tally.count(record.outcome));
        tally
    }

    /// Writes a table of rules by subjects for a terminal, with the reasons of cases below.
    #[must_use]
    pub fn table(&self) -> String {
        grid::Grid::new(&self.cases).table()
    }

    /// Writes the same as a page in Markdown. `recorded` is the path of this report.
    #[must_use]
    pub fn page(&self, recorded: &str) -> String {
        grid::page(self, recorded)
    }

    /// Reads a report that [`Report::to_json`] wrote.
    ///
    /// # Errors
    /// Errors of the parser.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// Writes the report as JSON.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Writes the report as JUnit XML, one suite per subject.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn to_junit(&self) -> Result<String, quick_junit::SerializeError> {
        let mut junit = quick_junit::Report::new("syncline conformance");
        let mut subjects: Vec<&str> = Vec::new();
        for record in &self.cases {
            if !subjects.contains(&record.subject.as_str()) {
                subjects.push(&record.subject);
            }
        }
        for subject in subjects {
            let mut suite = quick_junit::TestSuite::new(subject);
            for record in self.cases.iter().filter(|record| record.subject == subject) {
                let reason = record.reason.clone().unwrap_or_default();
                let status = match record.outcome {
                    Ending::Passed => quick_junit::TestCaseStatus::success(),
                    Ending::Failed => {
                        let mut status = quick_junit::TestCaseStatus::non_success(
                            quick_junit::NonSuccessKind::Failure,
                        );
                        status.set_message(reason);
                        status
                    }
                    // JUnit has no other status that does not count as a failure.
                    Ending::Skipped | Ending::Known => {
                        let mut status = quick_junit::TestCaseStatus::skipped();
                        status.set_message(reason);
                        status
                    }
                };
                let mut case = quick_junit::TestCase::new(&record.id, status);
                case.set_classname(subject);
                case.set_time(Duration::try_from_secs_f64(record.seconds).unwrap_or_default());
                suite.add_test_case(case);
            }
            junit.add_test_suite(suite);
        }
        junit.to_string()
    }
}
