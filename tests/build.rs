//! Notes the commit that is being built, for reports.

use std::fs;
use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Returns what cargo has noted in a package. A package has no repository of its own.
fn packaged() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, commit) = text.split_once("\"sha1\": \"")?;
    let (commit, rest) = commit.split_once('"')?;
    let dirty = if rest.contains("\"dirty\": true") {
        "-dirty"
    } else {
        ""
    };
    Some(format!("{commit}{dirty}"))
}

fn main() {
    if let Some(commit) = packaged() {
        println!("cargo:rustc-env=SYNCLINE_COMMIT={commit}");
        println!("cargo:rerun-if-changed=.cargo_vcs_info.json");
        return;
    }
    let commit = git(&["rev-parse", "HEAD"]).unwrap_or_else(|| "unknown".into());
    // Recorded results are no change of the code that made them. Without the option git may write
    // the index, on which this script depends: every build would compile this crate once more.
    let changed = git(&[
        "--no-optional-locks",
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ":!/results",
        ":(top)",
    ]);
    let dirty = if changed.is_some_and(|changes| !changes.is_empty()) {
        "-dirty"
    } else {
        ""
    };
    println!("cargo:rustc-env=SYNCLINE_COMMIT={commit}{dirty}");
    // The index changes with every commit, and with most things that make the tree dirty.
    for path in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", path]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}
