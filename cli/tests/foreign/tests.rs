//! Runs the command with clockwork machines, which may have a defect.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::DEFECT;

/// A case that any two devices pass in a few milliseconds.
const CASE: &str = "fence.never_recorded_is_complete";

/// How a machine and the host synchronize.
const ENGINE: &str = "through the engine on the host";

/// All tests.
pub(crate) fn all() -> Vec<Trial> {
    let tests: [(&str, fn()); 18] = [
        ("info_lists_the_machine", info_lists_the_machine),
        ("info_pairs_it_with_the_host", info_pairs_it_with_the_host),
        ("two_machines_are_told_apart", two_machines_are_told_apart),
        ("an_absent_backend_says_why", an_absent_backend_says_why),
        ("a_rejected_machine_says_why", a_rejected_machine_says_why),
        ("a_name_of_our_own_is_refused", a_name_of_our_own_is_refused),
        ("software_leaves_it_out", software_leaves_it_out),
        ("doctor_runs_its_checks", doctor_runs_its_checks),
        ("its_subjects_are_listed", its_subjects_are_listed),
        ("its_subjects_pass_a_case", its_subjects_pass_a_case),
        (
            "a_case_of_ours_alone_is_no_case_of_it",
            a_case_of_ours_alone_is_no_case_of_it,
        ),
        (
            "a_case_that_fails_is_exit_code_1",
            a_case_that_fails_is_exit_code_1,
        ),
        ("a_complaint_fails_the_case", a_complaint_fails_the_case),
        ("a_known_failure_does_no_harm", a_known_failure_does_no_harm),
        (
            "it_simulates_and_the_host_draws",
            it_simulates_and_the_host_draws,
        ),
        ("a_wrong_frame_is_exit_code_1", a_wrong_frame_is_exit_code_1),
        ("the_rest_is_refused", the_rest_is_refused),
        ("its_clock_is_read", its_clock_is_read),
    ];
    let trial = |(name, test): (&str, fn())| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    tests.map(trial).into()
}

/// Runs the command. Checks its exit code, and returns its standard output and standard error.
#[track_caller]
fn ends(code: i32, defect: &str, arguments: &[&str]) -> (String, String) {
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own);
    command
        .args(arguments)
        .env(DEFECT, defect)
        .env_remove("SYNCLINE_SOFTWARE");
    let output = command.output().expect("the command starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (out, error) = (text(output.stdout), text(output.stderr));
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {out}\n{error}"
    );
    (out, error)
}

#[track_caller]
fn json(code: i32, defect: &str, arguments: &[&str]) -> Value {
    let (out, _) = ends(code, defect, arguments);
    serde_json::from_str(&out).expect("JSON")
}

/// The machine, in the output of `info --json`.
fn machine(inventory: &Value) -> &Value {
    let devices = inventory["devices"].as_array().expect("a list");
    let mut devices = devices.iter();
    devices
        .find(|device| device["backend"] == "clockwork")
        .expect("a machine")
}

fn info_lists_the_machine() {
    let (out, _) = ends(0, "", &["info"]);
    for line in [
        " clockwork \"clockwork machine\"\n",
        "    driver              clockwork 1\n",
        "    calibrated clock    yes\n",
        "    limits              exports: its counters only\n",
    ] {
        assert!(out.contains(line), "{out}");
    }
    let inventory = json(0, "", &["info", "--json"]);
    let machine = machine(&inventory);
    let devices = inventory["devices"].as_array().expect("a list");
    // Behind the devices of this project.
    assert_eq!(machine["index"], devices.len() - 1);
    assert_eq!(machine["rejected"], Value::Null);
    let capabilities = &machine["capabilities"];
    assert_eq!(capabilities["native_timelines"], true);
    assert_eq!(capabilities["limits"][0]["reason"], "its counters only");
}

