//! The pages about performance.

#![allow(clippy::expect_used, clippy::panic, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use rstest::rstest;
use syncline_bench::Report;

/// The page with the thresholds of waits.
const PAGE: &str = "docs/performance.md";

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(at(path)).expect("a file of the project")
}

/// Each row and each variant with limits of its own has a line of the table, with these limits.
#[cfg(all(feature = "cuda", feature = "vulkan"))]
#[test]
fn the_page_has_each_row_and_its_limits() {
    use syncline_bench::{limit, rows};

    const LIMITS: &str = "docs/benchmark.md";
    let page = read(LIMITS);
    let line = |id: &str, variant: &str| {
        let begin = format!("| `{id}`{variant} |");
        let line = page.lines().find(|line| line.starts_with(&begin));
        line.unwrap_or_else(|| panic!("{LIMITS} has no line {begin}"))
    };
    for row in rows::all() {
        let own = row
            .variants
            .iter()
            .filter_map(|of| Some((of.name, of.limits?)));
        let mut lines: Vec<_> = own
            .map(|(name, limits)| (line(row.id, &format!(", {name}")), limits))
            .collect();
        if lines.is_empty() {
            lines.push((line(row.id, ""), row.limits));
        }
        for (line, limits) in lines {
            let cell = line.rsplit('|').nth(1).expect("a cell").trim();
            let words = limit::words(limits);
            assert!(cell.starts_with(&words), "{line}\nmust have {words}");
        }
    }
}

#[test]
fn recordings_are_readable_also_those_of_older_versions() {
    for entry in fs::read_dir(at("results/h200")).expect("the folder") {
        let path = entry.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if name.starts_with("bench") {
            let text = fs::read_to_string(&path).expect("a recording");
            let report = Report::from_json(&text).expect("a report");
            assert!(report.all_ran() && !report.rows.is_empty(), "{name}");
        }
    }
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
    let code = read(file);
    assert!(
        code.contains(line),
        "{file} has no `{line}`: correct {PAGE} and this test"
    );
    // Lines are wrapped anywhere.
    let page = read(PAGE);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains(words), "{PAGE} does not say \"{words}\"");
}
