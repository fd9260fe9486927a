//! Checks the order of the rooms: the folders of `core/src` and of the backends' `src`.
//!
//! A room imports only from rooms before it. So each crate compiles cut off after any of its rooms.
//! Importing is not the only way to depend on a later room: a method can be defined there. Hence
//! the compiler checks the order, without unit tests.
#![allow(clippy::expect_used, clippy::panic, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The rooms of core, lowest first. Every build compiles `host`, the last one.
const CORE: &[&str] = &[
    "base", "clock", "memory", "port", "timeline", "held", "wait", "fence", "driver", "queue",
    "api", "link", "trace",
];

/// The rooms of both backends, lowest first. Vulkan has no `graph`.
const BACKEND: &[&str] = &[
    "driver", "device", "memory", "timeline", "timing", "queue", "share", "graph", "api", "probe",
    "adopt",
];

#[test]
fn core_compiles_cut_off_after_each_room() {
    check("core", CORE);
}

#[test]
fn backends_compile_cut_off_after_each_room() {
    check("backend-cuda", BACKEND);
    let without_graph: Vec<_> = BACKEND
        .iter()
        .copied()
        .filter(|room| *room != "graph")
        .collect();
    check("backend-vulkan", &without_graph);
}

/// Compiles `crate_dir` cut off after each of its rooms, which must all be listed.
fn check(crate_dir: &str, rooms: &[&str]) {
    let listed: BTreeSet<String> = rooms.iter().map(|&room| room.to_owned()).collect();
    assert_eq!(found(crate_dir), listed, "the rooms of {crate_dir}");
    let failed: Vec<_> = (1..=rooms.len())
        .filter_map(|count| {
            let output = compile(crate_dir, &rooms[..count]);
            output.map(|errors| {
                format!(
                    "{crate_dir} cut off after `{}`:\n{errors}",
                    rooms[count - 1]
                )
            })
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Lists the rooms of a crate: the folders and files of `src`.
///
/// Files of re-exports and core's last room are left out.
fn found(crate_dir: &str) -> BTreeSet<String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a folder");
    let entries = std::fs::read_dir(repository.join(crate_dir).join("src")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").path());
    let names = names.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let is_room = |name: &String| !["lib", "backend", "host"].contains(&name.as_str());
    names.filter(is_room).collect()
}

/// Compiles the rooms alone, and returns the errors of the compiler.
fn compile(crate_dir: &str, rooms: &[&str]) -> Option<String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a folder");
    let source = repository.join(crate_dir);
    let package = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("rooms")
        .join(crate_dir);
    std::fs::create_dir_all(package.join("src")).expect("a folder for the package");
    let mut lib = String::from("#![allow(warnings)]\n");
    for room in rooms {
        let folder = source.join("src").join(room).join("mod.rs");
        let path = if folder.exists() {
            folder
        } else {
            source.join("src").join(room).with_extension("rs")
        };
        writeln!(lib, "#[path = {path:?}]\nmod {room};").expect("a string");
    }
    std::fs::write(package.join("src/lib.rs"), lib).expect("the root is written");
    std::fs::write(package.join("Cargo.toml"), manifest(repository, &source))
        .expect("the manifest is written");
    std::fs::copy(repository.join("Cargo.lock"), package.join("Cargo.lock"))
        .expect("the lock file");
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet", "--lib", "--manifest-path"])
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("rooms/target"))
        .output()
        .expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(errors)
}

/// The manifest of a crate, as that of a workspace of its own.
fn manifest(repository: &Path, source: &Path) -> String {
    let read = |path: PathBuf| std::fs::read_to_string(path).expect("a manifest");
    let own = read(source.join("Cargo.toml"));
    let own = own.split("[dev-dependencies]").next().unwrap_or_default();
    let workspace = read(repository.join("Cargo.toml"));
    let members = workspace.find("members").expect("members");
    let rest = workspace.find("[workspace.package]").expect("the package");
    let paths =
        workspace[rest..].replace("path = \"", &format!("path = \"{}/", repository.display()));
    format!("{own}\n{}{paths}", &workspace[..members])
}
