//! Bugs that are planted in the border make cases fail.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod program;

use std::path::Path;
use std::process::Command;

/// Each bug of `cases/bug.c`, and a rule whose case must find it.
const BUGS: &[(&str, &str)] = &[
    ("code-lost", "T2"),
    ("unit", "T4"),
    ("text-lost", "E1"),
    ("reference", "handle"),
    ("leak", "T9"),
    ("freed-twice", "Q6"),
    ("never-freed", "Q6"),
    ("freed-early", "Q2"),
    ("called-twice", "Q6"),
    ("size", "D2"),
    ("descriptor", "T8"),
];

/// An exception that a callback in C lets out does not pass through the library.
#[test]
fn an_exception_never_passes_the_border() {
    use std::os::unix::process::ExitStatusExt as _;

    let program = program::build_with("unwind.cpp", "case-unwind.cpp", &[]);
    let run = |callback: &str| {
        let mut command = Command::new(&program);
        program::find_library(&mut command);
        let output = command.arg(callback).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status, text)
    };
    const ABORTED: i32 = 6;
    for callback in ["free", "work"] {
        let (status, text) = run(callback);
        assert_eq!(
            status.signal(),
            Some(ABORTED),
            "{callback}: {status:?} {text}"
        );
    }
    let (status, text) = run("callable");
    assert!(
        status.success() && text.contains("from a callable"),
        "{text}"
    );
}

#[test]
fn every_planted_bug_is_found() {
    let bug = program::build_with("bug.c", "planted-bugs.so", &["-shared", "-fPIC", "-ldl"]);
    // A case waits for a minute where a bug keeps a signal from coming.
    let impatient = program::build_with("host.c", "planted-host", &["-DLONG=SECOND"]);
    let patient = program::build_with("host.c", "planted-patient-host", &[]);
    let run = |cases: &Path, name: &str| {
        let mut command = Command::new(cases);
        program::find_library(&mut command);
        let output = command
            .env("LD_PRELOAD", &bug)
            .env("BUG", name)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status, text)
    };
    let (status, text) = run(&patient, "none");
    assert!(status.success(), "without a bug: {text}");
    // A few at a time: most of the time they wait, and their limits are a second.
    for bugs in BUGS.chunks(4) {
        std::thread::scope(|scope| {
            for (name, rule) in bugs {
                let (run, impatient) = (&run, &impatient);
                scope.spawn(move || {
                    let (status, text) = run(impatient, name);
                    assert!(!status.success(), "no case finds the bug {name}");
                    let found = text.lines().filter(|line| line.starts_with("FAILED"));
                    let found: Vec<_> = found.collect();
                    // A crash is found as well, but tells no rule.
                    let told = found.iter().any(|line| line.contains(&format!(" {rule}:")));
                    assert!(told, "{name} is not found by {rule}: {found:#?}");
                });
            }
        });
    }
}
