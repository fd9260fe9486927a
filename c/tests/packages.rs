//! Programs build with CMake, which calls cargo, against an installation, and with pkg-config.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::os::unix::fs::PermissionsExt;
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

/// The compilers of C and C++ that programs are built with.
const COMPILERS: [[&str; 2]; 2] = [["gcc", "g++"], ["clang", "clang++"]];

fn runs(program: &Path) {
    let text = run(&mut Command::new(program));
    assert!(text.contains("1 submission is held"), "{text}");
    let last = "frame 42, and the timeline is at 2";
    assert!(text.contains(last), "{text}");
}

/// Builds a project with the programs that are called hello by CMake, and runs both.
///
/// `line` brings the target in. They also run where they are installed.
fn builds(build: &Path, line: &str, [c, cpp]: [&str; 2], options: [&str; 2]) {
    let source = build.with_extension("source");
    std::fs::create_dir_all(&source).unwrap();
    let project = format!(
        "cmake_minimum_required(VERSION 3.16)\n\
         project(Engine LANGUAGES C CXX)\n\
         {line}\n\
         set(CMAKE_INSTALL_RPATH \"$ORIGIN/../lib\")\n\
         add_executable(engine \"{ROOT}/examples/hello.c\")\n\
         add_executable(engine_cpp \"{ROOT}/examples/hello.cpp\")\n\
         target_compile_features(engine_cpp PRIVATE cxx_std_17)\n\
         foreach(name engine engine_cpp)\n\
         target_link_libraries(${{name}} PRIVATE Syncline::syncline)\n\
         install(TARGETS ${{name}} DESTINATION bin)\n\
         endforeach()\n\
         install(PROGRAMS $<TARGET_FILE:Syncline::syncline> DESTINATION lib)\n"
    );
    std::fs::write(source.join("CMakeLists.txt"), project).unwrap();
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&source).arg("-B").arg(build);
    configure.arg(format!("-DCMAKE_C_COMPILER={c}"));
    configure.arg(format!("-DCMAKE_CXX_COMPILER={cpp}"));
    run(configure.args(options));
    cmake_build(build);
    runs(&build.join("engine"));
    runs(&build.join("engine_cpp"));
    let installed = build.join("installed");
    cmake_install(build, &installed);
    runs(&installed.join("bin/engine"));
    runs(&installed.join("bin/engine_cpp"));
}

fn cmake_build(build: &Path) {
    let mut cmake = Command::new("cmake");
    run(cmake
        .env("CARGO_NET_OFFLINE", "true")
        .arg("--build")
        .arg(build));
}

fn cmake_install(build: &Path, prefix: &Path) {
    let mut cmake = Command::new("cmake");
    run(cmake
        .arg("--install")
        .arg(build)
        .arg("--prefix")
        .arg(prefix));
}

/// What `docs/c.md` says under *Build*.
///
/// Programs use the folder, an installation that was moved, or pkg-config. A script stands for
/// cargo, and has the library that is built already.
#[test]
fn cmake_calls_cargo_and_programs_find_the_library() {
    let script = folder("script").join("cargo");
    let text = format!(
        "#!/bin/sh -e\n\
         test \"$1 $2 $3 $4 $5 $6\" = 'build --release --locked --package syncline-c --target-dir'\n\
         mkdir -p \"$7/release\"\n\
         cp '{}' \"$7/release/\"\n",
        library().display(),
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let cargo = format!("-DSYNCLINE_CARGO={}", script.display());
    let (build, prefix) = (folder("build"), folder("prefix"));
    let mut configure = Command::new("cmake");
    run(configure.args(["-S", ROOT, "-B"]).arg(&build).arg(&cargo));
    cmake_build(&build);
    cmake_install(&build, &prefix.join("first"));
    let moved = prefix.join("moved");
    std::fs::rename(prefix.join("first"), &moved).unwrap();
    let packages = walk(&moved, "syncline.pc").expect("it is installed");
    for compilers in COMPILERS {
        let added = folder(&format!("added-{}", compilers[0]));
        let line = format!("add_subdirectory(\"{ROOT}\" syncline)");
        builds(&added, &line, compilers, ["-Wno-dev", &cargo]);
        let found = folder(&format!("found-{}", compilers[0]));
        let line = "find_package(Syncline 0.2 QUIET)\n\
                    if(Syncline_FOUND)\nmessage(FATAL_ERROR \"of another version\")\nendif()\n\
                    find_package(Syncline 0.1 REQUIRED)";
        let option = format!("-DCMAKE_PREFIX_PATH={}", moved.display());
        builds(&found, line, compilers, ["-Wno-dev", &option]);
        let sources = [("hello.c", "c11"), ("hello.cpp", "c++17")];
        for (compiler, (source, standard)) in compilers.iter().zip(sources) {
            // As a shell does it.
            let program = prefix.join(format!("{compiler}-{source}"));
            let line = format!(
                "{compiler} -std={standard} '{ROOT}/examples/{source}' -o '{}' $(pkg-config --cflags --libs syncline) \
                 -Wl,-rpath,$(pkg-config --variable=libdir syncline)",
                program.display(),
            );
            let mut shell = Command::new("sh");
            shell.env("PKG_CONFIG_PATH", packages.parent().unwrap());
            run(shell.args(["-ec", &line]));
            runs(&program);
        }
    }
}

/// Cargo itself builds what CMake asks for, in release.
#[test]
#[ignore = "slow: `.ci/slow` runs it"]
fn cargo_builds_the_library_for_cmake() {
    // It stays, so that cargo builds the library again only if it has changed.
    let cargo = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cargo-of-cmake");
    std::fs::create_dir_all(&cargo).unwrap();
    let build = folder("by-cargo");
    std::fs::create_dir_all(build.join("syncline")).unwrap();
    std::os::unix::fs::symlink(&cargo, build.join("syncline/cargo")).unwrap();
    let line = format!("add_subdirectory(\"{ROOT}\" syncline)");
    builds(
        &build,
        &line,
        COMPILERS[0],
        ["-Wno-dev", "-DSYNCLINE_LIBRARY="],
    );
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
