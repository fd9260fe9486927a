//! The page about performance shows what is recorded.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use syncline_bench::Report;
use syncline_bench::page::{NOTHING, Recorded, made, short, tables};

const FIRST: &str = "results/h200/bench.json";
const SECOND: &str = "results/h200/bench-2.json";
const PAGE: &str = "docs/performance.md";

/// Where the entries stand of what is not met.
const FLOORS: &str = "\n## Bars that are not met, and the floor\n";

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn page() -> String {
    fs::read_to_string(at(PAGE)).expect("the page")
}

/// Both recorded runs; `None` as long as there is none.
fn recorded() -> Option<[Report; 2]> {
    let texts = [FIRST, SECOND].map(|path| fs::read_to_string(at(path)).ok());
    match texts {
        [None, None] => {
            eprintln!("nothing to compare: neither {FIRST} nor {SECOND} is recorded");
            None
        }
        [first, second] => {
            let of = |text: Option<String>| {
                let text = text.expect("both are recorded, or neither");
                let report = Report::from_json(&text).expect("a recorded run");
                let software = report.devices.iter().any(|device| device.software);
                assert!(!software, "a recording is not a GPU's alone");
                report
            };
            Some([of(first), of(second)])
        }
    }
}

#[test]
fn the_tables_are_made_from_the_recordings() {
    let page = page();
    let made = made(&page).expect("both marks, once and in order");
    let expected = match &recorded() {
        None => NOTHING.to_owned(),
        Some([first, second]) => tables([
            Recorded {
                path: FIRST,
                report: first,
            },
            Recorded {
                path: SECOND,
                report: second,
            },
        ]),
    };
    assert!(
        made == expected,
        "the tables are old; in the project's folder: syncline bench tables {FIRST} {SECOND} --into {PAGE}"
    );
}

#[test]
fn each_bar_that_is_not_met_has_its_floor_told() {
    let Some(reports) = recorded() else { return };
    let page = page();
    let (_, floors) = page.split_once(FLOORS).expect("the section about floors");
    let floors = floors.split("\n## ").next().unwrap_or_default();
    let mut told: Vec<&str> = floors
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .flat_map(|heading| heading.split('`').skip(1).step_by(2))
        .collect();
    let mut short = short(&[&reports[0], &reports[1]]);
    told.sort_unstable();
    short.sort_unstable();
    assert_eq!(told, short, "told, and not met in one of the runs");
}

#[test]
fn the_thresholds_of_waits_are_those_of_the_code() {
    let page = page();
    for (file, line, words) in [
        (
            "core/src/wait/mod.rs",
            "const SPIN: Duration = Duration::from_micros(30);",
            "| to 30 µs |",
        ),
        (
            "core/src/timeline/recent_waits.rs",
            "const LONG: Duration = Duration::from_micros(300);",
            "more than 300 µs of late",
        ),
        (
            "backend-cuda/src/device/open.rs",
            "const SPIN: Duration = Duration::from_micros(20);",
            "20 µs without a pause",
        ),
        (
            "backend-cuda/src/device/open.rs",
            "(Duration::from_micros(20), Duration::from_millis(1));",
            "naps of 20 µs to 1 ms",
        ),
    ] {
        let code = fs::read_to_string(at(file)).expect("a file of the project");
        assert!(
            code.contains(line),
            "{file} has no `{line}`: mend {PAGE}, and this test"
        );
        assert!(page.contains(words), "{PAGE} does not say \"{words}\"");
    }
}
