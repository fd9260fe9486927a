//! `syncline completions`.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::process::Command;

use rstest::rstest;

use super::usage::{ends_with, scratch};

#[rstest]
#[case::bash("bash")]
#[case::elvish("elvish")]
#[case::fish("fish")]
#[case::powershell("powershell")]
#[case::zsh("zsh")]
fn each_shell_gets_every_subcommand(#[case] shell: &str) {
    let (script, _) = ends_with(0, &["completions", shell]);
    for word in [
        "syncline",
        "conformance",
        "doctor",
        "completions",
        "no-sync",
    ] {
        assert!(script.contains(word), "no {word:?} in: {script}");
    }
}

#[test]
fn an_unknown_shell_is_answered_with_the_list() {
    let (_, error) = ends_with(2, &["completions", "nosuch"]);
    assert!(error.contains("bash") && error.contains("zsh"), "{error}");
}

#[test]
fn bash_completes_a_subcommand() {
    let file = scratch("completions.bash");
    let (script, _) = ends_with(0, &["completions", "bash"]);
    fs::write(&file, script).expect("a file");
    let asked = "source \"$0\"; COMP_WORDS=(syncline doc); COMP_CWORD=1
        _syncline syncline doc syncline; echo \"${COMPREPLY[@]}\"";
    let Ok(output) = Command::new("bash")
        .arg("-c")
        .arg(asked)
        .arg(&file)
        .output()
    else {
        eprintln!("skipped: no bash");
        return;
    };
    let answer = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        answer.trim(),
        "doctor",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
