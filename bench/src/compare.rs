//! How many times as long each row of one recording takes as in an earlier one.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::report::{Record, Report, time};

/// Why two recordings cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompareError {
    /// A file is missing, or is no recording.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system or the parser says.
        reason: String,
    },
    /// Rows with a limit have no time in one of the recordings.
    Missing(Vec<MissingRow>),
    /// No row has a time in both recordings.
    NothingInCommon,
}

/// A row with a limit that one of two recordings has no time of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRow {
    /// The row's id, and its subject in brackets.
    pub row: String,
    /// The recording that lacks it.
    pub path: PathBuf,
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, reason } => {
                write!(f, "{} cannot be read: {reason}", path.display())
            }
            Self::Missing(missing) => {
                f.write_str("rows with a limit have no time in both recordings:")?;
                for MissingRow { row, path } in missing {
                    write!(f, "\n    {row} has none in {}", path.display())?;
                }
                Ok(())
            }
            Self::NothingInCommon => f.write_str("the two recordings have no row in common"),
        }
    }
}

impl std::error::Error for CompareError {}

/// A recorded run, read from a file.
#[derive(Debug, Clone)]
pub struct Recording {
    path: PathBuf,
    report: Report,
}

impl Recording {
    /// Reads what `syncline bench --json` has written.
    ///
    /// # Errors
    /// [`CompareError::Unreadable`].
    pub fn read(path: &Path) -> Result<Self, CompareError> {
        let unreadable = |reason: String| CompareError::Unreadable {
            path: path.to_owned(),
            reason,
        };
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        let report = Report::from_json(&text).map_err(|error| unreadable(error.to_string()))?;
        Ok(Self {
            path: path.to_owned(),
            report,
        })
    }

    fn row(&self, wanted: &Record) -> Option<&Record> {
        let mut rows = self.report.rows.iter();
        rows.find(|row| (&row.id, &row.subject) == (&wanted.id, &wanted.subject))
    }
}

/// One row on one subject, with a time in both recordings.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The row.
    pub id: String,
    /// Devices, queue and variant.
    pub subject: String,
    /// The earlier median of ours, in nanoseconds.
    pub before_ns: f64,
    /// The later one.
    pub after_ns: f64,
    /// The largest ratio that is allowed; `None` if the row has no such limit.
    pub limit: Option<f64>,
}

impl Compared {
    /// The later time by the earlier one.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.after_ns / self.before_ns
    }

    /// True if the row has a limit, and the ratio is above it.
    #[must_use]
    pub fn is_too_slow(&self) -> bool {
        // A ratio that is no number is above every limit.
        self.limit
            .is_some_and(|limit| self.ratio().is_nan() || self.ratio() > limit)
    }
}

/// What two recordings say of the same rows.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The rows with a time in both, in the order of the later recording.
    pub rows: Vec<Compared>,
    /// The rows with a limit that have a time in one recording only.
    pub missing: Vec<MissingRow>,
    /// The devices of the earlier and the later recording, if they differ.
    pub devices: Option<[String; 2]>,
}

impl Comparison {
    /// Compares `after` with `before`, which is the earlier one.
    #[must_use]
    pub fn of(before: &Recording, after: &Recording) -> Self {
        let (mut rows, mut missing) = (Vec::new(), Vec::new());
        for row in &after.report.rows {
            let Some(after_ns) = row.ours_ns else {
                continue;
            };
            let earlier = before.row(row).and_then(|earlier| earlier.ours_ns);
            match earlier {
                Some(before_ns) => rows.push(Compared {
                    id: row.id.clone(),
                    subject: row.subject.clone().unwrap_or_default(),
                    before_ns,
                    after_ns,
                    limit: row.limit_to_recorded,
                }),
                None if row.limit_to_recorded.is_some() => missing.push(missing_in(row, before)),
                None => {}
            }
        }
        for row in &before.report.rows {
            let gone = || after.row(row).is_none_or(|later| later.ours_ns.is_none());
            if row.limit_to_recorded.is_some() && row.ours_ns.is_some() && gone() {
                missing.push(missing_in(row, after));
            }
        }
        let devices = [&before.report.device, &after.report.device];
        Self {
            rows,
            missing,
            devices: (devices[0] != devices[1]).then(|| devices.map(Clone::clone)),
        }
    }

    /// The rows that are slower than their limit allows.
    pub fn too_slow(&self) -> impl Iterator<Item = &Compared> {
        self.rows.iter().filter(|row| row.is_too_slow())
    }

    /// Refuses a comparison in which a row with a limit is missing, or that compares nothing.
    ///
    /// # Errors
    /// [`CompareError::Missing`]; [`CompareError::NothingInCommon`].
    pub fn require_complete(&self) -> Result<(), CompareError> {
        if !self.missing.is_empty() {
            return Err(CompareError::Missing(self.missing.clone()));
        }
        if self.rows.is_empty() {
            return Err(CompareError::NothingInCommon);
        }
        Ok(())
    }
}

