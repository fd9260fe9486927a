//! Programs in C run against the shared library.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

mod program;

use program::build;

/// The Vulkan of an engine, which the examples have, too.
const SETUP: [&str; 2] = ["-Iexamples", "examples/vulkan_setup.c"];

/// Runs a program. Each line that is not "ok" is in the error.
fn run(program: &Path, change: impl FnOnce(&mut Command)) {
    let mut command = Command::new(program);
    program::find_library(&mut command);
    change(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let wrong: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with("ok"))
        .collect();
    println!("{}", wrong.join("\n"));
    let errors = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(
        status.success(),
        "{status:?} {}\n{errors}",
        wrong.join("\n")
    );
}

#[test]
fn the_cases_of_the_host_hold() {
    run(&build("host.c", &[]), |_| {});
}

#[test]
fn the_cases_of_cpp_hold() {
    run(&build("hpp.cpp", &[]), |_| {});
}

/// A program links files with and without exceptions, whose inline functions are different.
#[test]
fn files_with_and_without_exceptions_go_together() {
    let with = Path::new(env!("CARGO_TARGET_TMPDIR")).join("with.o");
    let output = Command::new("c++")
        .args([
            "-std=c++17",
            "-c",
            "-Iinclude",
            "tests/cases/with.cpp",
            "-o",
        ])
        .arg(&with)
        .current_dir(program::ROOT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // A linker takes the first of two functions with one name: the one without exceptions.
    let arguments = ["-fno-exceptions", with.to_str().unwrap()];
    let program = program::build_with("without.cpp", "with-and-without", &arguments);
    run(&program, |_| {});
}

#[test]
fn the_cases_of_vulkan_hold() {
    run(
        &build("vulkan.c", &[SETUP[0], SETUP[1], "-lvulkan"]),
        |_| {},
    );
}

#[test]
fn the_cases_of_cuda_hold_on_the_software_drivers() {
    let drivers = program::software("software-drivers");
    let search = format!("-L{}", drivers.display());
    let program = build(
        "cuda.c",
        &[SETUP[0], SETUP[1], "-lvulkan", &search, "-lcuda"],
    );
    run(&program, |command| program::use_software(command, &drivers));
}

#[test]
fn the_cases_of_two_processes_hold() {
    run(&build("process.c", &[]), |_| {});
}

/// Address, undefined behaviour and leaks, in the program and in memory of both.
#[test]
fn no_sanitizer_has_a_finding() {
    let sanitize = [
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-DSANITIZED=1",
    ];
    let leaks = |command: &mut Command| {
        command.env("ASAN_OPTIONS", "detect_leaks=1");
    };
    for source in ["host.c", "hpp.cpp", "process.c"] {
        let name = format!("sanitized-{source}");
        run(&program::build_with(source, &name, &sanitize), |command| {
            // The objects of hpp.cpp end after it could wait for the threads of the library.
            match source.ends_with(".c") {
                true => leaks(command),
                false => _ = command.env("ASAN_OPTIONS", "detect_leaks=0"),
            }
        });
    }
    // Random calls in random order. `sanitizers/run` makes more of them.
    let random = program::build_with("random.c", "sanitized-random.c", &sanitize);
    for seed in ["1", "2", "3"] {
        run(&random, |command| {
            command.args([seed, "5000"]);
            leaks(command);
        });
    }
}
