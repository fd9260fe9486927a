//! The command on a machine without any driver: what it prints, and its exit codes.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rstest::rstest;
use serde_json::Value;

/// The command, which cannot find any driver.
fn syncline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
    command
        .args(arguments)
        .env("VK_DRIVER_FILES", "/nonexistent.json")
        .env("VK_ICD_FILENAMES", "/nonexistent.json")
        .env("CUDA_VISIBLE_DEVICES", "");
    command
}

fn run(arguments: &[&str]) -> Output {
    syncline(arguments).output().expect("the command starts")
}

/// Runs the command, checks its exit code, and returns its standard output and standard error.
pub(crate) fn ends_with(code: i32, arguments: &[&str]) -> (String, String) {
    let output = run(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let (out, error) = (text(output.stdout), text(output.stderr));
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {out}{error}"
    );
    assert!(!error.contains("panicked"), "{arguments:?}: {error}");
    (out, error)
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Returns a path in the tests' folder at which there is no file.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Fails if there is no folder.
    let _ = fs::remove_dir_all(&path);
    let _ = fs::remove_file(&path);
    path
}

#[rstest]
#[case::unknown_producer(&["demo", "--producer", "nosuch"], "no device \"nosuch\"; there are: 0 host")]
#[case::index_of_no_device(&["demo", "--consumer", "7"], "no device \"7\"; there are: 0 host")]
#[case::absent_backend(&["demo", "--producer", "vulkan"], "vulkan is not available: ")]
#[case::no_frames(&["demo", "--frames", "0"], "1..=")]
#[case::no_window_of_two_processes(&["demo", "--window", "--processes"], "cannot be used with")]
#[case::no_size(&["demo", "--size", "0"], "16..=")]
#[case::validation_without_vulkan(&["demo", "--validation"], "vulkan is not available: ")]
#[case::unknown_case(&["conformance", "--filter", "nosuch"], "\"nosuch\"")]
#[case::unknown_subject(&["conformance", "--device", "Nosuch"], "no device \"Nosuch\"; there are: host")]
fn bad_input_is_answered_with_exit_code_2(#[case] arguments: &[&str], #[case] expected: &str) {
    let (_, error) = ends_with(2, arguments);
    assert!(error.contains(expected), "{arguments:?}: {error}");
}

#[test]
fn a_folder_below_a_file_is_answered_with_exit_code_2() {
    let file = scratch("a-file");
    fs::write(&file, "").expect("a file");
    let below = file.join("folder");
    let below = below.to_str().expect("UTF-8");
    let (_, error) = ends_with(2, &["demo", "--png", below]);
    assert!(error.contains(below), "{error}");
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_run() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let (out, error) = ends_with(2, &["conformance", "--junit", folder]);
    assert!(error.contains(folder), "{error}");
    assert!(!out.contains("passed"), "{out}");
}

#[test]
fn info_gives_the_reasons_for_what_is_absent() {
    let (out, _) = ends_with(0, &["info", "--json"]);
    let info = json(&out);
    assert_eq!(info["devices"][0]["backend"], "host");
    let reasons = info["unavailable"].as_array().expect("a list");
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    let (out, _) = ends_with(0, &["demo", "--list"]);
    assert!(
        out.contains("0 host") && out.contains("vulkan is not available"),
        "{out}"
    );
}

#[test]
fn info_tells_how_a_pair_would_share() {
    let (out, _) = ends_with(0, &["info", "--pair", "host", "host"]);
    for part in ["both signal and wait", "may signal and wait; makes it"] {
        assert!(out.contains(part), "no {part:?} in: {out}");
    }
    let (out, _) = ends_with(0, &["info", "--json", "--pair", "host", "0"]);
    let told = json(&out);
    let answers = told["answers"].as_array().expect("a list");
    assert_eq!(answers.len(), 3);
    for answer in answers {
        assert_eq!(
            answer["mechanism"], "the device's own timelines",
            "{answer}"
        );
    }
    let (_, error) = ends_with(2, &["info", "--pair", "host", "nosuch"]);
    assert!(error.contains("nosuch"), "{error}");
}

#[test]
fn the_demo_runs_on_the_host_alone() {
    let (out, _) = ends_with(0, &["demo", "--frames", "9", "--size", "40", "--json"]);
    let report = json(&out);
    assert_eq!(
        (&report["frames"], &report["verified"], &report["wrong"]),
        (&9.into(), &9.into(), &0.into())
    );
    for key in ["producer", "consumer", "mechanism", "commit"] {
        assert!(report[key].is_string(), "{key}: {report}");
    }
    for key in ["fps", "fps_host_synchronized"] {
        assert!(report[key].as_f64() > Some(0.0), "{key}: {report}");
    }
}

