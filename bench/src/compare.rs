//! Growth of each row from one recording to another.
//!
//! A row is compared by its ratio to its floor, or to raw if it has no floor. So recordings of two
//! machines can be compared.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::limit;
use crate::report::{Record, Report, time};
use crate::rows;

/// Rows that grew by more than this factor are printed.
const PRINTED: f64 = 1.2;

/// Why two recordings cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompareError {
    /// A file is missing, or is no recording.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system or of the parser.
        reason: String,
    },
    /// Rows with a limit have no ratio in one of the recordings.
    Missing(Vec<MissingRow>),
    /// No row has a ratio in both recordings.
    NothingInCommon,
}

/// A row with a limit that has no ratio in one of two recordings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRow {
    /// The id, and the subject in brackets.
    pub row: String,
    /// The recording without the ratio.
    pub path: PathBuf,
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, reason } => {
                write!(f, "{} cannot be read: {reason}", path.display())
            }
            Self::Missing(missing) => {
                f.write_str("rows with a limit must have a ratio in both recordings:")?;
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
    /// Reads the output of `syncline bench --json`.
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

    /// The subject of `row` with the API in place of each device, for comparison across machines.
    fn kind(&self, row: &Record) -> String {
        let subject = row.subject.clone().unwrap_or_default();
        let mut names: Vec<_> = self.report.devices.iter().collect();
        // A name may begin with another one.
        names.sort_by_key(|device| std::cmp::Reverse(device.name.len()));
        names.into_iter().fold(subject, |subject, device| {
            let name = format!("{} {}", device.backend, device.marked_name());
            subject.replace(&name, &device.backend)
        })
    }

    /// The row of `other` here: on the same subject, or else on the first subject of its kind.
    fn row(&self, other: &Self, wanted: &Record) -> Option<&Record> {
        let rows = || self.report.rows.iter().filter(|row| row.id == wanted.id);
        let same = rows().find(|row| row.subject == wanted.subject);
        same.or_else(|| rows().find(|row| self.kind(row) == other.kind(wanted)))
    }
}

/// What the time of ours is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// The median of the floor.
    Floor,
    /// The median of raw, for rows without a floor.
    Raw,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Floor => "floor",
            Self::Raw => "raw",
        })
    }
}

/// One row on one subject, with a ratio in both recordings.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The id of the row.
    pub id: String,
    /// Devices, queue and variant of the later recording.
    pub subject: String,
    /// The other side of both ratios.
    pub reference: Reference,
    /// The medians of ours and of the reference in the earlier recording, in nanoseconds.
    pub before_ns: [f64; 2],
    /// The same medians in the later recording.
    pub after_ns: [f64; 2],
    /// The largest allowed growth; `None` if the row has no such limit.
    pub limit: Option<f64>,
}

impl Compared {
    fn of(before: &Record, after: &Record) -> Option<Self> {
        let pair = |reference| -> Option<([f64; 2], [f64; 2])> {
            let of = |record: &Record| {
                let other = match reference {
                    Reference::Floor => record.floor_ns,
                    Reference::Raw => record.raw_ns,
                };
                Some([record.ours_ns?, other?])
            };
            Some((of(before)?, of(after)?))
        };
        let with = |reference| Some((reference, pair(reference)?));
        let found = with(Reference::Floor).or_else(|| with(Reference::Raw));
        let (reference, (before_ns, after_ns)) = found?;
        Some(Self {
            id: after.id.clone(),
            subject: after.subject.clone().unwrap_or_default(),
            reference,
            before_ns,
            after_ns,
            limit: limit_of(after),
        })
    }

    /// The ratio of ours to the reference in the earlier and in the later recording.
    #[must_use]
    pub fn ratios(&self) -> [f64; 2] {
        [self.before_ns, self.after_ns].map(|[ours, reference]| ours / reference)
    }

    /// The later ratio divided by the earlier one.
    #[must_use]
    pub fn growth(&self) -> f64 {
        let [before, after] = self.ratios();
        after / before
    }

    /// True if the ratio grew by more than 20 %.
    #[must_use]
    pub fn has_grown(&self) -> bool {
        is_above(self.growth(), PRINTED)
    }

    /// True if the row has a limit and the ratio grew by more than that.
    #[must_use]
    pub fn is_too_slow(&self) -> bool {
        self.limit
            .is_some_and(|limit| is_above(self.growth(), limit))
    }
}

/// The largest allowed growth of a row: that of this build, or else the recorded one.
fn limit_of(row: &Record) -> Option<f64> {
    let subject = row.subject.as_deref().unwrap_or_default();
    let limits = rows::limits_of(&row.id, subject);
    limits.map_or(row.limit_to_recorded, limit::to_recorded)
}

/// A growth that is no number is above every limit.
fn is_above(growth: f64, limit: f64) -> bool {
    growth.is_nan() || growth > limit
}

