//! The result of a run: printed, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use syncline::{Inventory, info::BackendKind};
use syncline_conformance::COMMIT;
use syncline_conformance::inventory::device_lines;
use syncline_conformance::report::{DeviceLine, command, now};

use crate::lab::Measured;
use crate::limit::{self, Found, Limit};
use crate::rows::{Entry, Row};
use crate::side::{Outcome, Stop};
use crate::stats::Summary;

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The commit of the program.
    pub commit: String,
    /// The time of the run, in UTC (RFC 3339).
    pub date: String,
    /// The command line.
    pub command: String,
    /// Names of all GPUs and software devices, or of the host if there are none.
    #[serde(default)]
    pub device: String,
    /// The drivers of these devices, of each API.
    #[serde(default)]
    pub driver: String,
    /// All devices of the machine, each with its driver.
    pub devices: Vec<DeviceLine>,
    /// All rows on all subjects.
    pub rows: Vec<Record>,
}

/// One row on one subject, or a row without a subject.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The id of the row.
    pub id: String,
    /// Devices, queue and variant; `None` if this machine cannot run the row.
    pub subject: Option<String>,
    /// The median of ours, in nanoseconds.
    pub ours_ns: Option<f64>,
    /// The median of raw, in nanoseconds.
    pub raw_ns: Option<f64>,
    /// The median of ours divided by that of raw.
    pub ratio: Option<f64>,
    /// The median of the floor, in nanoseconds.
    ///
    /// `None` if the row has no floor side, and in the oldest recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_ns: Option<f64>,
    /// The median of the floor divided by that of raw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_ratio: Option<f64>,
    /// The median of ours divided by that of the floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_floor: Option<f64>,
    /// The median over the rounds of ours less raw, in nanoseconds.
    pub over_ns: Option<f64>,
    /// The limits in words. (Older recordings have other limits here.)
    #[serde(rename = "bar")]
    pub limits: String,
    /// The largest allowed growth since an earlier recording; `None` if the row has no such limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_to_recorded: Option<f64>,
    /// Whether all limits are met; `None` if this run judges none.
    pub met: Option<bool>,
    /// The missed limits, and by how much each is missed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<String>,
    /// The 10th and the 90th percentile over the rounds.
    pub spread: Spread,
    /// All other figures. Each name ends in the unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// Why the row was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// The error that ended the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Remarks for the reader of the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The 10th and the 90th percentile of each quantity over the rounds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Spread {
    /// Nanoseconds of ours.
    pub ours_ns: Option<[f64; 2]>,
    /// Nanoseconds of raw.
    pub raw_ns: Option<[f64; 2]>,
    /// Ours divided by raw, of each round.
    pub ratio: Option<[f64; 2]>,
    /// Nanoseconds of ours less raw, of each round.
    pub over_ns: Option<[f64; 2]>,
    /// Nanoseconds of the floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_ns: Option<[f64; 2]>,
    /// The floor divided by raw, of each round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_ratio: Option<[f64; 2]>,
    /// Ours divided by the floor, of each round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_floor: Option<[f64; 2]>,
}

/// Rounds to a multiple of `1 / to`.
fn rounded(value: f64, to: f64) -> f64 {
    (value * to).round() / to
}

fn spread(summary: Option<Summary>, to: f64) -> Option<[f64; 2]> {
    summary.map(|summary| [rounded(summary.p10, to), rounded(summary.p90, to)])
}

impl Record {
    fn bare(id: &str, subject: Option<String>, limits: &[Limit]) -> Self {
        Self {
            id: id.into(),
            subject,
            ours_ns: None,
            raw_ns: None,
            ratio: None,
            floor_ns: None,
            floor_ratio: None,
            ratio_to_floor: None,
            over_ns: None,
            limits: limit::words(limits),
            limit_to_recorded: limit::to_recorded(limits),
            met: None,
            missed: Vec::new(),
            spread: Spread::default(),
            figures: BTreeMap::new(),
            skipped: None,
            failed: None,
            notes: Vec::new(),
        }
    }

    /// A row that this machine cannot run.
    #[must_use]
    pub fn skipped(row: &Row, reason: String) -> Self {
        Self {
            skipped: Some(reason),
            ..Self::bare(row.id, None, row.limits)
        }
    }

