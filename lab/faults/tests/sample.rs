//! A part of the runs, and what they must be able to find. `.ci/slow` makes all of them.
#![allow(clippy::expect_used, reason = "a test")]

use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// Runs the program. One at a time, because a run that takes too long counts as a hang.
fn faults(arguments: &[&str]) -> Output {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let program = env!("CARGO_BIN_EXE_syncline-faults");
    let output = Command::new(program).args(arguments).output();
    output.expect("the program runs")
}

fn words(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy);
    text.concat()
}

#[test]
fn a_sample_of_failing_calls_is_reported() {
    let output = faults(&["--sample", "100", "--seed", "1", "--limit", "60"]);
    assert!(output.status.success(), "{}", words(&output));
}

/// D1: no thread of the engine calls a driver after its destructors.
#[test]
fn processes_that_end_in_the_middle_of_chains_end_well() {
    let output = faults(&["--exits", "20"]);
    assert!(output.status.success(), "{}", words(&output));
}

/// D1: once an exit has begun, no drop calls a driver, on whichever thread.
#[test]
fn processes_that_end_while_threads_drop_objects_end_well() {
    let output = faults(&["--drops", "6", "--jobs", "2"]);
    assert!(output.status.success(), "{}", words(&output));
}

#[test]
fn threads_that_have_used_drivers_end_well() {
    let output = faults(&["--threads", "2"]);
    assert!(output.status.success(), "{}", words(&output));
}

/// The scenario does not look at the result of a call of its own.
#[test]
fn a_failure_that_is_not_reported_is_found() {
    let output = faults(&["--scenario", "self.deaf"]);
    let text = words(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("cuDeviceGetCount unreported (once)"),
        "{text}"
    );
}

/// A misspelt name, or a new function without codes, must not look like success.
#[test]
fn a_function_without_runs_is_an_error() {
    let output = faults(&["--scenario", "self.deaf", "--function", "cuNothing"]);
    let text = words(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("contains \"cuNothing\""), "{text}");
}

#[test]
fn what_is_left_is_found() {
    let output = faults(&["--scenario", "self.leaks", "--function", "cuStreamCreate"]);
    let text = words(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cuStreamCreate left (once)"), "{text}");
    assert!(text.contains("descriptor"), "{text}");
}

/// The driver closes a refused descriptor, and another file gets its number.
#[test]
fn a_file_that_is_closed_in_place_of_a_refused_descriptor_is_found() {
    let output = faults(&["--scenario", "self.closes-again", "--function", "Import"]);
    let text = words(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("vkImportSemaphoreFdKHR left (closes)"),
        "{text}"
    );
    assert!(text.contains("files-with-reused-numbers"), "{text}");
}

/// Each run ends well, except where opening the device fails.
#[test]
fn a_trim_leaves_no_driver_object() {
    for (scenario, opens) in [
        ("self.trims-cuda", "cuDeviceGetCount"),
        ("self.trims-vulkan", "vkCreateDevice"),
    ] {
        let output = faults(&["--scenario", scenario, "--function", opens]);
        assert!(output.status.success(), "{}", words(&output));
    }
}

#[test]
fn a_hang_is_found() {
    let opens = "cuDeviceGetCount";
    let output = faults(&[
        "--scenario",
        "self.hangs",
        "--limit",
        "2",
        "--function",
        opens,
    ]);
    let text = words(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cuDeviceGetCount hung (once)"), "{text}");
}