fn info_pairs_it_with_the_host() {
    let answers = json(0, "", &["info", "--json", "--pair", "clockwork", "host"]);
    let answers = answers["answers"].as_array().expect("a list");
    assert_eq!(answers.len(), 3);
    for answer in answers {
        assert_eq!(answer["mechanism"], ENGINE, "{answer}");
    }
    let (out, _) = ends(0, "twice", &["info", "--pair", "clockwork", "clockwork"]);
    assert!(out.contains("both signal and wait:\n"), "{out}");
}

fn two_machines_are_told_apart() {
    let inventory = json(0, "twice", &["info", "--json"]);
    let index = machine(&inventory)["index"].as_u64().expect("a number");
    let same = &machine(&inventory)["same_gpu_as"];
    assert_eq!(same[0], index + 1);
    let (out, _) = ends(
        0,
        "twice",
        &["conformance", "--list", "--device", "clockwork"],
    );
    let first = format!("clockwork clockwork machine #{index}");
    let second = format!("clockwork clockwork machine #{}", index + 1);
    let pair = format!("subject  {first} -> {second}\n");
    assert!(out.contains(&pair), "{out}");
    // One counter of the machine, which both devices have.
    let device = format!("{first} -> {second}");
    let case = ["--device", &device, "--filter", CASE];
    let (out, _) = ends(0, "twice", &[&["conformance"], &case[..]].concat());
    assert!(out.contains("2 passed, 0 failed, 0 skipped"), "{out}");
}

fn an_absent_backend_says_why() {
    let why = "no machine is wound up";
    let (out, _) = ends(0, "absent", &["info"]);
    assert!(out.contains(why), "{out}");
    let inventory = json(0, "absent", &["info", "--json"]);
    assert!(inventory["unavailable"].to_string().contains(why));
    let demo = ["demo", "--producer", "clockwork", "--consumer", "host"];
    let (_, error) = ends(2, "absent", &demo);
    assert!(error.contains(why), "{error}");
    let (out, error) = ends(2, "absent", &["conformance", "--device", "clockwork"]);
    assert!(
        out.contains(why) && error.contains("no device"),
        "{out}{error}"
    );
}

fn a_rejected_machine_says_why() {
    let why = "a spring is broken";
    let inventory = json(0, "rejected", &["info", "--json"]);
    let rejected = machine(&inventory)["rejected"].as_str().expect("a reason");
    assert!(rejected.contains(why), "{rejected}");
    let (_, error) = ends(2, "rejected", &["demo", "--producer", "clockwork"]);
    assert!(error.contains(why), "{error}");
    let (out, _) = ends(2, "rejected", &["conformance", "--device", "clockwork"]);
    assert!(out.contains(why), "{out}");
}

/// A foreign device must not be taken for one of this project.
fn a_name_of_our_own_is_refused() {
    let (out, _) = ends(0, "name", &["info"]);
    let why = "vulkan is the name of a backend of Syncline";
    assert!(
        out.contains(why) && !out.contains("\"clockwork machine\"\n"),
        "{out}"
    );
}

/// A machine does not say that it is software.
fn software_leaves_it_out() {
    if !cfg!(all(feature = "cuda", feature = "vulkan")) {
        return;
    }
    let inventory = json(0, "", &["info", "--json", "--software"]);
    let devices = inventory["devices"].as_array().expect("a list");
    assert!(
        devices
            .iter()
            .all(|device| device["backend"] != "clockwork")
    );
    let why = "--software uses no GPU, and clockwork machine does not say that it is software";
    assert!(inventory["unavailable"].to_string().contains(why));
}

