//! Two recorded runs as tables, and the place on a page where those stand.

use std::fmt::Write as _;

use syncline_conformance::report::warning;

use crate::bar::RAW_HANGS;
use crate::race::{FLOOR_OVER, FLOOR_OVER_HIGH, FLOOR_OVER_LOW};
use crate::report::{Record, Report, time};

/// What comes before the tables on a page.
pub const BEGIN: &str = "<!-- From here to the next mark: made by `syncline bench tables`; a test compares it with the recordings. -->\n";

/// What comes after them.
pub const END: &str = "<!-- The end of what is made. -->\n";

/// What stands there while nothing is recorded.
pub const NOTHING: &str = "No run of the bench is recorded yet.\n";

/// A recorded run, and the file where it lies.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'r> {
    /// As a reader of the page finds it.
    pub path: &'r str,
    /// The run.
    pub report: &'r Report,
}

/// What a page has between the marks.
#[must_use]
pub fn made(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once(BEGIN)?;
    let (made, after) = rest.split_once(END)?;
    (!after.contains(BEGIN) && !made.contains(BEGIN)).then_some(made)
}

/// The page with `tables` between its marks; `None` if it does not have both, once and in order.
#[must_use]
pub fn with(page: &str, tables: &str) -> Option<String> {
    let old = made(page)?;
    let at = page.find(BEGIN)? + BEGIN.len();
    Some([&page[..at], tables, &page[at + old.len()..]].concat())
}

/// Everything that two runs found, in Markdown.
#[must_use]
pub fn tables(runs: [Recorded<'_>; 2]) -> String {
    let mut text =
        String::from("\n| run | recording | date | commit | bars |\n|---|---|---|---|---|\n");
    for (number, run) in (1..).zip(runs) {
        let Recorded { path, report } = run;
        let (date, commit, tally) = (&report.date, &report.commit, report.tally());
        let _ = writeln!(
            text,
            "| {number} | `{path}` | {date} | `{commit}` | {tally} |"
        );
    }
    text.push('\n');
    text.push_str(warning(runs.iter().flat_map(|run| &run.report.devices)));
    text.push_str("| device | API | driver |\n|---|---|---|\n");
    let mut known = Vec::new();
    for device in runs.iter().flat_map(|run| &run.report.devices) {
        let (name, backend, driver) = (device.marked_name(), &device.backend, &device.driver);
        let line = format!("| {name} | {backend} | {driver} |\n");
        if !known.contains(&line) {
            text.push_str(&line);
            known.push(line);
        }
    }
    text.push_str(
        "\nTwo figures in a cell are those of the first run and of the second. Times are medians over the rounds, with the 10th and the 90th\n\
         percentile in brackets, and so are ratios. Of a difference the brackets hold the bounds of its middle (99 %). *Floor* is the least that keeps the\n\
         contract, by hand, with its ratio to raw behind it, and *to floor* is ours by that; where they are empty, raw is the floor, or none can be\n\
         measured: `syncline bench --list` says which.\n",
    );
    let [first, second] = runs.map(|run| &run.report.rows);
    let mut pairs: Vec<[Option<&Record>; 2]> = Vec::new();
    for one in first {
        pairs.push([Some(one), second.iter().find(|other| is_same(one, other))]);
    }
    for other in second {
        if !first.iter().any(|one| is_same(one, other)) {
            pairs.push([None, Some(other)]);
        }
    }
    let (mut family, mut row) = ("", "");
    for pair in &pairs {
        let Some(record) = pair[0].or(pair[1]) else {
            continue;
        };
        let its = record.id.split('.').next().unwrap_or_default();
        if its != family {
            family = its;
            let _ = write!(
                text,
                "\n### `{family}`\n\n| row | subject | ours | raw | ratio | floor | to floor | also judged | bar | |\n|---|---|---|---|---|---|---|---|---|---|\n"
            );
        }
        let name = if record.id == row {
            String::new()
        } else {
            format!("`{}`", record.id)
        };
        row = &record.id;
        let subject = record
            .subject
            .as_deref()
            .unwrap_or("(nothing to run it on)");
        let cell = |of: fn(&Record) -> String| twice(pair.map(|one| one.map(of)));
        let cells = [
            name,
            subject.to_owned(),
            cell(|one| spread(one.ours_ns, one.spread.ours_ns, time)),
            cell(raw),
            cell(|one| spread(one.ratio, one.spread.ratio, times)),
            cell(floor),
            cell(|one| spread(one.ratio_to_floor, one.spread.ratio_to_floor, times)),
            cell(judged),
            cell(|one| one.bar.clone()),
            cell(ending),
        ];
        // A bar would end the cell.
        let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text.push('\n');
    text
}

/// The rows of these runs that have a bar that is not surely met in all of them, each once.
#[must_use]
pub fn short<'r>(runs: &[&'r Report]) -> Vec<&'r str> {
    let mut ids: Vec<&str> = Vec::new();
    for record in runs.iter().flat_map(|report| &report.rows) {
        let short = record.met == Some(false) || !record.unsure.is_empty();
        if short && !ids.contains(&record.id.as_str()) {
            ids.push(&record.id);
        }
    }
    ids
}

