//! Checks the order of the rooms: the folders of `core/src` and of the backends' `src`.
//!
//! A room imports only from rooms before it. So each crate compiles cut off after any of its rooms.
//! Importing is not the only way to depend on a later room: a method can be defined there. Hence
//! the compiler checks the order, without unit tests.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{checked, repository, types, write};

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

/// The crates, and their rooms.
fn crates() -> [(&'static str, Vec<&'static str>); 3] {
    let is_of_vulkan = |room: &&str| *room != "graph";
    [
        ("core", CORE.to_vec()),
        ("backend-cuda", BACKEND.to_vec()),
        (
            "backend-vulkan",
            BACKEND.iter().copied().filter(is_of_vulkan).collect(),
        ),
    ]
}

#[test]
fn each_crate_compiles_cut_off_after_each_room() {
    let mut cut = 0;
    for (folder, rooms) in crates() {
        let listed: BTreeSet<String> = rooms.iter().map(|&room| room.to_owned()).collect();
        assert_eq!(found(folder), listed, "the rooms of {folder}");
        cut += rooms.len();
    }
    let errors = checked().errors.iter().filter(|error| !types::has(error));
    let errors: String = errors.map(|error| error.rendered.as_str()).collect();
    assert!(errors.is_empty(), "{errors}");
    let is_cut = |target: &&PathBuf| target.to_string_lossy().contains("/packages/cut-");
    let compiled = checked().compiled.iter().filter(is_cut).count();
    let printed = &checked().printed;
    assert_eq!(compiled, cut, "crates that compile: {printed}");
}

/// Writes each crate cut off after each of its rooms as a package of its own into `packages`.
///
/// Returns their folders.
pub(crate) fn write_packages(packages: &Path) -> Vec<String> {
    let mut folders = Vec::new();
    for (folder, rooms) in crates() {
        for count in 1..=rooms.len() {
            folders.push(cut(packages, folder, &rooms[..count]));
        }
    }
    folders
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

/// Writes a package that has only `rooms` of the crate in `folder`. Returns its folder.
fn cut(packages: &Path, folder: &str, rooms: &[&str]) -> String {
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
    let name = format!("cut-{folder}-{last}");
    let package = packages.join(&name);
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
    name
}
