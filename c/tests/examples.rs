//! The examples build with CMake and two compilers, and show on the software drivers what they say.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod program;

use std::path::{Path, PathBuf};
use std::process::Command;

use program::{ROOT, folder};

/// Runs a command that ends with an exit code, and returns its output.
fn run(command: &mut Command, code: i32) -> String {
    let output = command.output().expect("the program is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{command:?}: {}\n{text}{errors}",
        output.status
    );
    text
}

/// Builds the examples with the compilers of C and C++, and returns their folder.
fn build(c: &str, cpp: &str, drivers: &Path) -> PathBuf {
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("examples-{c}"));
    let _ = std::fs::remove_dir_all(&build);
    let mut configure = Command::new("cmake");
    let library = folder().join("libsyncline_c.so");
    let cuda = drivers.join("libcuda.so.1");
    configure
        .arg("-S")
        .arg(Path::new(ROOT).join("examples"))
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCMAKE_C_COMPILER={c}"))
        .arg(format!("-DCMAKE_CXX_COMPILER={cpp}"))
        .arg(format!("-DSYNCLINE_LIBRARY={}", library.display()))
        .arg(format!("-DSYNCLINE_CUDA_DRIVER_LIBRARY={}", cuda.display()))
        .arg("-DSYNCLINE_EXAMPLES_NVCC=OFF");
    run(&mut configure, 0);
    run(Command::new("cmake").arg("--build").arg(&build), 0);
    build
}

/// Arguments of an example, its exit code, and parts of its output.
type Shown = (
    &'static str,
    &'static [&'static str],
    i32,
    &'static [&'static str],
);

const SHOWN: &[Shown] = &[
    ("hello_c", &[], 0, &["frame 42, and the timeline is at 2"]),
    ("hello_cpp", &[], 0, &["frame 42, and the timeline is at 2"]),
    (
        "two_processes",
        &["60"],
        0,
        &["60 of 60 frames are right, and 0 reads were skipped"],
    ),
    (
        "two_processes",
        &["--kill", "60"],
        0,
        &["SL_ERROR_FAILED", "has lost process"],
    ),
    (
        "frame_pool",
        &["60"],
        0,
        &[
            "60 of 60 frames are right",
            "120 signals: 60 are the decoder",
        ],
    ),
    (
        "frame_pool",
        &["--no-sync", "9"],
        1,
        &["0 of 9 frames are right"],
    ),
    (
        "vertices",
        &["9", "wave.ppm"],
        0,
        &["exported by Vulkan", "9 of 9 frames are right"],
    ),
    (
        "vertices",
        &["--no-sync", "6"],
        1,
        &["0 of 6 frames are right"],
    ),
];

/// Builds and runs all examples.
fn show(c: &str, cpp: &str) {
    let drivers = program::software(&format!("drivers-{c}"));
    let build = build(c, cpp, &drivers);
    for (name, arguments, code, parts) in SHOWN {
        let mut command = Command::new(build.join(name));
        command.args(*arguments).current_dir(&build);
        program::use_software(&mut command, &drivers);
        let text = run(&mut command, *code);
        for part in *parts {
            assert!(text.contains(part), "{name} {arguments:?}: {text}");
        }
    }
    let picture = std::fs::read(build.join("wave.ppm")).unwrap();
    assert!(picture.starts_with(b"P6\n512 512\n255\n"));
    // The library that decodes for frame_pool knows nothing of Syncline.
    let object = "CMakeFiles/frame_pool.dir/frame_decoder.c.o";
    let symbols = run(Command::new("nm").arg(build.join(object)), 0);
    assert!(symbols.contains(" U vkQueueSubmit") && !symbols.contains(" sl_"));
}

#[test]
fn the_examples_show_what_they_say_when_gcc_builds_them() {
    show("gcc", "g++");
}

#[test]
fn the_examples_show_what_they_say_when_clang_builds_them() {
    show("clang", "clang++");
}