    /// The outcome of a row on one subject.
    #[must_use]
    pub fn new(entry: &Entry, ended: Outcome<Measured>) -> Self {
        let limits = entry.limits();
        let mut record = Self::bare(entry.row.id, Some(entry.name()), limits);
        let measured = match ended {
            Ok(measured) => measured,
            Err(Stop::Skipped(reason)) => {
                record.skipped = Some(reason);
                return record;
            }
            Err(Stop::Failed(reason)) => {
                record.failed = Some(reason);
                return record;
            }
        };
        let Measured {
            ours, raw, floor, ..
        } = measured;
        let median = |side: Option<Summary>| side.map(|side| side.median);
        let figures: BTreeMap<_, _> = measured.figures.into_iter().collect();
        let missed = limit::judge(
            limits,
            &Found {
                ours: median(ours),
                raw: median(raw),
                floor: median(floor),
                figures: &figures,
            },
        );
        record.met = missed.as_ref().map(Vec::is_empty);
        record.missed = missed.unwrap_or_default();
        // Hundredths of nanoseconds, and thousandths of ratios.
        let time = |side: Option<Summary>| median(side).map(|time| rounded(time, 100.0));
        record.ours_ns = time(ours);
        record.raw_ns = time(raw);
        record.floor_ns = time(floor);
        record.over_ns = time(measured.over);
        let by = |one: Option<Summary>, other: Option<Summary>| {
            let both = one.zip(other);
            both.map(|(one, other)| rounded(one.median / other.median, 1000.0))
        };
        record.ratio = by(ours, raw);
        record.floor_ratio = by(floor, raw);
        record.ratio_to_floor = by(ours, floor);
        record.spread = Spread {
            ours_ns: spread(ours, 100.0),
            raw_ns: spread(raw, 100.0),
            ratio: spread(measured.ratio, 1000.0),
            over_ns: spread(measured.over, 100.0),
            floor_ns: spread(measured.floor, 100.0),
            floor_ratio: spread(measured.floor_ratio, 1000.0),
            ratio_to_floor: spread(measured.ratio_to_floor, 1000.0),
        };
        record.figures = figures
            .into_iter()
            .map(|(name, value)| (name, rounded(value, 1000.0)))
            .collect();
        record.notes = measured.notes;
        record
    }

    const fn is_unjudged(&self) -> bool {
        self.met.is_none() && self.skipped.is_none() && self.failed.is_none()
    }

    /// The record as printed: one line or a few.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut text = format!(
            "{:<28} {}",
            self.id,
            self.subject.as_deref().unwrap_or("(nothing to run it on)")
        );
        if let Some(reason) = &self.skipped {
            let _ = write!(text, "\n    skipped: {reason}");
            return text;
        }
        if let Some(reason) = &self.failed {
            let _ = write!(text, "\n    FAILED: {reason}");
            return text;
        }
        let _ = write!(text, "\n   ");
        let times = [
            ("ours", self.ours_ns, self.spread.ours_ns),
            ("raw", self.raw_ns, self.spread.raw_ns),
            ("floor", self.floor_ns, self.spread.floor_ns),
        ];
        for (name, median, spread) in times {
            if let Some((median, [low, high])) = median.zip(spread) {
                let _ = write!(
                    text,
                    " {name} {} ({}..{})",
                    time(median),
                    time(low),
                    time(high)
                );
            }
        }
        if let Some(ratio) = self.ratio {
            let _ = write!(text, "  ratio {ratio:.3}");
        }
        if let Some([low, high]) = self.spread.ratio {
            let _ = write!(text, " ({low:.3}..{high:.3})");
        }
        if let Some(ratio) = self.floor_ratio {
            let _ = write!(text, "  floor to raw {ratio:.3}");
        }
        if let Some(ratio) = self.ratio_to_floor {
            let _ = write!(text, "  ours to floor {ratio:.3}");
        }
        let met = match self.met {
            Some(true) => ": met",
            Some(false) => ": MISSED",
            None => "",
        };
        let _ = write!(text, "  {}{met}", self.limits);
        for missed in &self.missed {
            let _ = write!(text, "\n    missed: {missed}");
        }
        for (name, value) in &self.figures {
            let _ = write!(text, "\n    {name} = {value}");
        }
        for note in &self.notes {
            let _ = write!(text, "\n    {note}");
        }
        text
    }
}

/// A time in ns, µs or ms.
#[must_use]
pub fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        short if short < 1e3 => format!("{short:.1} ns"),
        middle if middle < 1e6 => format!("{:.2} µs", middle / 1e3),
        long => format!("{:.2} ms", long / 1e6),
    }
}