fn is_same(one: &Record, other: &Record) -> bool {
    (&one.id, &one.subject) == (&other.id, &other.subject)
}

/// Both runs' texts, or one if they say the same.
fn twice(texts: [Option<String>; 2]) -> String {
    let [first, second] = texts.map(|text| text.unwrap_or_else(|| "not there".into()));
    if first == second {
        first
    } else {
        format!("{first}<br>{second}")
    }
}

fn spread(value: Option<f64>, bounds: Option<[f64; 2]>, word: fn(f64) -> String) -> String {
    match (value, bounds) {
        (Some(value), Some([low, high])) => {
            format!("{} ({}..{})", word(value), word(low), word(high))
        }
        (Some(value), None) => word(value),
        (None, _) => String::new(),
    }
}

/// A ratio.
fn times(ratio: f64) -> String {
    format!("{ratio:.3}")
}

/// The floor's time, and how many times raw's that is, or how much more where that is asked.
fn floor(record: &Record) -> String {
    let time = spread(record.floor_ns, record.spread.floor_ns, time);
    let figure = |name: &str| record.figures.get(name).copied();
    if let Some(over) = figure(FLOOR_OVER).filter(|_| asks_for_a_difference(record)) {
        let bounds = figure(FLOOR_OVER_LOW).zip(figure(FLOOR_OVER_HIGH));
        let bounds = bounds.map(|(low, high)| [low, high]);
        return format!(
            "{time}, raw {}",
            spread(Some(over), bounds, nanoseconds_more)
        );
    }
    match record.floor_ratio {
        Some(ratio) => format!("{time}, {} × raw", times(ratio)),
        None => time,
    }
}

fn asks_for_a_difference(record: &Record) -> bool {
    record.bar.contains("raw +")
}

fn nanoseconds_more(value: f64) -> String {
    format!("{value:+.1} ns")
}

fn raw(record: &Record) -> String {
    if record.figures.contains_key(RAW_HANGS) {
        return "hangs".into();
    }
    spread(record.raw_ns, record.spread.raw_ns, time)
}

/// What a bar asks of besides times and ratios: the difference, and figures by name.
fn judged(record: &Record) -> String {
    let mut words: Vec<String> = Vec::new();
    if asks_for_a_difference(record) {
        let bounds = record.over_bounds_ns;
        words.push(spread(record.over_ns, bounds, nanoseconds_more));
    }
    for (name, value) in &record.figures {
        if record.bar.split([' ', ',']).any(|word| word == name) {
            words.push(format!("{name} {value}"));
        }
    }
    words.join(", ")
}

fn ending(record: &Record) -> String {
    match (record.met, &record.skipped, &record.failed) {
        (_, _, Some(reason)) => format!("**failed**: {reason}"),
        (_, Some(reason), None) => format!("not run: {reason}"),
        (Some(true), ..) => "met".into(),
        (Some(false), ..) => "**missed**".into(),
        (None, ..) => "**cannot tell**".into(),
    }
}

#[cfg(test)]
mod tests {
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
            over_bounds_ns: None,
            bar: "ratio ≤ 1.2, bytes ≤ 128".into(),
            limit_to_recorded: None,
            met,
            missed: Vec::new(),
            unsure: Vec::new(),
            spread: Spread {
                ours_ns: Some([ours - 1.0, ours + 1.0]),
                ..Spread::default()
            },
            figures: [("bytes", 64.0), ("others", 1.0)]
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

    fn of(first: &Report, second: &Report) -> String {
        let run = |path, report| Recorded { path, report };
        tables([run("one.json", first), run("two.json", second)])
    }