fn doctor_runs_its_checks() {
    // On any machine: what CUDA and Vulkan lack is another question.
    let (out, _) = ends(1, "spring", &["doctor"]);
    assert!(
        out.contains("found    clockwork-spring     the spring is slack\n      -> Wind it up.\n"),
        "{out}"
    );
    assert!(out.contains("clockwork-spring. Repair "), "{out}");
    // No check of ours depends on it.
    let skipped = out.lines().find(|line| line.starts_with("skipped "));
    assert!(
        skipped.is_none_or(|line| !line.contains("clockwork")),
        "{out}"
    );
    if !cfg!(all(feature = "cuda", feature = "vulkan")) {
        return;
    }
    let doctor = ["doctor", "--software", "--json"];
    for (code, defect, result, what) in [
        (0, "", "ok", "the spring is wound up"),
        (1, "spring", "found", "the spring is slack"),
    ] {
        let report = json(code, defect, &doctor);
        assert_eq!(report["shares"], true, "{report}");
        let last = report["checks"].as_array().and_then(|all| all.last());
        let last = last.expect("a check");
        let found = [&last["id"], &last["result"], &last["what"]];
        assert_eq!(found, ["clockwork-spring", result, what], "{report}");
    }
}

fn its_subjects_are_listed() {
    let (by_name, _) = ends(0, "", &["conformance", "--list", "--device", "clockwork"]);
    for subject in [
        "clockwork clockwork machine",
        "clockwork clockwork machine -> host",
        "host -> clockwork clockwork machine",
    ] {
        assert!(
            by_name.contains(&format!("subject  {subject}\n")),
            "{by_name}"
        );
    }
    assert!(by_name.contains(&format!("case     {CASE} ")), "{by_name}");
    assert!(!by_name.contains("subject  host\n"), "{by_name}");
    let inventory = json(0, "", &["info", "--json"]);
    let index = machine(&inventory)["index"].to_string();
    let (by_index, _) = ends(0, "", &["conformance", "--list", "--device", &index]);
    assert_eq!(by_index, by_name);
    // Beside the others.
    let (all, _) = ends(0, "", &["conformance", "--list", "--filter", CASE]);
    assert!(
        all.contains("subject  host\n") && all.contains(subject_line(&by_name)),
        "{all}"
    );
    assert_eq!(all.matches("\ncase ").count(), 1, "{all}");
}

fn subject_line(list: &str) -> &str {
    let mut lines = list.lines();
    lines
        .find(|line| line.starts_with("subject  "))
        .expect("a subject")
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("foreign-{name}"))
}

fn its_subjects_pass_a_case() {
    let (recorded, junit) = (scratch("passes.json"), scratch("passes.xml"));
    for file in [&recorded, &junit] {
        // Fails if there is none.
        let _ = fs::remove_file(file);
    }
    let paths = [&recorded, &junit].map(|path| path.to_str().expect("UTF-8"));
    let files = ["--json", paths[0], "--junit", paths[1]];
    let chosen = ["conformance", "--filter", CASE, "--repeat", "2"];
    let (out, _) = ends(0, "", &[&chosen[..], &files].concat());
    assert!(out.contains("what passed did so 2 times"), "{out}");
    let text = fs::read_to_string(&recorded).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let cases = report["cases"].as_array().expect("a list");
    for subject in [
        "host",
        "clockwork clockwork machine",
        "clockwork clockwork machine -> host",
        "host -> clockwork clockwork machine",
    ] {
        let of = cases.iter().filter(|case| case["subject"] == subject);
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let of: Vec<_> = of
            .map(|case| [&case["id"], &case["outcome"]].map(text))
            .collect();
        assert_eq!(
            of,
            [[CASE, "passed"], ["subject.teardown", "passed"]],
            "{subject}"
        );
    }
    let junit = fs::read_to_string(&junit).expect("a report");
    assert!(
        junit.contains("clockwork clockwork machine -&gt; host"),
        "{junit}"
    );
}

fn a_case_of_ours_alone_is_no_case_of_it() {
    let chosen = ["conformance", "--filter", "engine.", "--device"];
    ends(0, "", &[&chosen[..], &["host", "--list"]].concat());
    let (_, error) = ends(2, "", &[&chosen[..], &["clockwork"]].concat());
    assert!(
        error.contains("no case and no rule matches \"engine.\""),
        "{error}"
    );
}

