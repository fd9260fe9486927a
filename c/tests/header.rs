//! The header is what this crate says, and compiles as C11 and C++17 with all warnings.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// With the environment variable `SYNCLINE_C_WRITE` it writes the header.
#[test]
fn the_header_is_made_from_the_crate() {
    let root = Path::new(ROOT);
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let made = cbindgen::Builder::new()
        .with_crate(root)
        .with_config(config)
        .generate()
        .expect("cbindgen reads the crate");
    let mut text = Vec::new();
    made.write(&mut text);
    let text = String::from_utf8(text).unwrap();
    let path = root.join("include/syncline.h");
    if std::env::var_os("SYNCLINE_C_WRITE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        committed, text,
        "SYNCLINE_C_WRITE=1 cargo test -p syncline-c --test header"
    );
}

#[test]
fn the_header_compiles_without_a_warning() {
    for (compiler, language, standard) in [("cc", "c", "c11"), ("c++", "c++", "c++17")] {
        let output = Command::new(compiler)
            .args([
                "-x",
                language,
                &format!("-std={standard}"),
                "-pedantic",
                "-Wall",
                "-Wextra",
            ])
            .args(["-Werror", "-fsyntax-only", "include/syncline.h"])
            .current_dir(ROOT)
            .output()
            .expect("a compiler is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler}: {errors}");
    }
}