#[test]
fn the_command_alone_writes_a_picture() {
    let folder = scratch("picture");
    fs::create_dir_all(&folder).expect("a folder");
    let run = || syncline(&[]).env("TMPDIR", &folder).output();
    let output = run().expect("the command starts");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(out.contains("verified   60 of 60 frames, 0 wrong"), "{out}");
    let mut files = fs::read_dir(&folder).expect("a folder");
    let path = files.next().expect("a file").expect("a file").path();
    assert!(
        out.contains(&format!("picture    {}", path.display())),
        "{out}"
    );
    assert!(fs::read(path).expect("a file").starts_with(b"\x89PNG"));
    assert!(files.next().is_none());

    fs::remove_dir_all(&folder).expect("own folder");
    let output = run().expect("the command starts");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(out.contains("picture    none: "), "{out}");
}

#[test]
fn help_fits_on_a_screen() {
    let (out, _) = ends_with(0, &["--help"]);
    assert!(out.lines().count() <= 24, "{out}");
    assert!(out.lines().all(|line| line.len() <= 100), "{out}");
}

#[test]
fn without_the_waits_frames_are_wrong() {
    let (out, _) = ends_with(
        1,
        &[
            "demo",
            "--no-sync",
            "--frames",
            "12",
            "--size",
            "40",
            "--json",
        ],
    );
    let report = json(&out);
    assert!(report["wrong"].as_u64() > Some(0), "{report}");
    assert_eq!(report["synchronized"], false);
}

#[test]
fn frames_are_written_and_move() {
    let folder = scratch("frames");
    let png = folder.to_str().expect("UTF-8");
    ends_with(0, &["demo", "--frames", "3", "--size", "40", "--png", png]);
    let frames: Vec<_> = (1..=3)
        .map(|n| fs::read(folder.join(format!("frame-{n:04}.png"))).expect("a frame"))
        .collect();
    assert!(frames.iter().all(|frame| frame.starts_with(b"\x89PNG")));
    assert!(frames[0] != frames[1] && frames[1] != frames[2]);
    assert_eq!(fs::read_dir(&folder).expect("the folder").count(), 3);
}

#[test]
fn a_traced_demo_writes_what_perfetto_opens_and_a_picture() {
    let folder = scratch("trace");
    fs::create_dir_all(&folder).expect("a folder");
    let [trace, picture] = ["trace.json", "timeline.svg"].map(|name| folder.join(name));
    let [json_path, svg_path] = [&trace, &picture].map(|path| path.to_str().expect("UTF-8"));
    let (out, _) = ends_with(
        0,
        &[
            "demo",
            "--frames",
            "9",
            "--size",
            "40",
            "--trace",
            json_path,
            "--timeline",
            svg_path,
            "--json",
        ],
    );
    let report = json(&out);
    let said = &report["trace"];
    // Nine frames, each simulated and drawn. Each submission but the first ones waits.
    for (key, least) in [
        ("submissions", 18),
        ("timed", 18),
        ("arrows", 15),
        ("whole_ns", 1),
        ("in_flight_together_ns", 1),
    ] {
        assert!(said[key].as_u64() >= Some(least), "{key}: {report}");
    }
    for key in ["lost", "arrows_backwards", "error_ns"] {
        assert_eq!(said[key].as_u64(), Some(0), "{key}: {report}");
    }
    for key in ["fps", "fps_without"] {
        assert!(said[key].as_f64() > Some(0.0), "{key}: {report}");
    }
    let text = fs::read_to_string(&trace).expect("the trace");
    assert!(text.contains("simulate 3") && text.contains("draw 8"));
    assert!(json(&text)["traceEvents"].as_array().map(Vec::len) > Some(40));
    let picture = fs::read_to_string(&picture).expect("the picture");
    assert!(
        picture.starts_with("<svg") || picture.starts_with("<?xml"),
        "{picture}"
    );

    let nowhere = folder.join("no such folder").join("trace.json");
    let nowhere = nowhere.to_str().expect("UTF-8");
    let (_, errors) = ends_with(2, &["demo", "--frames", "1", "--trace", nowhere]);
    assert!(errors.contains("no such folder"), "{errors}");
}