fn missing_in(row: &Record, recording: &Recording) -> MissingRow {
    let subject = row.subject.as_deref().unwrap_or_default();
    MissingRow {
        row: format!("{} ({subject})", row.id),
        path: recording.path.clone(),
    }
}

impl fmt::Display for Comparison {
    /// A line for each row: both times, their ratio, and the limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some([before, after]) = &self.devices {
            writeln!(f, "note: recorded on different devices: {before}; {after}")?;
        }
        for row in &self.rows {
            let (before, after) = (time(row.before_ns), time(row.after_ns));
            write!(
                f,
                "{:<28} {}\n    {before} -> {after}  ratio {:.3}",
                row.id,
                row.subject,
                row.ratio()
            )?;
            if let Some(limit) = row.limit {
                let verdict = if row.is_too_slow() { "SLOWER" } else { "met" };
                write!(f, "  ≤ {limit}: {verdict}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(name: &str, rows: &[(&str, Option<f64>, Option<f64>)]) -> Recording {
        let row = |(id, ours, limit): &(&str, Option<f64>, Option<f64>)| {
            serde_json::json!({
                "id": id, "subject": "host", "ours_ns": ours, "raw_ns": null, "ratio": null,
                "over_ns": null, "bar": "", "limit_to_recorded": limit, "met": null, "spread": {},
            })
        };
        let text = serde_json::json!({
            "commit": "", "date": "", "command": "", "devices": [],
            "rows": rows.iter().map(row).collect::<Vec<_>>(),
        });
        Recording {
            path: name.into(),
            report: Report::from_json(&text.to_string()).expect("a report"),
        }
    }

    #[test]
    fn a_row_is_too_slow_above_its_limit_and_others_are_only_shown() {
        let limit = Some(1.2);
        let before = recording(
            "before",
            &[
                ("a", Some(100.0), limit),
                ("b", Some(100.0), limit),
                ("c", Some(100.0), None),
            ],
        );
        let after = recording(
            "after",
            &[
                ("a", Some(120.0), limit),
                ("b", Some(121.0), limit),
                ("c", Some(900.0), None),
                ("d", Some(1.0), None),
            ],
        );
        let compared = Comparison::of(&before, &after);
        let slow: Vec<_> = compared.too_slow().map(|row| row.id.as_str()).collect();
        assert_eq!(slow, ["b"]);
        assert_eq!(compared.rows.len(), 3);
        assert_eq!(compared.require_complete(), Ok(()));
        let text = compared.to_string();
        assert!(
            text.contains("100.0 ns -> 121.0 ns  ratio 1.210  ≤ 1.2: SLOWER"),
            "{text}"
        );
        assert!(
            text.contains("100.0 ns -> 900.0 ns  ratio 9.000\n"),
            "{text}"
        );
    }

    #[test]
    fn a_recording_that_is_older_than_the_limit_is_compared_all_the_same() {
        let before = recording("before", &[("a", Some(100.0), None)]);
        let after = recording("after", &[("a", Some(130.0), Some(1.2))]);
        assert_eq!(Comparison::of(&before, &after).too_slow().count(), 1);
    }

    #[test]
    fn a_row_with_a_limit_must_have_a_time_in_both() {
        let limit = Some(1.2);
        let with = recording("with", &[("a", Some(1.0), limit), ("b", Some(1.0), None)]);
        let without = recording("without", &[("a", None, limit), ("b", Some(1.0), None)]);
        for (before, after) in [(&with, &without), (&without, &with)] {
            let error = Comparison::of(before, after).require_complete();
            match error {
                Err(CompareError::Missing(missing)) => {
                    let expected = MissingRow {
                        row: "a (host)".into(),
                        path: "without".into(),
                    };
                    assert_eq!(missing, [expected]);
                }
                other => panic!("{other:?}"),
            }
        }
        // A row that neither recording has measured is not missing.
        let both = Comparison::of(&without, &without);
        assert_eq!(both.require_complete(), Ok(()));
        let none = recording("none", &[]);
        let nothing = Comparison::of(&none, &none).require_complete();
        assert_eq!(nothing, Err(CompareError::NothingInCommon));
    }

    #[test]
    fn a_file_that_is_no_recording_is_named() {
        let missing = Recording::read(Path::new("/nonexistent/bench.json"));
        let this = Recording::read(Path::new(env!("CARGO_MANIFEST_PATH")));
        for (read, name) in [(missing, "/nonexistent/bench.json"), (this, "Cargo.toml")] {
            let error = read.map(drop).expect_err("no recording");
            assert!(matches!(error, CompareError::Unreadable { .. }), "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
