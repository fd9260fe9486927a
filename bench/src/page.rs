//! A recorded run as a table in Markdown, and the place for it in a page.

use std::fmt::Write as _;

use syncline_conformance::report::warning;

use crate::limit::{self, Found, Limit, RAW_HANGS};
use crate::report::{Record, Report, time};
use crate::rows;

/// The mark before the table in a page.
pub const BEGIN: &str = "<!-- From here to the next mark: made by `syncline bench tables`; a test compares it with the recording. -->\n";

/// The mark after the table.
pub const END: &str = "<!-- The end of what is made. -->\n";

/// A recorded run and its file.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'r> {
    /// The path as the page shows it.
    pub path: &'r str,
    /// The run.
    pub report: &'r Report,
}

/// The text between the marks of a page. `None` if the page does not have both, once and in order.
#[must_use]
pub fn made(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once(BEGIN)?;
    let (made, after) = rest.split_once(END)?;
    (!after.contains(BEGIN) && !made.contains(BEGIN)).then_some(made)
}

/// The page with `table` between its marks; `None` in the cases of [`made`].
#[must_use]
pub fn with(page: &str, table: &str) -> Option<String> {
    let old = made(page)?;
    let at = page.find(BEGIN)? + BEGIN.len();
    Some([&page[..at], table, &page[at + old.len()..]].concat())
}

/// All rows of a recorded run as one table in Markdown.
///
/// The limits are those of this build. Rows that this build does not have keep the recorded ones.
#[must_use]
pub fn table(run: Recorded<'_>) -> String {
    let Recorded { path, report } = run;
    let (date, commit) = (&report.date, &report.commit);
    let mut text = format!("\n`{path}`, {date}, commit `{commit}`.\n\n");
    text.push_str(warning(&report.devices));
    for device in &report.devices {
        let (name, backend, driver) = (device.marked_name(), &device.backend, &device.driver);
        let _ = writeln!(text, "- {name}: {backend}, {driver}");
    }
    text.push_str("\n| row | subject | ours | raw | floor | to raw | to floor | limit | |\n");
    text.push_str("|---|---|---|---|---|---|---|---|---|\n");
    let mut id = "";
    for record in &report.rows {
        let name = if record.id == id {
            String::new()
        } else {
            format!("`{}`", record.id)
        };
        id = &record.id;
        let subject = record.subject.as_deref();
        let judged = Judged::of(record);
        let cells = [
            name,
            subject.unwrap_or("(no device to run it on)").to_owned(),
            ours(record),
            raw(record),
            record.floor_ns.map(time).unwrap_or_default(),
            record.ratio.map(times).unwrap_or_default(),
            record.ratio_to_floor.map(times).unwrap_or_default(),
            judged.limits,
            judged.verdict,
        ];
        // A vertical bar would end the cell.
        let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text.push('\n');
    text
}

/// The ids of the rows that miss a limit in this run. Each id appears once.
#[must_use]
pub fn missed(report: &Report) -> Vec<&str> {
    let mut ids: Vec<&str> = Vec::new();
    for record in &report.rows {
        if Judged::of(record).met == Some(false) && !ids.contains(&record.id.as_str()) {
            ids.push(&record.id);
        }
    }
    ids
}

/// A recorded row, judged by the limits of this build.
struct Judged {
    /// The limits in words.
    limits: String,
    met: Option<bool>,
    /// The last cell of the row.
    verdict: String,
}

impl Judged {
    fn of(record: &Record) -> Self {
        let subject = record.subject.as_deref().unwrap_or_default();
        let now = rows::limits_of(&record.id, subject);
        let has_run = record.skipped.is_none() && record.failed.is_none();
        let (limits, missed) = match now {
            Some(limits) => (
                words(limits),
                limit::judge(limits, &found(record)).filter(|_| has_run),
            ),
            None => (
                record.limits.clone(),
                record.met.map(|_| record.missed.clone()),
            ),
        };
        let met = match now {
            Some(_) => missed.as_ref().map(Vec::is_empty),
            None => record.met,
        };
        let verdict = match (&record.skipped, &record.failed, met) {
            (_, Some(reason), _) => format!("**failed**: {reason}"),
            (Some(reason), None, _) => format!("not run: {reason}"),
            (None, None, Some(true)) => "met".into(),
            (None, None, Some(false)) => {
                format!("**missed**: {}", missed.unwrap_or_default().join("; "))
            }
            (None, None, None) => String::new(),
        };
        Self {
            limits,
            met,
            verdict,
        }
    }
}

/// The limits in words, or nothing.
fn words(limits: &[Limit]) -> String {
    if limits.is_empty() {
        return String::new();
    }
    limit::words(limits)
}

fn found(record: &Record) -> Found<'_> {
    Found {
        ours: record.ours_ns,
        raw: record.raw_ns,
        floor: record.floor_ns,
        figures: &record.figures,
    }
}

/// The median of ours, with the 10th and the 90th percentile.
fn ours(record: &Record) -> String {
    match (record.ours_ns, record.spread.ours_ns) {
        (Some(median), Some([low, high])) => {
            format!("{} ({}..{})", time(median), time(low), time(high))
        }
        (Some(median), None) => time(median),
        (None, _) => String::new(),
    }
}

fn raw(record: &Record) -> String {
    if record.figures.contains_key(RAW_HANGS) {
        return "hangs".into();
    }
    record.raw_ns.map(time).unwrap_or_default()
}

