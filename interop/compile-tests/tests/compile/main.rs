//! Tests that run the compiler.
//!
//! `rooms` and `types` write packages into one workspace. One run of `cargo check` compiles them
//! all, so their dependencies are compiled once. Each test looks at the messages of its packages.
//! The workspace is in the build folder, so only one process may run these tests at a time.
#![allow(clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod fields;
mod rooms;
mod types;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

/// An error of the compiler.
struct Diagnostic {
    /// The source file of the package's target.
    target: PathBuf,
    /// Where the error is, if it has a place.
    place: Option<(PathBuf, u64)>,
    /// The message, and what the compiler writes below the line.
    text: String,
    /// All that the compiler prints.
    rendered: String,
}

/// What one `cargo check` of all packages has found.
struct Checked {
    errors: Vec<Diagnostic>,
    /// The source files of the targets that compile.
    compiled: Vec<PathBuf>,
    /// What cargo has printed.
    printed: String,
}

fn checked() -> &'static Checked {
    static CHECKED: OnceLock<Checked> = OnceLock::new();
    CHECKED.get_or_init(check)
}

fn check() -> Checked {
    let root = repository();
    let workspace = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("packages");
    let mut members = rooms::write_packages(&workspace);
    members.push(types::write_package(&workspace));
    write(
        &workspace.join("Cargo.toml"),
        &manifest_of_workspace(&members),
    );
    fs::copy(root.join("Cargo.lock"), workspace.join("Cargo.lock")).expect("the lock file");
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--workspace", "--keep-going"])
        .args(["--message-format", "json", "--target-dir"])
        .arg(workspace.join("target"))
        .current_dir(&workspace)
        // The first check takes 30 s so, and 45 s as an incremental build.
        .env("CARGO_INCREMENTAL", "0")
        // `.ci/run` lints by it, and a crate that is cut off has unused items.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .output()
        .expect("cargo starts");
    let messages: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let is_about = |message: &Value, reason: &str| message["reason"] == reason;
    Checked {
        errors: messages.iter().filter_map(diagnostic).collect(),
        compiled: messages
            .iter()
            .filter(|message| is_about(message, "compiler-artifact"))
            .map(target)
            .collect(),
        printed: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The source file of the target that a message of cargo is about.
fn target(message: &Value) -> PathBuf {
    text(&message["target"]["src_path"]).into()
}

/// The error that a message of cargo reports.
fn diagnostic(message: &Value) -> Option<Diagnostic> {
    let reported = &message["message"];
    let spans = reported["spans"].as_array()?;
    let span = spans.iter().find(|span| span["is_primary"] == true);
    let said = text(&reported["message"]);
    // The compiler's last message counts the others.
    let is_error = reported["level"] == "error" && !said.starts_with("aborting due to");
    is_error.then(|| Diagnostic {
        target: target(message),
        place: span.and_then(|span| {
            Some((
                text(&span["file_name"]).into(),
                span["line_start"].as_u64()?,
            ))
        }),
        text: format!("{said}: {}", span.map_or("", |span| text(&span["label"]))),
        rendered: text(&reported["rendered"]).to_owned(),
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn repository() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.nth(2).expect("a folder")
}

/// Writes a file, unless it has this text: cargo checks a package again if its files are written.
fn write(file: &Path, text: &str) {
    if fs::read_to_string(file).is_ok_and(|old| old == text) {
        return;
    }
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    fs::write(file, text).expect("a file is written");
}

/// The manifest of the repository's workspace with these members.
///
/// An earlier run may have left other folders. They are no members.
fn manifest_of_workspace(members: &[String]) -> String {
    let root = repository();
    let own = fs::read_to_string(root.join("Cargo.toml")).expect("a manifest");
    let before = own.find("members").expect("members");
    let rest = own.find("[workspace.package]").expect("the package");
    let rest = own[rest..].replace("path = \"", &format!("path = \"{}/", root.display()));
    format!("{}members = {members:?}\n{rest}", &own[..before])
}
