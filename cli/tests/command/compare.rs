//! `syncline bench compare`: growth of rows between two recordings.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::fs;

use serde_json::Value;

use crate::usage::{ends_with, json, scratch};

/// Writes a recording, and returns its path.
fn write(name: &str, report: &Value) -> String {
    let path = scratch(name);
    fs::write(&path, report.to_string()).expect("a recording");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_row_that_grew_by_more_than_its_limit_is_found() {
    let file = scratch("compared.json");
    let before = file.to_str().expect("UTF-8");
    let measured = [
        "bench",
        "--quick",
        "--device",
        "host",
        "--filter",
        "contend",
        "--filter",
        "frame.cpu",
        "--json",
        before,
    ];
    let (out, _) = ends_with(0, &measured);
    assert!(
        out.contains("contend") && out.contains("frame.cpu"),
        "{out}"
    );
    let report = json(&fs::read_to_string(&file).expect("the recording"));
    let slower = |factor: f64| {
        let mut report = report.clone();
        let time = &mut report["rows"][0]["ours_ns"];
        *time = (time.as_f64().expect("a time") * factor).into();
        report
    };

    let same = ["bench", "compare", before, before, "--require"];
    let (out, _) = ends_with(0, &same);
    let none = "2 rows compared, 0 grew by more than 20 %, 0 by more than their limits\n";
    assert_eq!(out, none);

    let little = write("little-slower.json", &slower(1.19));
    ends_with(0, &["bench", "compare", before, &little, "--require"]);
    let much = write("much-slower.json", &slower(1.5));
    let (out, _) = ends_with(1, &["bench", "compare", before, &much, "--require"]);
    assert!(out.contains("growth 1.500  ≤ 1.2: TOO SLOW"), "{out}");
    // Without `--require` the row is only printed.
    let (out, _) = ends_with(0, &["bench", "compare", before, &much]);
    assert!(out.contains("TOO SLOW"), "{out}");

    let mut unmeasured = report.clone();
    unmeasured["rows"][1]["ours_ns"] = Value::Null;
    let unmeasured = write("unmeasured.json", &unmeasured);
    for (one, other) in [(before, &*unmeasured), (&*unmeasured, before)] {
        let (_, error) = ends_with(2, &["bench", "compare", one, other]);
        let missing = "frame.cpu (host) has none in";
        assert!(
            error.contains(missing) && error.contains("unmeasured.json"),
            "{error}"
        );
    }
}

#[test]
fn a_file_that_is_no_recording_is_named() {
    let bad = write("no-recording.json", &"no recording".into());
    let (_, error) = ends_with(2, &["bench", "compare", &bad, &bad]);
    assert!(
        error.contains("no-recording.json cannot be read"),
        "{error}"
    );
    let (_, error) = ends_with(2, &["bench", "compare", "/nonexistent", &bad]);
    assert!(error.contains("/nonexistent cannot be read"), "{error}");
}
