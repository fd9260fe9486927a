//! Programs in C run against the shared library.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::PathBuf;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The folder of the shared library, which is that of this test.
fn folder() -> PathBuf {
    let exe = std::env::current_exe().expect("a path");
    exe.parent().expect("a folder").into()
}

#[test]
fn the_cases_hold() {
    let folder = folder();
    let program = folder.join("syncline-c-host-cases");
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-pedantic",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Iinclude",
        ])
        .args(["tests/cases/host.c", "-lsyncline_c", "-o"])
        .arg(&program)
        .arg(format!("-L{}", folder.display()))
        .current_dir(ROOT)
        .output()
        .expect("a compiler is installed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let output = Command::new(&program)
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{:?}", output.status);
}
