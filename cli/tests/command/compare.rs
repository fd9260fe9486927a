//! `syncline bench compare`: two recordings, row by row.

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
fn a_row_that_has_become_slower_is_found() {
    let file = scratch("compared.json");
    let before = file.to_str().expect("UTF-8");
    let measured = [
        "bench",
        "--quick",
        "--device",
        "host",
        "--filter",
        "held.wide",
        "--json",
        before,
    ];
    let (out, _) = ends_with(0, &measured);
    assert!(out.contains("held.wide"), "{out}");
    let report = json(&fs::read_to_string(&file).expect("the recording"));
    let slower = |factor: f64| {
        let mut report = report.clone();
        let time = &mut report["rows"][0]["ours_ns"];
        *time = (time.as_f64().expect("a time") * factor).into();
        report
    };

    let same = ["bench", "compare", before, before, "--require"];
    let (out, _) = ends_with(0, &same);
    assert!(out.contains("ratio 1.000  ≤ 1.2: met"), "{out}");
    assert!(
        out.ends_with("2 rows compared, 0 slower than their limits allow\n"),
        "{out}"
    );

    let little = write("little-slower.json", &slower(1.19));
    ends_with(0, &["bench", "compare", before, &little, "--require"]);
    let much = write("much-slower.json", &slower(1.5));
    let (out, _) = ends_with(1, &["bench", "compare", before, &much, "--require"]);
    assert!(out.contains("ratio 1.500  ≤ 1.2: SLOWER"), "{out}");
    // Without `--require` it is only told.
    let (out, _) = ends_with(0, &["bench", "compare", before, &much]);
    assert!(out.contains("SLOWER"), "{out}");

    let mut fewer = report.clone();
    fewer["rows"].as_array_mut().expect("a list").truncate(1);
    let fewer = write("fewer.json", &fewer);
    for (one, other) in [(before, &*fewer), (&*fewer, before)] {
        let (out, error) = ends_with(2, &["bench", "compare", one, other]);
        assert!(out.contains("ratio 1.000"), "{out}");
        let missing = "held.wide (host, to release) has none in";
        assert!(
            error.contains(missing) && error.contains("fewer.json"),
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
