//! A whole run: all selected rows on all their subjects, one after the other.

use syncline::Error;

use crate::lab::{Lab, Measured, Pace};
use crate::limit::Limit;
use crate::machine::Machine;
use crate::processor::{AffinityGuard, avoid_interrupts};
use crate::report::{Record, Report};
use crate::row::{Entry, Row};
use crate::rows;
use crate::side::Outcome;

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only rows whose id contains one of these; all rows if there is none.
    pub filters: Vec<String>,
    /// Selects a subject by its name, by a part of its name, or by the index of a device.
    pub device: Option<String>,
}

/// The rows to run, and the rows that this machine cannot run.
#[derive(Debug)]
pub struct Plan {
    /// Each row on each subject.
    pub entries: Vec<Entry>,
    /// Rows without a subject, and the reasons.
    pub absent: Vec<(Row, String)>,
}

/// Why a plan is empty.
#[derive(Debug, Clone)]
pub enum Nothing {
    /// No row id contains this filter.
    NoSuchRow(String),
    /// No subject matches the device that was asked for.
    NoSuchDevice(Error),
}

impl Plan {
    /// Plans the rows that `options` select on this machine.
    ///
    /// # Errors
    /// If there is nothing to run.
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

    /// Keeps only the subjects that `wanted` selects.
    fn retain(&mut self, wanted: &str) -> Result<(), Nothing> {
        let lower = wanted.to_lowercase();
        let index: Option<usize> = wanted.parse().ok();
        let mut all: Vec<String> = Vec::new();
        for entry in &self.entries {
            if !all.contains(&entry.subject.devices) {
                all.push(entry.subject.devices.clone());
            }
        }
        // A whole name selects only that subject: the name of every list with the host contains
        // "host".
        let whole = all.iter().any(|name| name == wanted);
        self.entries.retain(|entry| match index {
            Some(index) => entry.subject.indices.contains(&index),
            None if whole => entry.subject.devices == wanted,
            None => entry.subject.devices.to_lowercase().contains(&lower),
        });
        // Rows of other devices were deselected, which is no absence.
        self.absent.clear();
        if self.entries.is_empty() {
            let (asked, have) = (wanted.to_owned(), all.join(", "));
            return Err(Nothing::NoSuchDevice(Error::no_such_device(asked, have)));
        }
        Ok(())
    }
}

/// Measures all entries of `plan`, and calls `tell` after each.
///
/// Unless `pace` is quick, this thread uses only some of its processors meanwhile.
pub fn measure(
    machine: &Machine,
    plan: &Plan,
    pace: Pace,
    mut tell: impl FnMut(&Record),
) -> Report {
    let mut report = Report::new(machine.inventory());
    let affinity = (!pace.is_quick()).then(AffinityGuard::new);
    for entry in &plan.entries {
        if affinity.is_some() {
            // Also for threads that a row starts before its race, which does the same.
            avoid_interrupts();
        }
        let record = Record::new(entry, run(machine, entry, pace));
        tell(&record);
        report.rows.push(record);
    }
    for (row, reason) in &plan.absent {
        report.rows.push(Record::skipped(row, reason.clone()));
    }
    report
}

/// Measures one entry, as often as its limits need. Returns the run with the median ratio to raw.
fn run(machine: &Machine, entry: &Entry, pace: Pace) -> Outcome<Measured> {
    let (count, pace) = needed(entry.limits(), pace);
    let mut runs = Vec::new();
    for _ in 0..count {
        let mut lab = Lab::new(pace);
        entry.run(machine, &mut lab)?;
        runs.push(lab.measured);
    }
    Ok(middle(runs))
}

/// The number of runs that `limits` need, and the pace of each.
fn needed(limits: &[Limit], mut pace: Pace) -> (usize, Pace) {
    if pace.is_quick() {
        return (1, pace);
    }
    let limits = limits.iter();
    let times = limits.clone().map(|limit| limit.rounds()).max();
    pace.rounds = pace.rounds.saturating_mul(times.unwrap_or(1));
    (limits.map(|limit| limit.runs()).max().unwrap_or(1), pace)
}

/// Returns the run with the median ratio to raw, with a note of all ratios if there are several.
fn middle(mut runs: Vec<Measured>) -> Measured {
    let ratio = |run: &Measured| match (run.ours, run.raw) {
        (Some(ours), Some(raw)) => ours.median / raw.median,
        _ => f64::NAN,
    };
    runs.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    let ratios: Vec<_> = runs
        .iter()
        .map(|run| format!("{:.3}", ratio(run)))
        .collect();
    let mut middle = runs.swap_remove(runs.len() / 2);
    if ratios.len() > 1 {
        let (count, ratios) = (ratios.len(), ratios.join(", "));
        let note = format!("median of {count} runs; their ratios to raw: {ratios}");
        middle.notes.push(note);
    }
    middle
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::stats::Summary;

    fn run(ours: f64) -> Measured {
        Measured {
            ours: Summary::of(&[ours]),
            raw: Summary::of(&[100.0]),
            ..Measured::default()
        }
    }

    #[rstest]
    #[case::without_limits(&[], Pace::FULL, (1, 30))]
    #[case::absolute(&[Limit::Within(5.0)], Pace::FULL, (1, 30))]
    #[case::over_raw(&[Limit::OverRaw(60.0)], Pace::FULL, (1, 120))]
    #[case::two_limits(&[Limit::Within(5.0), Limit::OverRaw(9.0)], Pace::FULL, (1, 120))]
    #[case::ratio_to_raw(&[Limit::RatioToRaw(1.02)], Pace::FULL, (3, 30))]
    #[case::a_check_that_all_runs(&[Limit::RatioToRaw(1.02), Limit::OverRaw(9.0)], Pace::QUICK, (1, 3))]
    fn limits_need_runs_and_rounds(
        #[case] limits: &[Limit],
        #[case] pace: Pace,
        #[case] expected: (usize, u32),
    ) {
        let (runs, pace) = needed(limits, pace);
        assert_eq!((runs, pace.rounds), expected);
    }

    #[test]
    fn the_run_with_the_median_ratio_is_reported() {
        let middle = middle([130.0, 90.0, 110.0].map(run).into());
        assert_eq!(middle.ours.map(|ours| ours.median), Some(110.0));
        let note = "median of 3 runs; their ratios to raw: 0.900, 1.100, 1.300";
        assert_eq!(middle.notes, [note]);
    }

    #[test]
    fn a_single_run_is_reported_without_a_note() {
        assert!(middle(vec![run(1.0)]).notes.is_empty());
    }
}