impl Report {
    /// A report of this build, this time and this command line, without rows.
    #[must_use]
    pub fn new(inventory: &Inventory) -> Self {
        let devices = device_lines(inventory);
        let gpus = |of: fn(&DeviceLine) -> String| {
            let is_host = |device: &&DeviceLine| device.backend == BackendKind::Host.to_string();
            let all = devices.iter().filter(|device| !is_host(device)).map(of);
            let mut names: Vec<String> = Vec::new();
            for name in all {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            if names.is_empty() {
                names.extend(devices.iter().map(of));
            }
            names.join(", ")
        };
        Self {
            commit: COMMIT.into(),
            date: now(),
            command: command(),
            device: gpus(DeviceLine::marked_name),
            driver: gpus(|device| device.driver.clone()),
            devices,
            rows: Vec::new(),
        }
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// Those of the serializer. A report of [`measure`](crate::measure()) causes none.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Reads a report from JSON. Recordings of older versions are readable.
    ///
    /// # Errors
    /// If the text is not a report.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// True if no row failed.
    #[must_use]
    pub fn all_ran(&self) -> bool {
        self.rows.iter().all(|row| row.failed.is_none())
    }

    /// True if no limit is missed.
    #[must_use]
    pub fn all_met(&self) -> bool {
        !self.rows.iter().any(|row| row.met == Some(false))
    }

    /// The skipped rows by reason. Each reason appears once.
    #[must_use]
    pub fn skips(&self) -> Vec<(String, Vec<String>)> {
        let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
        for row in &self.rows {
            let Some(reason) = &row.skipped else { continue };
            let name = match &row.subject {
                Some(subject) => format!("{} ({subject})", row.id),
                None => row.id.clone(),
            };
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, rows)) => rows.push(name),
                None => reasons.push((reason.clone(), vec![name])),
            }
        }
        reasons
    }

    /// Counts of rows, in words.
    #[must_use]
    pub fn tally(&self) -> String {
        let count = |is: fn(&Record) -> bool| self.rows.iter().filter(|row| is(row)).count();
        format!(
            "{} met, {} missed, {} without a limit to judge, {} skipped, {} failed",
            count(|row| row.met == Some(true)),
            count(|row| row.met == Some(false)),
            count(|row| row.is_unjudged()),
            count(|row| row.skipped.is_some()),
            count(|row| row.failed.is_some()),
        )
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn report(rows: Vec<Record>) -> Report {
        Report {
            commit: String::new(),
            date: String::new(),
            command: String::new(),
            device: String::new(),
            driver: String::new(),
            devices: Vec::new(),
            rows,
        }
    }

    fn record(id: &str) -> Record {
        Record::bare(id, Some("host".into()), &[])
    }

    #[test]
    fn each_reason_to_skip_appears_once_with_all_its_rows() {
        let skipped = |id: &str, reason: &str| Record {
            skipped: Some(reason.into()),
            ..record(id)
        };
        let rows = vec![
            skipped("a", "one"),
            skipped("b", "two"),
            skipped("c", "one"),
        ];
        let skips = report(rows).skips();
        let of = |rows: &[&str]| rows.iter().map(|row| format!("{row} (host)")).collect();
        let expected: Vec<(String, Vec<String>)> =
            vec![("one".into(), of(&["a", "c"])), ("two".into(), of(&["b"]))];
        assert_eq!(skips, expected);
    }

    #[test]
    fn missed_limits_and_failed_rows_are_counted_apart() {
        let judged = |met| Record {
            met: Some(met),
            ..record("judged")
        };
        let failed = Record {
            failed: Some("no".into()),
            ..record("failed")
        };
        let missed = report(vec![judged(true), judged(false), record("printed")]);
        assert!(missed.all_ran() && !missed.all_met());
        assert_eq!(
            missed.tally(),
            "1 met, 1 missed, 1 without a limit to judge, 0 skipped, 0 failed"
        );
        let broken = report(vec![judged(true), failed]);
        assert!(!broken.all_ran() && broken.all_met());
        assert_eq!(
            broken.tally(),
            "1 met, 0 missed, 0 without a limit to judge, 0 skipped, 1 failed"
        );
    }

    /// A row of a recording made before the limits were replaced.
    #[test]
    fn older_recordings_are_readable() {
        let row = serde_json::json!({
            "id": "any.dispatch", "subject": "host", "ours_ns": 140.0, "raw_ns": 100.0,
            "ratio": 1.4, "over_ns": 40.0, "over_bounds_ns": [39.0, 41.0], "bar": "≤ raw + 5 ns",
            "met": null, "unsure": ["cannot tell"], "spread": {},
            "figures": { "floor_over_ns": 1.0 },
        });
        let text = serde_json::json!({
            "commit": "", "date": "", "command": "", "devices": [], "rows": [row],
        });
        let report = Report::from_json(&text.to_string()).expect("a report");
        let row = &report.rows[0];
        assert_eq!((row.ours_ns, row.met), (Some(140.0), None));
        assert_eq!(row.limits, "≤ raw + 5 ns");
    }

    #[rstest]
    #[case::nanoseconds(4.66, "4.7 ns")]
    #[case::microseconds(1_234.0, "1.23 µs")]
    #[case::milliseconds(5_600_000.0, "5.60 ms")]
    fn a_time_has_the_unit_of_its_size(#[case] nanoseconds: f64, #[case] words: &str) {
        assert_eq!(time(nanoseconds), words);
    }
}
