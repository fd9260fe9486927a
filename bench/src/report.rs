//! What a run found: for people, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use syncline::{BackendKind, Inventory};
use syncline_conformance::COMMIT;
use syncline_conformance::inventory::device_lines;
use syncline_conformance::report::{DeviceLine, command, now};

use crate::bar::{Bar, Found, Verdict};
use crate::lab::{Outcome, Stop};
use crate::race::Measured;
use crate::rows::{Entry, Row};
use crate::stats::Summary;

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The commit that ran.
    pub commit: String,
    /// When, in UTC (RFC 3339).
    pub date: String,
    /// The command line.
    pub command: String,
    /// The names of the machine's GPUs, or what plays one; of the host, if there is none.
    #[serde(default)]
    pub device: String,
    /// Their drivers, of each API.
    #[serde(default)]
    pub driver: String,
    /// The devices of the machine, each with its driver.
    pub devices: Vec<DeviceLine>,
    /// Every row on every subject.
    pub rows: Vec<Record>,
}

/// One row on one subject, or one row that nothing here can run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The row.
    pub id: String,
    /// Devices, queue and variant; `None` where the machine has nothing to run it on.
    pub subject: Option<String>,
    /// The median of ours, in nanoseconds.
    pub ours_ns: Option<f64>,
    /// The median of raw, in nanoseconds.
    pub raw_ns: Option<f64>,
    /// The first median by the second.
    pub ratio: Option<f64>,
    /// The median of the floor, in nanoseconds: of the least that keeps the contract. `None` where
    /// the row has none of its own, as raw does nothing less, or where there is none to compare
    /// with; so in recordings that are older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_ns: Option<f64>,
    /// That by the median of raw: no ratio below can be asked of who keeps the contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_ratio: Option<f64>,
    /// The median of ours by that of the floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_floor: Option<f64>,
    /// How much longer ours takes than raw, in nanoseconds: the middle over the rounds.
    pub over_ns: Option<f64>,
    /// Between which bounds that lies, with a confidence of 99 %; `None` where there are too few
    /// rounds to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_bounds_ns: Option<[f64; 2]>,
    /// What is asked.
    pub bar: String,
    /// The largest allowed ratio of ours to an earlier recording; `None` if the row has no such
    /// limit, and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_to_recorded: Option<f64>,
    /// Whether the bar is met; `None` if nothing was measured, or if it cannot be told (see
    /// `unsure`).
    pub met: Option<bool>,
    /// Which parts of the bar are missed, and by how much.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<String>,
    /// Of which parts of the bar it cannot be told whether they are met, as what was measured is
    /// not known well enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsure: Vec<String>,
    /// The 10th and the 90th percentile over the rounds.
    pub spread: Spread,
    /// Everything else that was measured, each with its unit at the end of its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// Why it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// What failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// To be read beside the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The 10th and the 90th percentile of each quantity, over the rounds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Spread {
    /// Of ours, in nanoseconds.
    pub ours_ns: Option<[f64; 2]>,
    /// Of raw, in nanoseconds.
    pub raw_ns: Option<[f64; 2]>,
    /// Of ours by raw, round by round.
    pub ratio: Option<[f64; 2]>,
    /// Of ours less raw, round by round, in nanoseconds.
    pub over_ns: Option<[f64; 2]>,
    /// Of the floor, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_ns: Option<[f64; 2]>,
    /// Of the floor by raw, round by round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_ratio: Option<[f64; 2]>,
    /// Of ours by the floor, round by round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_floor: Option<[f64; 2]>,
}

/// Nanoseconds to a hundredth, and ratios to a thousandth: more says nothing.
fn rounded(value: f64, to: f64) -> f64 {
    (value * to).round() / to
}

fn spread(summary: Option<Summary>, to: f64) -> Option<[f64; 2]> {
    summary.map(|summary| [rounded(summary.p10, to), rounded(summary.p90, to)])
}

