//! Checks the order of the rooms: the folders of `core/src` and of the backends' `src`.
//!
//! A room imports only from rooms before it. So each crate compiles cut off after any of its rooms.
//! Importing is not the only way to depend on a later room: a method can be defined there. Hence
//! the compiler checks the order, without unit tests.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
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

/// One workspace has all the cut crates as its packages, so that they compile beside each other.
#[test]
fn each_crate_compiles_cut_off_after_each_room() {
    let root = repository();
    let workspace = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("rooms");
    // What an earlier run has left may have other rooms. The build folder is kept.
    let _ = fs::remove_dir_all(workspace.join("cut"));
    let without_graph: Vec<_> = BACKEND
        .iter()
        .copied()
        .filter(|room| *room != "graph")
        .collect();
    for (folder, rooms) in [
        ("core", CORE),
        ("backend-cuda", BACKEND),
        ("backend-vulkan", &without_graph),
    ] {
        let listed: BTreeSet<String> = rooms.iter().map(|&room| room.to_owned()).collect();
        assert_eq!(found(folder), listed, "the rooms of {folder}");
        for count in 1..=rooms.len() {
            cut(&workspace, folder, &rooms[..count]);
        }
    }
    write(&workspace.join("Cargo.toml"), &manifest_of_workspace());
    fs::copy(root.join("Cargo.lock"), workspace.join("Cargo.lock")).expect("the lock file");
    let output = Command::new(env!("CARGO"))
        .args([
            "check",
            "--offline",
            "--quiet",
            "--workspace",
            "--keep-going",
        ])
        .current_dir(&workspace)
        .arg("--target-dir")
        .arg(workspace.join("target"))
        .output()
        .expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

fn repository() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.nth(2).expect("a folder")
}

fn write(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    fs::write(file, text).expect("a file is written");
}

/// Lists the rooms of a crate: the folders and files of `src`.
///
/// Files of re-exports and core's last room are left out.
fn found(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(repository().join(folder).join("src")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").path());
    let names = names.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let is_room = |name: &String| !["lib", "backend", "host"].contains(&name.as_str());
    names.filter(is_room).collect()
}

/// Writes a package that has only `rooms` of the crate in `folder`.
fn cut(workspace: &Path, folder: &str, rooms: &[&str]) {
    let source = repository().join(folder);
    let mut lib = String::from("#![allow(warnings)]\n");
    for room in rooms {
        let in_folder = source.join("src").join(room).join("mod.rs");
        let path = if in_folder.exists() {
            in_folder
        } else {
            source.join("src").join(room).with_extension("rs")
        };
        writeln!(lib, "#[path = {path:?}]\nmod {room};").expect("a string");
    }
    let last = rooms.last().expect("a room");
    let package = workspace.join("cut").join(format!("{folder}-{last}"));
    write(&package.join("src/lib.rs"), &lib);
    let own = fs::read_to_string(source.join("Cargo.toml")).expect("a manifest");
    let (own, _) = own.split_once("[dev-dependencies]").expect("a section");
    // The compiler's messages have this name.
    let named = own.replacen(
        "name = \"syncline-",
        &format!("name = \"cut-after-{last}-"),
        1,
    );
    assert_ne!(named, own, "the name in the manifest of {folder}");
    write(&package.join("Cargo.toml"), &named);
}

/// The manifest of the repository's workspace, with the cut packages as its only members.
fn manifest_of_workspace() -> String {
    let root = repository();
    let own = fs::read_to_string(root.join("Cargo.toml")).expect("a manifest");
    let members = own.find("members").expect("members");
    let rest = own.find("[workspace.package]").expect("the package");
    let rest = own[rest..].replace("path = \"", &format!("path = \"{}/", root.display()));
    format!("{}members = [\"cut/*\"]\n{rest}", &own[..members])
}