#[test]
fn conformance_counts_what_ran() {
    let file = scratch("report.json");
    let path = file.to_str().expect("UTF-8");
    let (out, _) = ends_with(
        0,
        &[
            "conformance",
            "--device",
            "0",
            "--filter",
            "T5",
            "--json",
            path,
        ],
    );
    let report = json(&fs::read_to_string(&file).expect("the report"));
    let cases = report["cases"].as_array().expect("a list");
    assert!(
        cases.len() >= 4 && cases.iter().all(|case| case["outcome"] == "passed"),
        "{report}"
    );
    let closing = format!("{} passed, 0 failed, 0 skipped", cases.len());
    assert_eq!(out.lines().last(), Some(&*closing));
}

#[test]
fn conformance_repeats_and_shows_a_table() {
    let file = scratch("table.json");
    let path = file.to_str().expect("UTF-8");
    let arguments = ["--device", "host", "--repeat", "3", "--filter", "F1"];
    let (out, _) = ends_with(
        0,
        &[&["conformance", "--json", path], &arguments[..]].concat(),
    );
    let rows: Vec<Vec<&str>> = out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(rows.contains(&vec!["F1", "ok"]), "{out}");
    assert!(rows.contains(&vec!["1", "host"]), "{out}");
    let last = out.lines().last().expect("a tally");
    assert!(last.ends_with("; what passed did so 3 times"), "{last}");
    // Some cases need devices that are missing here.
    let is_row = |line: &&str| line.starts_with("  passed") || line.starts_with("  skipped");
    let ran = out.lines().filter(is_row);
    assert_eq!(ran.count(), rows_of(&file), "{out}");

    let (page, _) = ends_with(0, &["conformance", "--matrix", path]);
    assert!(page.contains("| F1 | ok |"), "{page}");
    let (_, error) = ends_with(2, &["conformance", "--matrix", "/nonexistent"]);
    assert!(error.contains("/nonexistent"), "{error}");
}

/// A run is compared with a recorded one.
#[test]
fn conformance_compares_with_a_recorded_run() {
    let (file, list) = (scratch("recorded.json"), scratch("exceptions.txt"));
    let (path, exceptions) = (file.to_str().expect("UTF-8"), list.to_str().expect("UTF-8"));
    let run = ["conformance", "--device", "host", "--filter", "F1"];
    let recorded = |cases: &[(&str, &str)]| {
        let mut report = json(&fs::read_to_string(&file).expect("the report"));
        let all = report["cases"].as_array_mut().expect("a list");
        let model = all[0].clone();
        for (id, subject) in cases {
            let mut case = model.clone();
            case["id"] = (*id).into();
            case["subject"] = (*subject).into();
            case["rules"] = Value::Array(vec!["F1".into()]);
            case["outcome"] = "passed".into();
            all.push(case);
        }
        fs::write(&file, report.to_string()).expect("a file");
    };
    let compared = [&run[..], &["--baseline", path]].concat();
    ends_with(0, &[&run[..], &["--json", path]].concat());
    ends_with(0, &compared);
    // The whole name of a subject selects that subject alone.
    recorded(&[("case.of.a.pair", "cuda Big -> host")]);
    ends_with(0, &compared);
    recorded(&[("case.that.is.gone", "host")]);
    let (out, _) = ends_with(1, &compared);
    assert!(
        out.contains("case.that.is.gone on host: was not run"),
        "{out}"
    );
    assert!(!out.contains("case.of.a.pair"), "{out}");
    let excused = [&compared[..], &["--exceptions", exceptions]].concat();
    fs::write(&list, "case.that.is.gone | host | a reason").expect("a file");
    ends_with(0, &excused);
    fs::write(&list, "case.that.is.gone | host").expect("a file");
    let (_, error) = ends_with(2, &excused);
    assert!(error.contains("exceptions.txt:1"), "{error}");
    // A comparison with nothing to compare fails.
    let mut report = json(&fs::read_to_string(&file).expect("the report"));
    report["cases"] = Value::Array(Vec::new());
    fs::write(&file, report.to_string()).expect("a file");
    let (out, _) = ends_with(1, &compared);
    assert!(out.contains("no such case has passed there"), "{out}");
}

fn rows_of(report: &Path) -> usize {
    let report = json(&fs::read_to_string(report).expect("the report"));
    report["cases"].as_array().expect("a list").len()
}