fn a_case_that_fails_is_exit_code_1() {
    let chosen = ["conformance", "--device", "clockwork", "--filter", CASE];
    let (out, _) = ends(1, "tools", &chosen);
    assert!(out.contains(&format!("  FAILED   {CASE}")), "{out}");
    assert!(out.contains("its tools are gone"), "{out}");
}

fn a_complaint_fails_the_case() {
    let subject = "clockwork clockwork machine";
    let chosen = ["conformance", "--device", subject, "--filter", CASE];
    let (out, _) = ends(1, "complains", &chosen);
    assert!(out.contains("validation: the oil is old"), "{out}");
    // Once: the teardown passes.
    assert!(out.contains("1 passed, 1 failed, 0 skipped"), "{out}");
}

fn a_known_failure_does_no_harm() {
    let subject = "clockwork clockwork machine";
    let chosen = ["conformance", "--device", subject, "--filter", CASE];
    let (out, _) = ends(0, "known", &chosen);
    assert!(out.contains("1 failed as is known"), "{out}");
}

/// The demo on a machine, with the host as the consumer.
const DEMO: [&str; 9] = [
    "demo",
    "--producer",
    "clockwork",
    "--consumer",
    "host",
    "--frames",
    "20",
    "--size",
    "64",
];

fn it_simulates_and_the_host_draws() {
    let (out, _) = ends(0, "", &DEMO);
    for line in [
        "producer   clockwork clockwork machine\n",
        "consumer   host ",
        "ordered by the engine on the host (",
        "shares     nothing\n",
        "verified   20 of 20 frames, 0 wrong, ",
        "speed      ",
    ] {
        assert!(out.contains(line), "{out}");
    }
    let trace = scratch("trace.json");
    let path = trace.to_str().expect("UTF-8");
    let report = json(0, "", &[&DEMO[..], &["--json", "--trace", path]].concat());
    assert_eq!(report["verified"], 20);
    assert_eq!(report["mechanism"], ENGINE);
    let trace = fs::read_to_string(&trace).expect("a trace");
    assert!(trace.contains("simulate 19") && trace.contains("relay 19"));
}

/// So the frames that are compared are those of the machine.
fn a_wrong_frame_is_exit_code_1() {
    let (out, _) = ends(1, "forgets", &DEMO);
    assert!(
        out.contains("verified   19 of 20 frames, 1 wrong, "),
        "{out}"
    );
}

fn the_rest_is_refused() {
    let (_, error) = ends(2, "", &["demo", "--producer", "nosuch"]);
    assert!(
        error.contains("nosuch") && error.contains("clockwork machine"),
        "{error}"
    );
    let (_, error) = ends(
        2,
        "",
        &["demo", "--producer", "host", "--consumer", "clockwork"],
    );
    assert!(
        error.contains("it is a device of the backend clockwork"),
        "{error}"
    );
    let (_, error) = ends(2, "", &[&DEMO[..], &["--processes"]].concat());
    assert!(
        error.contains("it is a device of the backend clockwork"),
        "{error}"
    );
    let (_, error) = ends(2, "bare", &DEMO);
    assert!(
        error.contains("its backend has no producer of the demo"),
        "{error}"
    );
    let (_, error) = ends(2, "", &["conformance", "--device", "nosuch"]);
    assert!(
        error.contains("nosuch") && error.contains("clockwork machine -> host"),
        "{error}"
    );
}

fn its_clock_is_read() {
    let chosen = ["clocks", "--device", "clockwork", "--for", "0", "--json"];
    let report = json(0, "", &chosen);
    let clocks = report["clocks"].as_array().expect("a list");
    assert_eq!(clocks.len(), 1, "{report}");
    assert_eq!(clocks[0]["device"], "clockwork clockwork machine");
    assert_eq!(clocks[0]["samples"].as_array().map(Vec::len), Some(1));
}
