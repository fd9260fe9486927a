//! `docs/benchmark.md` agrees with the recording, and `docs/performance.md` with the code.

#![cfg(all(feature = "cuda", feature = "vulkan"))]
#![allow(clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use rstest::rstest;
use syncline_bench::Report;
use syncline_bench::compare::{Comparison, Recording};
use syncline_bench::page::{Recorded, made, missed, table};

const RECORDING: &str = "results/h200/bench-9a44eb8.json";
/// The page with the table.
const TABLE: &str = "docs/benchmark.md";
/// The page with the thresholds of waits.
const PAGE: &str = "docs/performance.md";

/// The section with an entry for each row that misses a limit.
const MISSED: &str = "\n## Missed limits\n";

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn page(path: &str) -> String {
    fs::read_to_string(at(path)).expect("the page")
}

fn recorded() -> Report {
    let text = fs::read_to_string(at(RECORDING)).expect("the recording");
    let report = Report::from_json(&text).expect("a recorded run");
    let software = report.devices.iter().any(|device| device.software);
    assert!(!software, "the recording is not only of GPUs");
    report
}

#[test]
fn the_table_is_made_from_the_recording() {
    let page = page(TABLE);
    let made = made(&page).expect("both marks, once and in order");
    let expected = table(Recorded {
        path: RECORDING,
        report: &recorded(),
    });
    assert!(
        made == expected,
        "the table is old; in the project's folder: syncline bench tables {RECORDING} --into {TABLE}"
    );
}

#[test]
fn each_row_that_misses_a_limit_has_an_entry() {
    let report = recorded();
    let page = page(TABLE);
    let (_, section) = page.split_once(MISSED).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut entries: Vec<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .flat_map(|heading| heading.split('`').skip(1).step_by(2))
        .collect();
    let mut missed = missed(&report);
    entries.sort_unstable();
    missed.sort_unstable();
    assert_eq!(entries, missed, "entries, and rows that miss a limit");
}

#[rstest]
#[case::first(RECORDING)]
#[case::second("results/h200/bench-9a44eb8-2.json")]
fn a_recording_can_be_compared_with_the_baseline(#[case] path: &str) {
    let baseline = Recording::read(&at("results/h200/bench-8d61d95.json")).expect("the baseline");
    let recording = Recording::read(&at(path)).expect("a recording");
    let compared = Comparison::of(&baseline, &recording);
    assert_eq!(
        compared.rows.len(),
        10,
        "the rows that look like an application"
    );
    assert_eq!(compared.require_complete(), Ok(()));
}

#[rstest]
#[case::spin(
    "core/src/wait/blocking.rs",
    "const SPIN: Duration = Duration::from_micros(30);",
    "to 30 µs"
)]
#[case::back_off(
    "core/src/timeline/recent_spins.rs",
    "const MOST: u32 = 64;",
    "up to 64 waits"
)]
#[case::cuda_spin(
    "backend-cuda/src/timeline/watch.rs",
    "const SPIN: Duration = Duration::from_micros(20);",
    "for 20 µs without a pause"
)]
#[case::cuda_naps(
    "backend-cuda/src/timeline/watch.rs",
    "(Duration::from_micros(20), Duration::from_millis(1));",
    "from 20 µs to 1 ms"
)]
fn the_page_has_the_thresholds_of_the_code(
    #[case] file: &str,
    #[case] line: &str,
    #[case] words: &str,
) {
    let code = fs::read_to_string(at(file)).expect("a file of the project");
    assert!(
        code.contains(line),
        "{file} has no `{line}`: correct {PAGE} and this test"
    );
    // Lines are wrapped anywhere.
    let page = page(PAGE);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains(words), "{PAGE} does not say \"{words}\"");
}
