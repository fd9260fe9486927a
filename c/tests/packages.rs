//! The examples build with CMake and with pkg-config, in place and against an installation.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The shared library, which is beside this test.
fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("a path");
    exe.with_file_name("libsyncline_c.so")
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{text}{errors}");
    text
}

/// Builds the examples with CMake, and runs those that are called hello.
fn examples(build: &Path, option: &str) {
    let source = Path::new(ROOT).join("examples");
    let mut configure = Command::new("cmake");
    run(configure
        .arg("-S")
        .arg(source)
        .arg("-B")
        .arg(build)
        .arg(option));
    run(Command::new("cmake").arg("--build").arg(build));
    for name in ["hello_c", "hello_cpp"] {
        let text = run(&mut Command::new(build.join(name)));
        assert!(text.contains("1 submission is held"), "{text}");
        assert!(
            text.contains("frame 42, and the timeline is at 2"),
            "{text}"
        );
    }
}

#[test]
fn cmake_builds_the_examples_in_place_and_against_an_installation() {
    let (place, build, prefix) = (folder("in-place"), folder("build"), folder("prefix"));
    let library = format!("-DSYNCLINE_LIBRARY={}", library().display());
    examples(&place, &library);
    // An installation that was moved still works.
    let first = prefix.join("first");
    let mut configure = Command::new("cmake");
    run(configure.args(["-S", ROOT, "-B"]).arg(&build).arg(&library));
    run(Command::new("cmake")
        .arg("--install")
        .arg(&build)
        .arg("--prefix")
        .arg(&first));
    let moved = prefix.join("moved");
    std::fs::rename(&first, &moved).unwrap();
    examples(
        &folder("installed"),
        &format!("-DCMAKE_PREFIX_PATH={}", moved.display()),
    );
    // pkg-config finds it, too.
    let packages = walk(&moved, "syncline.pc").expect("it is installed");
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "syncline"])
        .env("PKG_CONFIG_PATH", packages.parent().unwrap()));
    let program = prefix.join("hello");
    run(Command::new("cc")
        .arg(Path::new(ROOT).join("examples/hello.c"))
        .arg("-o")
        .arg(&program)
        .args(flags.split_whitespace()));
    let libraries = walk(&moved, "libsyncline_c.so").expect("it is installed");
    let text = run(Command::new(&program).env("LD_LIBRARY_PATH", libraries.parent().unwrap()));
    assert!(text.contains("frame 42"), "{text}");
}

/// The project of a program adds this folder, and cargo is called when it is built.
///
/// A program in place of cargo checks the call and copies the library, which is built already.
#[test]
fn add_subdirectory_calls_cargo() {
    use std::os::unix::fs::PermissionsExt as _;

    let (source, build) = (folder("adding"), folder("adding-build"));
    let cargo = source.join("cargo");
    let script = format!(
        r#"#!/bin/sh
set -e
[ "$1 $2 $3 $4 $5 $6" = "build --release --locked --package syncline-c --target-dir" ]
'{}' pkgid --offline --package "$5" >/dev/null
mkdir -p "$7/release"
cp '{}' "$7/release/"
"#,
        env!("CARGO"),
        library().display()
    );
    std::fs::write(&cargo, script).unwrap();
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let project = format!(
        "cmake_minimum_required(VERSION 3.16)\n\
         project(Engine LANGUAGES C)\n\
         add_subdirectory(\"{ROOT}\" syncline)\n\
         add_executable(engine \"{ROOT}/examples/hello.c\")\n\
         target_link_libraries(engine PRIVATE Syncline::syncline)\n"
    );
    std::fs::write(source.join("CMakeLists.txt"), project).unwrap();
    let mut configure = Command::new("cmake");
    run(configure
        .arg("-S")
        .arg(&source)
        .arg("-B")
        .arg(&build)
        .arg(format!("-DSYNCLINE_CARGO={}", cargo.display())));
    run(Command::new("cmake").arg("--build").arg(&build));
    let text = run(&mut Command::new(build.join("engine")));
    assert!(text.contains("frame 42"), "{text}");
}

/// The file with this name under a folder.
fn walk(folder: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_dir(folder).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => walk(&path, name),
            false => path.ends_with(name).then_some(path),
        }
    })
}

/// The library has the symbols of the header and no others. It stays after `dlclose`.
#[test]
fn the_library_exports_the_functions_of_the_header_alone() {
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library()));
    let mut exported: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    exported.sort_unstable();
    let header = std::fs::read_to_string(Path::new(ROOT).join("include/syncline.h")).unwrap();
    let mut declared: Vec<_> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#', 't', '}']))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .collect();
    declared.sort_unstable();
    assert!(declared.len() > 80, "{declared:?}");
    assert_eq!(exported, declared);
    let flags = run(Command::new("readelf").arg("-d").arg(library()));
    assert!(flags.contains("NODELETE"), "{flags}");
}