/// A ratio.
fn times(ratio: f64) -> String {
    format!("{ratio:.3}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::report::Spread;

    fn record(id: &str, subject: &str, ours: f64, met: Option<bool>) -> Record {
        Record {
            id: id.into(),
            subject: Some(subject.into()),
            ours_ns: Some(ours),
            raw_ns: Some(100.0),
            ratio: Some(ours / 100.0),
            floor_ns: None,
            floor_ratio: None,
            ratio_to_floor: None,
            over_ns: Some(ours - 100.0),
            limits: "≤ raw + 20 ns".into(),
            limit_to_recorded: None,
            met,
            missed: Vec::new(),
            spread: Spread {
                ours_ns: Some([ours - 1.0, ours + 1.0]),
                ..Spread::default()
            },
            figures: [("bytes", 64.0)]
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            skipped: None,
            failed: None,
            notes: Vec::new(),
        }
    }

    fn report(rows: Vec<Record>) -> Report {
        Report {
            commit: "c0ffee".into(),
            date: "today".into(),
            command: String::new(),
            device: String::new(),
            driver: String::new(),
            devices: Vec::new(),
            rows,
        }
    }

    fn of(report: &Report) -> String {
        table(Recorded {
            path: "one.json",
            report,
        })
    }

    #[test]
    fn a_row_has_its_times_ratios_limits_and_verdict() {
        let mut missed = record("a.b", "gpu", 130.0, Some(false));
        missed.missed.push("≤ raw + 20 ns: raw + 30.0 ns".into());
        missed.floor_ns = Some(125.0);
        missed.ratio_to_floor = Some(1.04);
        let text = of(&report(vec![
            record("a.b", "host", 110.0, Some(true)),
            missed,
            record("c", "host", 1.0, None),
        ]));
        for line in [
            "| `a.b` | host | 110.0 ns (109.0 ns..111.0 ns) | 100.0 ns |  | 1.100 |  | ≤ raw + 20 ns | met |\n",
            "|  | gpu | 130.0 ns (129.0 ns..131.0 ns) | 100.0 ns | 125.0 ns | 1.300 | 1.040 | ≤ raw + 20 ns | \
             **missed**: ≤ raw + 20 ns: raw + 30.0 ns |\n",
            "| `c` | host | 1.0 ns (0.0 ns..2.0 ns) | 100.0 ns |  | 0.010 |  | ≤ raw + 20 ns |  |\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(
            text.contains("`one.json`, today, commit `c0ffee`"),
            "{text}"
        );
    }

    #[test]
    fn a_row_of_this_build_is_judged_by_its_limits_and_not_by_the_recorded_ones() {
        let mut alloc = record("alloc", "host", 1.0, Some(false));
        alloc.missed.push("an older limit".into());
        let allocations = |each: f64| {
            let mut alloc = alloc.clone();
            alloc.figures.insert("allocations_each".into(), each);
            report(vec![alloc])
        };
        let text = of(&allocations(0.0));
        assert!(text.contains("| allocations_each ≤ 0 | met |"), "{text}");
        assert!(missed(&allocations(0.0)).is_empty());
        let text = of(&allocations(0.5));
        let verdict = "**missed**: allocations_each ≤ 0: 0.500 |";
        assert!(text.contains(verdict), "{text}");
        assert_eq!(missed(&allocations(0.5)), ["alloc"]);
    }

    #[test]
    fn software_devices_are_marked() {
        let mut one = report(Vec::new());
        assert!(!of(&one).contains("software"));
        one.devices.push(syncline_conformance::report::DeviceLine {
            index: 0,
            backend: "vulkan".into(),
            name: "cpu".into(),
            uuid: None,
            driver: "mine".into(),
            software: true,
        });
        let text = of(&one);
        assert!(text.contains("- cpu (software): vulkan, mine"), "{text}");
        assert!(text.contains("not results of a GPU"), "{text}");
    }

    #[test]
    fn an_id_with_several_misses_is_named_once() {
        let report = report(vec![
            record("a", "host", 1.0, Some(true)),
            record("b", "host", 1.0, Some(false)),
            record("b", "gpu", 1.0, Some(false)),
            record("c", "host", 1.0, None),
        ]);
        assert_eq!(missed(&report), ["b"]);
    }

    #[test]
    fn only_the_text_between_the_marks_is_replaced() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        assert_eq!(made(&page), Some("old\n"));
        let new = with(&page, "new\n").expect("both marks");
        assert_eq!(new, format!("before\n{BEGIN}new\n{END}after\n"));
    }

    #[rstest]
    #[case::no_mark("nothing".into())]
    #[case::only_the_first(BEGIN.into())]
    #[case::only_the_second(END.into())]
    #[case::the_wrong_order(format!("{END}{BEGIN}"))]
    #[case::both_twice(format!("{BEGIN}old\n{END}").repeat(2))]
    fn a_page_without_both_marks_once_and_in_order_is_refused(#[case] page: String) {
        assert_eq!(with(&page, "new\n"), None);
    }

    #[test]
    fn a_raw_side_that_hangs_is_named() {
        let mut hangs = record("a", "host", 1.0, Some(true));
        hangs.raw_ns = None;
        hangs.figures.insert(RAW_HANGS.into(), 1.0);
        assert!(of(&report(vec![hangs])).contains("| hangs |"));
    }

    #[test]
    fn vertical_bars_and_line_breaks_do_not_end_a_cell() {
        let mut odd = record("a", "x | y", 1.0, None);
        odd.skipped = Some("one | two\nthree".into());
        let text = of(&report(vec![odd]));
        assert!(text.contains("| x \\| y |"), "{text}");
        assert!(text.contains("not run: one \\| two three |"), "{text}");
    }
}