impl Record {
    fn bare(id: &str, subject: Option<String>, bar: Bar) -> Self {
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
            over_bounds_ns: None,
            bar: bar.to_string(),
            limit_to_recorded: bar.limit_to_recorded(),
            met: None,
            missed: Vec::new(),
            unsure: Vec::new(),
            spread: Spread::default(),
            figures: BTreeMap::new(),
            skipped: None,
            failed: None,
            notes: Vec::new(),
        }
    }

    /// A row that this machine has nothing for.
    #[must_use]
    pub fn skipped(row: &Row, reason: String) -> Self {
        Self {
            skipped: Some(reason),
            ..Self::bare(row.id, None, row.bar)
        }
    }

    /// A row that was run, or was to be.
    #[must_use]
    pub fn new(entry: &Entry, ended: Outcome<Measured>) -> Self {
        let bar = entry.bar();
        let mut record = Self::bare(entry.row.id, Some(entry.name()), bar);
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
        let (ours, raw) = (measured.ours, measured.raw);
        let verdict = bar.judge(&Found {
            ours: ours.map(|ours| ours.median),
            raw: raw.map(|raw| raw.median),
            over: measured.difference,
            figures: &measured.figures,
        });
        match verdict {
            Verdict::Met => record.met = Some(true),
            Verdict::Missed(missed) => (record.met, record.missed) = (Some(false), missed),
            Verdict::Unsure(unsure) => record.unsure = unsure,
        }
        record.ours_ns = ours.map(|ours| rounded(ours.median, 100.0));
        record.raw_ns = raw.map(|raw| rounded(raw.median, 100.0));
        let floor = measured.floor;
        record.floor_ns = floor.map(|floor| rounded(floor.median, 100.0));
        let by = |one: Option<Summary>, other: Option<Summary>| {
            let both = one.zip(other);
            both.map(|(one, other)| rounded(one.median / other.median, 1000.0))
        };
        record.ratio = by(ours, raw);
        record.floor_ratio = by(floor, raw);
        record.ratio_to_floor = by(ours, floor);
        record.over_ns = measured.difference.map(|over| rounded(over.value, 100.0));
        let known = measured
            .difference
            .filter(|over| over.uncertainty().is_finite());
        record.over_bounds_ns =
            known.map(|over| [over.low, over.high].map(|bound| rounded(bound, 100.0)));
        record.spread = Spread {
            ours_ns: spread(ours, 100.0),
            raw_ns: spread(raw, 100.0),
            ratio: spread(measured.ratio, 1000.0),
            over_ns: spread(measured.over, 100.0),
            floor_ns: spread(measured.floor, 100.0),
            floor_ratio: spread(measured.floor_ratio, 1000.0),
            ratio_to_floor: spread(measured.ratio_to_floor, 1000.0),
        };
        record.figures = measured
            .figures
            .into_iter()
            .map(|(name, value)| (name, rounded(value, 1000.0)))
            .collect();
        record.notes = measured.notes;
        record
    }

    /// One line, or a few.
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
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "CANNOT TELL",
        };
        let _ = write!(text, "  {}: {met}", self.bar);
        for missed in &self.missed {
            let _ = write!(text, "\n    missed: {missed}");
        }
        for unsure in &self.unsure {
            let _ = write!(text, "\n    {unsure}");
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

/// A time in the unit that suits it.
#[must_use]
pub fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        short if short < 1e3 => format!("{short:.1} ns"),
        middle if middle < 1e6 => format!("{:.2} µs", middle / 1e3),
        long => format!("{:.2} ms", long / 1e6),
    }
}

impl Report {
    /// A report of this build, run now by this command line, with no rows yet.
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

    /// As JSON.
    ///
    /// # Errors
    /// None, for what a run found.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// A recorded one.
    ///
    /// # Errors
    /// If the text is none.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// True if nothing failed.
    #[must_use]
    pub fn all_ran(&self) -> bool {
        self.rows.iter().all(|row| row.failed.is_none())
    }

    /// True if no bar is missed, and none can be neither met nor missed.
    #[must_use]
    pub fn all_met(&self) -> bool {
        let short = |row: &Record| row.met == Some(false) || !row.unsure.is_empty();
        !self.rows.iter().any(short)
    }

    /// The rows that were skipped, by reason, each reason once.
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

    /// The counts, in words.
    #[must_use]
    pub fn tally(&self) -> String {
        let count = |is: fn(&Record) -> bool| self.rows.iter().filter(|row| is(row)).count();
        let unsure = match count(|row| !row.unsure.is_empty()) {
            0 => String::new(),
            some => format!("{some} of which it cannot be told, "),
        };
        format!(
            "{} met, {} missed, {unsure}{} skipped, {} failed",
            count(|row| row.met == Some(true)),
            count(|row| row.met == Some(false)),
            count(|row| row.skipped.is_some()),
            count(|row| row.failed.is_some()),
        )
    }
}

#[cfg(test)]
mod tests {
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
        Record::bare(id, Some("host".into()), Bar::Shown)
    }

    #[test]
    fn each_reason_is_told_once_with_all_its_rows() {
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
    fn a_missed_bar_and_a_failed_row_are_two_things() {
        let judged = |met| Record {
            met: Some(met),
            ..record("judged")
        };
        let failed = Record {
            failed: Some("no".into()),
            ..record("failed")
        };
        let missed = report(vec![judged(true), judged(false)]);
        assert!(missed.all_ran() && !missed.all_met());
        let broken = report(vec![judged(true), failed]);
        assert!(!broken.all_ran() && broken.all_met());
        assert_eq!(broken.tally(), "1 met, 0 missed, 0 skipped, 1 failed");
        let unsure = Record {
            unsure: vec!["cannot tell".into()],
            ..record("unsure")
        };
        let unsure = report(vec![judged(true), unsure]);
        assert!(unsure.all_ran() && !unsure.all_met());
        assert_eq!(
            unsure.tally(),
            "1 met, 0 missed, 1 of which it cannot be told, 0 skipped, 0 failed"
        );
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let words = [4.66, 1_234.0, 5_600_000.0].map(time);
        assert_eq!(words, ["4.7 ns", "1.23 µs", "5.60 ms"]);
    }
}
