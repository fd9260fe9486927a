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
use crate::row::{Entry, Question, Row};
use crate::rows;
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
    /// The limits in words.
    #[serde(rename = "bar")]
    pub limits: String,
    /// Whether all limits are met; `None` if there are none.
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
            limits: limit::words(limits),
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
    pub(crate) fn skipped(row: &Row, reason: String) -> Self {
        Self {
            skipped: Some(reason),
            ..Self::bare(row.id, None, row.limits)
        }
    }

    /// The outcome of a row on one subject.
    pub(crate) fn new(entry: &Entry, ended: Outcome<Measured>) -> Self {
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
        let Measured { ours, raw, .. } = measured;
        let median = |side: Option<Summary>| side.map(|side| side.median);
        let figures: BTreeMap<_, _> = measured.figures.into_iter().collect();
        let missed = limit::judge(
            limits,
            &Found {
                ours: median(ours),
                raw: median(raw),
                figures: &figures,
            },
        );
        record.met = missed.as_ref().map(Vec::is_empty);
        record.missed = missed.unwrap_or_default();
        // Hundredths of nanoseconds, and thousandths of ratios.
        let time = |side: Option<Summary>| median(side).map(|time| rounded(time, 100.0));
        record.ours_ns = time(ours);
        record.raw_ns = time(raw);
        let both = ours.zip(raw);
        record.ratio = both.map(|(ours, raw)| rounded(ours.median / raw.median, 1000.0));
        record.spread = Spread {
            ours_ns: spread(ours, 100.0),
            raw_ns: spread(raw, 100.0),
            ratio: spread(measured.ratio, 1000.0),
        };
        record.figures = figures
            .into_iter()
            .map(|(name, value)| (name, rounded(value, 1000.0)))
            .collect();
        record.notes = measured.notes;
        record
    }

    /// Whether the limits are met, in a word.
    const fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        }
    }

    /// The record in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let text = |value: Option<f64>| value.map(time).unwrap_or_default();
        let more = self.ours_ns.zip(self.raw_ns).map(|(ours, raw)| {
            let sign = if ours < raw { '-' } else { '+' };
            format!("{sign}{}", time((ours - raw).abs()))
        });
        let mut verdict = format!("{} {}", self.limits, self.verdict());
        if self.failed.is_some() {
            verdict = "FAILED".into();
        }
        let (id, more) = (&self.id, more.unwrap_or_default());
        let (ours, raw) = (text(self.ours_ns), text(self.raw_ns));
        let line = format!("  {id:<28} {ours:>10} {raw:>10} {more:>11}  {verdict}");
        line.trim_end().into()
    }

    /// The record with its subject, spreads, misses, figures and notes.
    fn lines(&self) -> String {
        let subject = self.subject.as_deref().unwrap_or("(nothing to run it on)");
        let mut text = format!("{}\n    {subject}", self.line());
        for (name, spread) in [("ours", self.spread.ours_ns), ("raw", self.spread.raw_ns)] {
            if let Some([low, high]) = spread {
                let _ = write!(text, "; {name} {}..{}", time(low), time(high));
            }
        }
        if let Some((ratio, [low, high])) = self.ratio.zip(self.spread.ratio) {
            let _ = write!(text, "; ratio {ratio:.3} ({low:.3}..{high:.3})");
        }
        let failed = self.failed.iter().map(|reason| format!("FAILED: {reason}"));
        let missed = self.missed.iter().map(|missed| format!("missed: {missed}"));
        let figures = self.figures.iter();
        let figures = figures.map(|(name, value)| format!("{name} = {value}"));
        for line in failed
            .chain(missed)
            .chain(figures)
            .chain(self.notes.iter().cloned())
        {
            let _ = write!(text, "\n    {line}");
        }
        text
    }
}

/// A time in ns, µs or ms.
fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        short if short < 1e3 => format!("{short:.1} ns"),
        middle if middle < 1e6 => format!("{:.2} µs", middle / 1e3),
        long => format!("{:.2} ms", long / 1e6),
    }
}

