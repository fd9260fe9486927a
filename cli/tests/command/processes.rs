//! The demo with two processes on the host, and how one ends when the other is killed.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::process::{Command, Output};

use rstest::rstest;
use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_syncline"))
        .args(arguments)
        .env("VK_DRIVER_FILES", "/nonexistent.json")
        .env("VK_ICD_FILENAMES", "/nonexistent.json")
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .expect("the command starts")
}

/// Runs the command, checks its exit code, and returns its standard output and standard error.
fn ends_with(code: i32, arguments: &[&str]) -> (String, String) {
    let output = run(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let (out, error) = (text(output.stdout), text(output.stderr));
    let ended = output.status.code();
    assert_eq!(ended, Some(code), "{arguments:?}: {out}{error}");
    (out, error)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn every_frame_of_two_processes_is_right() {
    let demo = ["demo", "--processes", "--frames", "40", "--size", "64"];
    let (out, _) = ends_with(0, &demo);
    assert!(out.contains("40 of 40 frames, 0 wrong"), "{out}");
    let (out, _) = ends_with(0, &[&demo[..], &["--json"]].concat());
    let report = json(&out);
    assert_eq!(report["verified"], 40);
    assert_eq!(report["processes"], 2);
    assert_eq!(report["mechanism"], "a counter in shared memory");
    assert_eq!(report["shares"], "nothing");
}

/// The negative control: without the waits the frames are wrong.
#[test]
fn without_the_waits_frames_of_two_processes_are_wrong() {
    let demo = ["demo", "--processes", "--frames", "40", "--size", "64"];
    let (out, _) = ends_with(1, &[&demo[..], &["--no-sync", "--json"]].concat());
    assert!(json(&out)["wrong"].as_u64().is_some_and(|wrong| wrong > 20));
}

#[rstest]
#[case::the_producer("producer")]
#[case::the_consumer("consumer")]
fn a_killed_process_ends_the_other_with_exit_code_3(#[case] victim: &str) {
    let (out, _) = ends_with(0, &["demo", "--kill", victim, "--size", "64", "--json"]);
    let report = json(&out);
    assert_eq!(report["exit_code_of_the_other"], 3, "{out}");
    let said = report["said"].as_str().expect("words");
    let process = format!("the {victim} is gone: process {}: it ", report["process"]);
    assert!(said.contains(&process), "{out}");
    assert!(said.contains("the last frame that was whole is"), "{out}");
    assert!(!said.contains("wrong"), "{out}");
}

/// The negative control: no process is killed while frames are wrong.
///
/// If the first frame is right by chance, the other process does not notice the kill, because it
/// waits for nothing. The command then kills it and reports that it has not ended.
#[test]
fn a_pair_whose_frames_are_wrong_is_an_error() {
    let demo = ["demo", "--kill", "producer", "--no-sync", "--size", "64"];
    let (out, error) = ends_with(2, &demo);
    let told = ["frames are not right", "has not ended"];
    assert!(told.iter().any(|told| error.contains(told)), "{out}{error}");
}

#[rstest]
#[case::two_processes_and_a_socket(&["demo", "--processes", "--listen", "/tmp/x"])]
#[case::both_ends_of_a_socket(&["demo", "--listen", "/tmp/x", "--connect", "/tmp/x"])]
#[case::no_role_to_kill(&["demo", "--kill", "neither"])]
#[case::no_socket_to_connect_to(&["demo", "--connect", "/nonexistent/socket"])]
#[case::no_folder_to_listen_in(&["demo", "--listen", "/nonexistent/socket"])]
fn senseless_options_are_refused(#[case] arguments: &[&str]) {
    let (_, error) = ends_with(2, arguments);
    assert!(error.contains("error:"), "{arguments:?}: {error}");
}
