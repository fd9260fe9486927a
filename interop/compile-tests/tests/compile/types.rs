//! What the types forbid. Each file in `types/missing/` lacks a right, and the compiler names it.
//!
//! Each file in `types/recorders/` moves a recorder out of its submission. With each file in
//! `types/authors/`, safe code would let a driver use freed memory, or make a counter fall.
//!
//! A line that must not compile ends with `//~ ` and a part of what the compiler says about it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Diagnostic, checked, write};

#[path = "types/granted.rs"]
mod granted;

const MARK: &str = "//~ ";

#[test]
fn a_right_that_is_missing_does_not_compile() {
    let mut wrong = String::new();
    for file in files() {
        let is_here = |error: &&Diagnostic| error.target == file;
        let errors: Vec<_> = checked().errors.iter().filter(is_here).collect();
        let source = fs::read_to_string(&file).expect("a file");
        let marks: Vec<(u64, &str)> = (1..)
            .zip(source.lines())
            .filter_map(|(number, line)| Some((number, line.split_once(MARK)?.1)))
            .collect();
        assert!(!marks.is_empty(), "{} expects no error", file.display());
        let is_at = |error: &Diagnostic, &(line, part): &(u64, &str)| {
            error.place == Some((file.clone(), line)) && error.text.contains(part)
        };
        for mark in &marks {
            if !errors.iter().any(|error| is_at(error, mark)) {
                let _ = writeln!(wrong, "{}: no error at {mark:?}", file.display());
            }
        }
        for error in errors {
            if !marks.iter().any(|mark| is_at(error, mark)) {
                let _ = writeln!(wrong, "not expected: {}\n{}", error.text, error.rendered);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// True if the error is in one of the programs that must not compile.
pub(crate) fn has(error: &Diagnostic) -> bool {
    error.target.starts_with(folder())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile/types")
}

/// The programs that must not compile.
fn files() -> Vec<PathBuf> {
    let in_folder = |name| {
        let entries = fs::read_dir(folder().join(name)).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path())
    };
    ["missing", "recorders", "authors"]
        .into_iter()
        .flat_map(in_folder)
        .collect()
}

/// Writes a package with these programs into `packages`. Returns its folder.
pub(crate) fn write_package(packages: &Path) -> String {
    let mut manifest = String::from(
        "[package]\nname = \"types\"\nedition.workspace = true\nautobins = false\n\n\
         [dependencies]\nsyncline-core.workspace = true\nsyncline = { workspace = true, features = [\"cuda\", \"vulkan\"] }\n",
    );
    for file in files() {
        let name = file.file_stem().expect("a name");
        write!(manifest, "\n[[bin]]\nname = {name:?}\npath = {file:?}\n").expect("a string");
    }
    write(&packages.join("types/Cargo.toml"), &manifest);
    "types".to_owned()
}