#[test]
fn a_closed_standard_output_is_no_panic() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let child = syncline(&["info"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// On any driver: the third frame cannot be written while work is in flight.
#[rstest]
#[case::host("host", "host")]
#[case::vulkan("vulkan", "vulkan")]
#[case::cuda("cuda", "host")]
fn an_error_in_the_middle_is_no_crash(#[case] device: &str, #[case] consumer: &str) {
    let folder = scratch(&format!("in-the-way-{device}"));
    fs::create_dir_all(folder.join("frame-0003.png")).expect("a folder");
    let png = folder.to_str().expect("UTF-8");
    let output = Command::new(env!("CARGO_BIN_EXE_syncline"))
        .args(["demo", "--frames", "40", "--size", "128", "--png", png])
        .args(["--producer", device, "--consumer", consumer])
        .output()
        .expect("the command starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{device}: {error}");
    let absent = error.contains("is not available");
    assert!(
        absent || error.contains("frame-0003.png"),
        "{device}: {error}"
    );
}

#[test]
fn bench_measures_the_host_and_writes_what_it_found() {
    let file = scratch("bench.json");
    let path = file.to_str().expect("UTF-8");
    let (out, _) = ends_with(0, &["bench", "--quick", "--device", "host", "--json", path]);
    let first = out.lines().next().expect("a screen");
    assert!(
        first.starts_with("What do I pay per submission?"),
        "{first}"
    );
    let last = out.lines().last().expect("a tally");
    assert!(last.ends_with("0 skipped, 0 failed"), "{last}");
    let report = json(&fs::read_to_string(&file).expect("the report"));
    let rows = report["rows"].as_array().expect("a list");
    assert!(
        rows.iter().any(|row| row["id"] == "process.point"),
        "{report}"
    );
    for row in rows {
        let counted = row["id"] == "alloc";
        assert!(counted || row["ours_ns"].is_number(), "{row}");
        assert!(row["bar"].is_string(), "{row}");
        assert_eq!(row["met"].is_boolean(), row["bar"] != "no limit", "{row}");
    }
    // The command uses the allocator that counts.
    let mut counts = rows.iter().filter(|row| row["id"] == "alloc");
    let allocations = counts.next().map(|row| &row["figures"]["allocations_each"]);
    assert_eq!(allocations, Some(&0.0.into()), "{report}");
    let (_, error) = ends_with(2, &["bench", "--filter", "nosuch"]);
    assert!(error.contains("\"nosuch\""), "{error}");
}

#[test]
fn a_child_of_bench_does_nothing_else() {
    let with = |job: &str| {
        let output = syncline(&["demo", "--frames", "1"])
            .env("SYNCLINE_BENCH_JOB", job)
            .output();
        output.expect("the command starts")
    };
    assert_eq!(with("nonsense").status.code(), Some(2));
}

#[test]
fn clocks_are_watched_and_told() {
    let (out, _) = ends_with(0, &["clocks", "--for", "1", "--every", "300"]);
    // One line for the clock, and one for each sample.
    let looks = out.lines().filter(|line| line.contains("host")).count();
    assert!(looks >= 4, "{out}");
    let (out, _) = ends_with(0, &["clocks", "--device", "host", "--for", "0", "--json"]);
    let told = json(&out);
    let host = &told["clocks"][0];
    assert_eq!(host["host_clock"], "CLOCK_MONOTONIC");
    assert_eq!(host["samples"][0]["holds"], true);
    assert_eq!(host["samples"][0]["expected_error_ns"], 0);
    let (_, error) = ends_with(2, &["clocks", "--device", "nosuch"]);
    assert!(error.contains("no device"), "{error}");
}

#[test]
fn hops_are_measured_between_every_two_queues() {
    let (out, _) = ends_with(0, &["bench", "hops", "--quick"]);
    assert!(out.contains("Microseconds per hop"), "{out}");
    // Each queue with itself is the last cell of its line.
    let lines = out.lines().filter(|line| line.contains("host, queue "));
    let cells = lines.filter_map(|line| line.split_whitespace().last()?.parse().ok());
    let times: Vec<f64> = cells.collect();
    assert!(
        times.len() == 2 && times.iter().all(|time| *time > 0.0),
        "{out}"
    );
    let (_, error) = ends_with(2, &["bench", "hops", "--device", "nosuch"]);
    assert!(error.contains("\"nosuch\""), "{error}");
}

#[test]
fn a_recorded_run_is_printed_again() {
    let file = scratch("tables.json");
    let path = file.to_str().expect("UTF-8");
    let run = [
        "bench", "--quick", "--device", "host", "--filter", "host.", "--json", path,
    ];
    ends_with(0, &run);
    let (out, _) = ends_with(0, &["bench", "tables", path]);
    assert!(
        out.contains("host.submit") && out.contains("0 failed"),
        "{out}"
    );

    let (_, error) = ends_with(2, &["bench", "tables", "/nonexistent"]);
    assert!(error.contains("/nonexistent"), "{error}");
    let (_, error) = ends_with(2, &["bench", "tables", "Cargo.toml"]);
    assert!(error.contains("cannot be read"), "{error}");
}
