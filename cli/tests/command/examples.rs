//! The examples of the crate `syncline`, on the software drivers and without any driver.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};

use rstest::rstest;

use super::software::{ends_with, has_vulkan};

/// The program of an example. `None` if only this package was built.
fn example(name: &str) -> Option<String> {
    let command = Path::new(env!("CARGO_BIN_EXE_syncline"));
    let folder: PathBuf = command.parent().expect("a folder").join("examples");
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/examples");
    assert!(source.join(name).with_extension("rs").exists(), "{name}");
    if !program.exists() {
        eprintln!("skipped: cargo test --workspace builds {name}");
        return None;
    }
    Some(program.to_str().expect("UTF-8").to_owned())
}

/// With CUDA and Vulkan in software, as on a machine with one GPU.
#[rstest]
#[case::hello("hello", &[], "is at 2")]
#[case::cuda_to_vulkan("cuda_to_vulkan", &[], "the last frame is Some(100)")]
#[case::streams("two_queues", &["cuda"], "the last word written is Some(100)")]
#[case::vulkan_queues("two_queues", &["vulkan"], "the last word written is Some(100)")]
#[case::workers("two_queues", &["host"], "the last word written is Some(100)")]
#[case::own_submission("own_submission", &[], "the line is at 2")]
#[case::futures("futures", &[], "frame 2 came: false")]
#[case::timing("timing", &[], "±")]
#[case::trace("trace", &[], "5 waits were released")]
#[case::failure("failure", &[], "because work failed: the file is missing")]
fn examples_run_on_software_drivers(
    #[case] name: &str,
    #[case] arguments: &[&str],
    #[case] says: &str,
) {
    let scratch = format!("example-{name}-{}", arguments.concat());
    let Some(program) = example(name).filter(|_| has_vulkan(&scratch)) else {
        return;
    };
    let run = [&["run", "--software", "--", &program], arguments].concat();
    let (out, _) = ends_with(0, &scratch, &run);
    assert!(out.contains(says), "{out}");
}

/// Without CUDA the error says what is missing.
#[test]
fn a_missing_pair_is_named() {
    let Some(program) = example("cuda_to_vulkan") else {
        return;
    };
    let made = std::process::Command::new(program)
        .env("SYNCLINE_CUDA_DRIVER", "/nonexistent/libcuda.so.1")
        .output()
        .expect("the example");
    assert_eq!(made.status.code(), Some(1));
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(said.contains("cuda"), "{said}");
}