impl Report {
    /// A report of this build, this time and this command line, without rows.
    pub(crate) fn new(inventory: &Inventory) -> Self {
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
    /// Those of the serializer. A report of this crate causes none.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Reads a report from JSON. Of recordings of older versions, what is gone is ignored.
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

    /// One screen: what a submission, a wait and a frame cost, and what happens with very many.
    ///
    /// A line for each row, of its first subject that misses a limit, or else of its first one.
    #[must_use]
    pub fn screen(&self) -> String {
        let mut text = String::new();
        for (question, title) in [
            (Question::Submission, "What do I pay per submission?"),
            (Question::Wait, "per wait and query?"),
            (Question::Frame, "per frame?"),
            (Question::Many, "What happens with very many?"),
        ] {
            let mut part = String::new();
            for row in rows::all().iter().filter(|row| row.question == question) {
                let ran = |of: &&Record| of.id == row.id && of.skipped.is_none();
                let mut of = self.rows.iter().filter(ran);
                let is_bad = |of: &&Record| of.met == Some(false) || of.failed.is_some();
                if let Some(record) = of.clone().find(is_bad).or_else(|| of.next()) {
                    let _ = writeln!(part, "{}", record.line());
                }
            }
            if !part.is_empty() {
                let (ours, raw, more) = ("ours", "by hand", "more");
                let _ = write!(text, "{title:<30} {ours:>10} {raw:>10} {more:>11}\n{part}");
            }
        }
        text
    }

    /// The screen, each row by name, what was skipped and why, and the counts.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.screen();
        for record in self.rows.iter().filter(|record| record.skipped.is_none()) {
            let _ = write!(text, "\n{}", record.lines());
        }
        for (reason, rows) in self.skips() {
            let _ = write!(text, "\n\nskipped: {}\n    {reason}", rows.join(", "));
        }
        let _ = write!(text, "\n\n{}", self.tally());
        text
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
            "{} met, {} missed, {} without a limit, {} skipped, {} failed",
            count(|row| row.met == Some(true)),
            count(|row| row.met == Some(false)),
            count(|row| row.met.is_none() && row.skipped.is_none() && row.failed.is_none()),
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
    fn the_screen_has_a_line_for_each_row_and_shows_a_miss() {
        let times = |subject: &str, ours, met| Record {
            subject: Some(subject.into()),
            ours_ns: Some(ours),
            raw_ns: Some(1000.0),
            met: Some(met),
            ..Record::bare("host.submit", None, &[Limit::RatioToRaw(1.2)])
        };
        let failed = Record {
            failed: Some("no".into()),
            ..record("wait.cores")
        };
        let report = report(vec![
            times("one", 900.0, true),
            times("two", 1500.0, false),
            failed,
        ]);
        let screen = report.screen();
        let rows: Vec<_> = screen
            .lines()
            .filter(|line| line.starts_with("  "))
            .collect();
        let words: Vec<_> = rows
            .iter()
            .map(|row| row.split_whitespace().collect::<Vec<_>>())
            .collect();
        let submit = "host.submit 1.50 µs 1.00 µs +500.0 ns ≤ 1.2 × raw MISSED";
        let expected = [submit, "wait.cores FAILED"].map(|row| row.split(' ').collect::<Vec<_>>());
        assert_eq!(words, expected, "{screen}");
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
            "1 met, 1 missed, 1 without a limit, 0 skipped, 0 failed"
        );
        let broken = report(vec![judged(true), failed]);
        assert!(!broken.all_ran() && broken.all_met());
        assert_eq!(
            broken.tally(),
            "1 met, 0 missed, 0 without a limit, 0 skipped, 1 failed"
        );
    }

    #[rstest]
    #[case::nanoseconds(4.66, "4.7 ns")]
    #[case::microseconds(1_234.0, "1.23 µs")]
    #[case::milliseconds(5_600_000.0, "5.60 ms")]
    fn a_time_has_the_unit_of_its_size(#[case] nanoseconds: f64, #[case] words: &str) {
        assert_eq!(time(nanoseconds), words);
    }
}
