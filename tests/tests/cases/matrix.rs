//! Checks that the page of recorded results is what the command makes of them.

#![allow(clippy::expect_used, reason = "a test may panic")]

use syncline_conformance::report::Report;

const RECORDED: &str = "results/h200/conformance.json";

#[test]
fn the_page_is_made_from_the_recording() {
    let recorded = include_str!("../../../results/h200/conformance.json");
    let page = include_str!("../../../docs/conformance.md");
    let report = Report::from_json(recorded).expect("a recorded report");
    let software = report.devices.iter().any(|device| device.software);
    assert!(!software, "{RECORDED} is not a GPU's alone");
    assert!(
        report.page(RECORDED) == page,
        "docs/conformance.md is not what `syncline conformance --matrix {RECORDED}` prints"
    );
}