/// The rows of two recordings, compared.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Rows with a ratio in both recordings, in the order of the later recording.
    pub rows: Vec<Compared>,
    /// Rows with a limit whose ratio is missing in a recording that has the row.
    pub missing: Vec<MissingRow>,
    /// Rows with a limit that the earlier recording does not have at all.
    pub new: Vec<String>,
    /// The devices of the earlier and the later recording, if they differ.
    pub devices: Option<[String; 2]>,
}

impl Comparison {
    /// Compares `after` with `before`, the earlier recording.
    #[must_use]
    pub fn of(before: &Recording, after: &Recording) -> Self {
        let (mut rows, mut missing, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for row in &after.report.rows {
            let earlier = before.row(after, row);
            let has_time = row.ours_ns.is_some();
            if let Some(compared) = earlier.and_then(|earlier| Compared::of(earlier, row)) {
                rows.push(compared);
            } else if limit_of(row).is_some() && has_time {
                if before.report.rows.iter().any(|other| other.id == row.id) {
                    missing.push(missing_in(row, before));
                } else {
                    new.push(name(row));
                }
            }
        }
        for row in &before.report.rows {
            let later = after.row(before, row);
            let gone = || later.is_none_or(|later| later.ours_ns.is_none());
            if limit_of(row).is_some() && row.ours_ns.is_some() && gone() {
                missing.push(missing_in(row, after));
            }
        }
        let devices = [&before.report.device, &after.report.device];
        Self {
            rows,
            missing,
            new,
            devices: (devices[0] != devices[1]).then(|| devices.map(Clone::clone)),
        }
    }

    /// The rows that grew by more than 20 %.
    pub fn grown(&self) -> impl Iterator<Item = &Compared> {
        self.rows.iter().filter(|row| row.has_grown())
    }

    /// The rows that grew by more than their limits.
    pub fn too_slow(&self) -> impl Iterator<Item = &Compared> {
        self.rows.iter().filter(|row| row.is_too_slow())
    }

    /// Returns an error if a row with a limit is missing, or if nothing was compared.
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

fn name(row: &Record) -> String {
    let subject = row.subject.as_deref().unwrap_or_default();
    format!("{} ({subject})", row.id)
}

fn missing_in(row: &Record, recording: &Recording) -> MissingRow {
    MissingRow {
        row: name(row),
        path: recording.path.clone(),
    }
}

impl fmt::Display for Comparison {
    /// Prints the rows that grew by more than 20 %: both ratios, the growth, and the limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some([before, after]) = &self.devices {
            writeln!(f, "note: recorded on different devices: {before}; {after}")?;
        }
        for row in &self.new {
            writeln!(f, "note: {row} is not in the earlier recording")?;
        }
        for row in self.grown() {
            let [before, after] = row.ratios();
            let [ours_before, ours_after] = [row.before_ns[0], row.after_ns[0]].map(time);
            let reference = row.reference;
            write!(
                f,
                "{:<28} {}\n    {before:.3} -> {after:.3} × {reference} \
                 ({ours_before} -> {ours_after})  growth {:.3}",
                row.id,
                row.subject,
                row.growth()
            )?;
            match row.limit {
                Some(limit) if row.is_too_slow() => writeln!(f, "  ≤ {limit}: TOO SLOW")?,
                Some(limit) => writeln!(f, "  ≤ {limit}: met")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const LIMIT: Option<f64> = Some(1.2);

    /// A row with an id, the medians of ours, raw and the floor, and a limit.
    type Row = (&'static str, [Option<f64>; 3], Option<f64>);

    /// A recording of these rows on the host, or on the GPU of this name.
    fn recording(name: &str, gpu: Option<&str>, rows: &[Row]) -> Recording {
        let subject = gpu.map_or("host".to_owned(), |gpu| format!("cuda {gpu}, idle"));
        let row = |(id, [ours, raw, floor], limit): &Row| {
            json!({
                "id": id, "subject": subject, "ours_ns": ours, "raw_ns": raw, "ratio": null,
                "floor_ns": floor, "over_ns": null, "bar": "", "limit_to_recorded": limit,
                "met": null, "spread": {},
            })
        };
        let device = |name: &str| {
            json!({
                "index": 0, "backend": "cuda", "name": name, "uuid": null, "driver": "",
                "software": false,
            })
        };
        let text = json!({
            "commit": "", "date": "", "command": "", "device": gpu.unwrap_or_default(),
            "devices": gpu.map(device).into_iter().collect::<Vec<_>>(),
            "rows": rows.iter().map(row).collect::<Vec<_>>(),
        });
        Recording {
            path: name.into(),
            report: Report::from_json(&text.to_string()).expect("a report"),
        }
    }

    const fn to_raw(ours: f64) -> [Option<f64>; 3] {
        [Some(ours), Some(100.0), None]
    }

    #[test]
    fn rows_that_grew_are_printed_and_judged_if_they_have_a_limit() {
        let before = recording(
            "before",
            None,
            &[
                ("a", to_raw(100.0), LIMIT),
                ("b", to_raw(100.0), LIMIT),
                ("c", to_raw(100.0), None),
                ("d", to_raw(100.0), Some(3.0)),
            ],
        );
        let after = recording(
            "after",
            None,
            &[
                ("a", to_raw(120.0), LIMIT),
                ("b", to_raw(121.0), LIMIT),
                ("c", to_raw(900.0), None),
                ("d", to_raw(200.0), Some(3.0)),
                ("e", to_raw(1.0), None),
            ],
        );
        let compared = Comparison::of(&before, &after);
        let slow: Vec<_> = compared.too_slow().map(|row| row.id.as_str()).collect();
        assert_eq!(slow, ["b"]);
        let grown: Vec<_> = compared.grown().map(|row| row.id.as_str()).collect();
        assert_eq!(grown, ["b", "c", "d"]);
        assert_eq!(compared.rows.len(), 4);
        assert_eq!(compared.require_complete(), Ok(()));
        let text = compared.to_string();
        for line in [
            "1.000 -> 1.210 × raw (100.0 ns -> 121.0 ns)  growth 1.210  ≤ 1.2: TOO SLOW\n",
            "1.000 -> 9.000 × raw (100.0 ns -> 900.0 ns)  growth 9.000\n",
            "1.000 -> 2.000 × raw (100.0 ns -> 200.0 ns)  growth 2.000  ≤ 3: met\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[rstest]
    #[case::the_floor_counts([Some(100.0), Some(50.0), Some(80.0)], [Some(200.0), Some(50.0), Some(160.0)], 1.0)]
    #[case::raw_without_a_floor([Some(100.0), Some(50.0), None], [Some(300.0), Some(100.0), None], 1.5)]
    #[case::raw_if_one_has_no_floor([Some(100.0), Some(50.0), Some(80.0)], [Some(100.0), Some(25.0), None], 2.0)]
    #[case::raw_that_hangs([Some(100.0), None, Some(80.0)], [Some(150.0), None, Some(80.0)], 1.5)]
    fn growth_is_that_of_the_ratio_to_the_floor_or_else_to_raw(
        #[case] before: [Option<f64>; 3],
        #[case] after: [Option<f64>; 3],
        #[case] growth: f64,
    ) {
        let before = recording("before", None, &[("a", before, None)]);
        let after = recording("after", None, &[("a", after, None)]);
        let compared = Comparison::of(&before, &after);
        let found: Vec<_> = compared.rows.iter().map(Compared::growth).collect();
        assert_eq!(found, [growth]);
    }

    #[test]
    fn recordings_of_two_gpus_are_compared() {
        let before = recording("before", Some("GPU"), &[("a", to_raw(100.0), LIMIT)]);
        let after = recording("after", Some("GPU 2"), &[("a", to_raw(130.0), LIMIT)]);
        let compared = Comparison::of(&before, &after);
        assert_eq!(compared.too_slow().count(), 1);
        assert_eq!(compared.require_complete(), Ok(()));
        let text = compared.to_string();
        assert!(text.contains("different devices: GPU; GPU 2"), "{text}");
    }

    #[test]
    fn the_limit_of_the_later_recording_counts() {
        let before = recording("before", None, &[("a", to_raw(100.0), None)]);
        let after = recording("after", None, &[("a", to_raw(130.0), LIMIT)]);
        assert_eq!(Comparison::of(&before, &after).too_slow().count(), 1);
    }

    #[test]
    fn a_row_with_a_limit_must_have_a_time_in_both() {
        let with = recording(
            "with",
            None,
            &[("a", to_raw(1.0), LIMIT), ("b", to_raw(1.0), None)],
        );
        let without = recording(
            "without",
            None,
            &[("a", [None; 3], LIMIT), ("b", to_raw(1.0), None)],
        );
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
        let none = recording("none", None, &[]);
        let nothing = Comparison::of(&none, &none).require_complete();
        assert_eq!(nothing, Err(CompareError::NothingInCommon));
    }

    #[test]
    fn a_row_that_the_earlier_recording_lacks_is_new_and_one_that_the_later_lacks_is_missing() {
        let all = [("a", to_raw(1.0), LIMIT), ("b", to_raw(1.0), LIMIT)];
        let (fewer, all) = (
            recording("fewer", None, &all[..1]),
            recording("all", None, &all),
        );
        let compared = Comparison::of(&fewer, &all);
        assert_eq!(compared.require_complete(), Ok(()));
        assert_eq!(compared.new, ["b (host)"]);
        let text = compared.to_string();
        assert!(text.contains("b (host) is not in the earlier"), "{text}");
        let error = Comparison::of(&all, &fewer).require_complete();
        assert!(matches!(error, Err(CompareError::Missing(_))), "{error:?}");
    }

    #[rstest]
    #[case::missing("/nonexistent/bench.json")]
    #[case::another_file(env!("CARGO_MANIFEST_PATH"))]
    fn a_file_that_is_no_recording_is_named(#[case] path: &str) {
        let read = Recording::read(Path::new(path));
        let error = read.map(drop).expect_err("no recording");
        assert!(matches!(error, CompareError::Unreadable { .. }), "{error}");
        assert!(error.to_string().contains(path), "{error}");
    }
}
