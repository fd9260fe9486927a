//! A whole run: which rows on which subjects, one after the other.

use syncline::Error;

use crate::machine::Machine;
use crate::race::{Bench, Pace};
use crate::report::{Record, Report};
use crate::rows::{self, Entry, Row};

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only rows whose id contains one of these; all rows if there is none.
    pub filters: Vec<String>,
    /// Only the subject of this name, or those whose names contain it, or with the device of this
    /// index: as for the suite.
    pub device: Option<String>,
}

/// What of a plan is to be run, and what cannot be.
#[derive(Debug)]
pub struct Plan {
    /// To be run.
    pub entries: Vec<Entry>,
    /// With nothing to run them on, and the reasons.
    pub absent: Vec<(Row, String)>,
}

/// Why there is nothing to run.
#[derive(Debug, Clone)]
pub enum Nothing {
    /// No row has such a name.
    NoSuchRow(String),
    /// No device has.
    NoSuchDevice(Error),
}

impl Plan {
    /// The rows of `options` on the machine.
    ///
    /// # Errors
    /// If that is nothing at all.
    pub fn new(machine: &Machine, options: &Options) -> Result<Self, Nothing> {
        let mut rows = rows::all();
        let filters = &options.filters;
        let unknown = |filter: &&String| !rows.iter().any(|row| row.id.contains(*filter));
        if let Some(filter) = filters.iter().find(unknown) {
            return Err(Nothing::NoSuchRow(filter.clone()));
        }
        if !filters.is_empty() {
            rows.retain(|row| filters.iter().any(|filter| row.id.contains(filter)));
        }
        let mut plan = Self {
            entries: Vec::new(),
            absent: Vec::new(),
        };
        for row in rows {
            let (entries, reasons) = row.entries(machine);
            plan.entries.extend(entries);
            let absent = reasons.into_iter().map(|reason| (row.clone(), reason));
            plan.absent.extend(absent);
        }
        if let Some(wanted) = &options.device {
            plan.retain(wanted)?;
        }
        Ok(plan)
    }

    /// Leaves only the subjects that `wanted` means.
    fn retain(&mut self, wanted: &str) -> Result<(), Nothing> {
        let lower = wanted.to_lowercase();
        let index: Option<usize> = wanted.parse().ok();
        let mut all: Vec<String> = Vec::new();
        for entry in &self.entries {
            if !all.contains(&entry.subject.devices) {
                all.push(entry.subject.devices.clone());
            }
        }
        // A whole name means that one alone: every list with the host contains "host".
        let whole = all.iter().any(|name| name == wanted);
        self.entries.retain(|entry| match index {
            Some(index) => entry.subject.indices.contains(&index),
            None if whole => entry.subject.devices == wanted,
            None => entry.subject.devices.to_lowercase().contains(&lower),
        });
        // Who asks for one device knows that others' rows are left out.
        self.absent.clear();
        if self.entries.is_empty() {
            let (asked, have) = (wanted.to_owned(), all.join(", "));
            return Err(Nothing::NoSuchDevice(Error::NoSuchDevice { asked, have }));
        }
        Ok(())
    }
}

/// Measures what is planned, and tells each outcome as soon as it is there.
pub fn measure(
    machine: &Machine,
    plan: &Plan,
    pace: Pace,
    mut tell: impl FnMut(&Record),
) -> Report {
    let mut report = Report::new(machine.inventory());
    for entry in &plan.entries {
        let mut bench = Bench::new(pace);
        let ended = entry.run(machine, &mut bench);
        let record = Record::new(entry, ended.map(|()| bench.measured));
        tell(&record);
        report.rows.push(record);
    }
    for (row, reason) in &plan.absent {
        let record = Record::skipped(row, reason.clone());
        report.rows.push(record);
    }
    report
}