    #[test]
    fn a_row_stands_beside_itself_and_what_both_runs_say_is_said_once() {
        let first = report(vec![
            record("a.b", "host", 110.0, Some(true)),
            record("a.b", "gpu", 130.0, Some(false)),
        ]);
        let second = report(vec![
            record("a.b", "gpu", 110.0, Some(true)),
            record("a.b", "host", 115.0, Some(true)),
            record("c", "host", 1.0, None),
        ]);
        let text = of(&first, &second);
        let line = |begin: &str| {
            let mut lines = text.lines().filter(|line| line.starts_with(begin));
            lines.next().unwrap_or_default().to_owned()
        };
        assert_eq!(
            line("| `a.b` | host"),
            "| `a.b` | host | 110.0 ns (109.0 ns..111.0 ns)<br>115.0 ns (114.0 ns..116.0 ns) | 100.0 ns | 1.100<br>1.150 \
             |  |  | bytes 64 | ratio ≤ 1.2, bytes ≤ 128 | met |"
        );
        assert!(
            line("|  | gpu").ends_with("| **missed**<br>met |"),
            "{text}"
        );
        let alone = line("| `c` | host");
        assert!(alone.contains("not there<br>1.0 ns"), "{alone}");
        assert!(
            alone.ends_with("| not there<br>**cannot tell** |"),
            "{alone}"
        );
        assert!(line("| 2 |").contains("`two.json`"), "{text}");
        assert_eq!(text.matches("\n### ").count(), 2, "{text}");
    }

    #[test]
    fn devices_that_are_software_are_marked() {
        let none = report(Vec::new());
        let mut one = report(Vec::new());
        assert!(!of(&one, &none).contains("software"));
        one.devices.push(syncline_conformance::report::DeviceLine {
            index: 0,
            backend: "vulkan".into(),
            name: "cpu".into(),
            uuid: None,
            driver: "mine".into(),
            software: true,
        });
        let text = of(&none, &one);
        assert!(text.contains("| cpu (software) | vulkan |"), "{text}");
        assert!(text.contains("not results of a GPU"), "{text}");
    }

    #[test]
    fn a_floor_stands_between_raw_and_the_bar() {
        let mut with = record("a", "host", 140.0, Some(false));
        with.floor_ns = Some(125.0);
        with.floor_ratio = Some(1.25);
        with.ratio_to_floor = Some(1.12);
        with.spread.floor_ns = Some([120.0, 130.0]);
        with.spread.ratio_to_floor = Some([1.1, 1.2]);
        // A recording that is older has none.
        let without = record("a", "host", 140.0, Some(false));
        let text = of(&report(vec![with]), &report(vec![without]));
        let cells =
            "| 125.0 ns (120.0 ns..130.0 ns), 1.250 × raw<br> | 1.120 (1.100..1.200)<br> | bytes";
        assert!(text.contains(cells), "{text}");
    }

    #[test]
    fn where_a_difference_is_asked_the_floor_tells_its_own() {
        let mut with = record("a", "host", 140.0, Some(false));
        with.bar = "≤ raw + 5 ns".into();
        with.floor_ns = Some(125.0);
        with.floor_ratio = Some(1.25);
        for (name, value) in [
            (FLOOR_OVER, 24.56),
            (FLOOR_OVER_LOW, 23.0),
            (FLOOR_OVER_HIGH, 26.0),
        ] {
            with.figures.insert(name.into(), value);
        }
        let text = of(&report(vec![with]), &report(Vec::new()));
        let cell = "| 125.0 ns, raw +24.6 ns (+23.0 ns..+26.0 ns)<br>";
        assert!(text.contains(cell), "{text}");
    }

    #[test]
    fn whatever_is_short_in_any_run_is_named_once() {
        let first = report(vec![
            record("a", "host", 1.0, Some(true)),
            record("b", "host", 1.0, Some(false)),
        ]);
        let mut unsure = record("c", "host", 1.0, None);
        unsure.unsure.push("cannot tell".into());
        let second = report(vec![record("b", "gpu", 1.0, Some(false)), unsure]);
        assert_eq!(short(&[&first, &second]), ["b", "c"]);
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        assert_eq!(made(&page), Some("old\n"));
        let new = with(&page, "new\n").expect("both marks");
        assert_eq!(new, format!("before\n{BEGIN}new\n{END}after\n"));
        for odd in [
            "nothing",
            BEGIN,
            END,
            &format!("{END}{BEGIN}"),
            &page.repeat(2),
        ] {
            assert_eq!(with(odd, "new\n"), None, "{odd:?}");
        }
    }

    #[test]
    fn raw_that_hangs_is_told() {
        let mut hangs = record("a", "host", 1.0, Some(true));
        hangs.raw_ns = None;
        hangs.figures.insert(RAW_HANGS.into(), 1.0);
        let text = of(&report(vec![hangs.clone()]), &report(vec![hangs]));
        assert!(text.contains("| hangs |"), "{text}");
    }

    #[test]
    fn no_cell_ends_early() {
        let mut odd = record("a", "x | y", 1.0, None);
        odd.skipped = Some("one | two\nthree".into());
        let text = of(&report(vec![odd.clone()]), &report(vec![odd]));
        assert!(text.contains("| x \\| y |"), "{text}");
        assert!(text.contains("not run: one \\| two three |"), "{text}");
    }
}
