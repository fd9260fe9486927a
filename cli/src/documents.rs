//! The command lines of the documents: each is one that this command or cargo takes.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser as _;
use clap::error::ErrorKind;
use serde_json::Value;

use super::Cli;

/// Starts of command lines whose further arguments are those of `syncline`.
const STARTS: [&[&str]; 3] = [
    &["syncline"],
    &["cargo", "run", "--release", "--"],
    &["cargo", "run", "--"],
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
}

/// The documents of the root, and those in `docs/`, `results/` and `software/`.
fn documents() -> Vec<PathBuf> {
    let folders = ["", "docs", "results", "software"].map(|name| root().join(name));
    let entries = folders.iter().flat_map(|folder| {
        let entries = fs::read_dir(folder).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path())
    });
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    entries.filter(is_page).collect()
}

/// The command lines of a document: each line of a block for a shell, and each span of code.
fn command_lines(page: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    let mut block = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            (None, Some("sh")) => found.push(line.split(" #").next().unwrap_or_default()),
            (None, Some(_)) => {}
            (None, None) => found.extend(line.split('`').skip(1).step_by(2)),
        }
    }
    found.into_iter().map(words).collect()
}

/// The words of a command line, without variables, redirections and what runs another command.
fn words(line: &str) -> Vec<&str> {
    let is_before = |word: &&str| word.contains('=') || *word == "xvfb-run";
    let words = line.split_whitespace().skip_while(is_before);
    words.take_while(|word| *word != ">").collect()
}

/// Why `syncline` does not take these arguments.
fn refusal<'a>(arguments: &[&'a str]) -> Option<String> {
    // Placeholders for which not every word will do.
    let given = |word: &&'a str| match *word {
        "SHELL" => "bash",
        "SUBCOMMAND" => "info",
        other => other,
    };
    let mut arguments: Vec<_> = arguments.iter().map(given).collect();
    if let [first @ "--software", second, ..] = &mut arguments[..] {
        std::mem::swap(first, second);
    }
    let error = Cli::try_parse_from([&["syncline"], &*arguments].concat()).err()?;
    // A sentence may name a command without its arguments.
    let is_short = error.kind() == ErrorKind::MissingRequiredArgument;
    (error.use_stderr() && !is_short).then(|| error.to_string())
}

/// The targets of the workspace, as `package/kind/name`, with `package` alone for each package.
fn targets() -> Vec<String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let output = command.current_dir(root()).output().expect("cargo");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    let mut all = Vec::new();
    for package in metadata["packages"].as_array().expect("a list") {
        let name = text(&package["name"]);
        for target in package["targets"].as_array().expect("a list") {
            let kind = text(&target["kind"][0]);
            all.push(format!("{name}/{kind}/{}", text(&target["name"])));
        }
        all.push(name);
    }
    all
}

/// The packages and targets of a command line of cargo that do not exist.
fn unknown_targets(line: &[&str], targets: &[String]) -> Vec<String> {
    let argument = |option: &str| {
        let at = line.iter().position(|word| *word == option)?;
        line.get(at + 1).copied()
    };
    let package = argument("-p").unwrap_or_default();
    let kinds = [
        ("--example", "example"),
        ("--bin", "bin"),
        ("--test", "test"),
    ];
    let named = kinds.iter().filter_map(|(option, kind)| {
        let name = argument(option)?;
        Some(format!("{package}/{kind}/{name}"))
    });
    let all = named.chain([package.to_owned()]);
    all.filter(|target| !targets.contains(target)).collect()
}

#[test]
fn every_command_line_of_a_document_is_taken() {
    let targets = targets();
    let (mut own, mut of_cargo, mut refused) = (0, 0, Vec::new());
    for path in documents() {
        let page = fs::read_to_string(&path).expect("UTF-8");
        for line in command_lines(&page) {
            let said = format!("{}: {}", path.display(), line.join(" "));
            let arguments = STARTS.iter().find_map(|start| line.strip_prefix(*start));
            if let Some(arguments) = arguments {
                refused.extend(refusal(arguments).map(|why| format!("{said}: {why}")));
                own += 1;
            }
            if line.first() == Some(&"cargo") && line.contains(&"-p") {
                let unknown = unknown_targets(&line, &targets).into_iter();
                refused.extend(unknown.map(|target| format!("{said}: no {target}")));
                of_cargo += 1;
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(own > 40 && of_cargo > 10, "{own} and {of_cargo}");
}

#[test]
fn a_command_line_that_is_wrong_is_refused() {
    assert!(refusal(&["doctor", "--nosuch"]).is_some());
    assert!(refusal(&["--software", "run", "program", "--nosuch"]).is_none());
    let page = "`syncline nosuch`\n```sh\nA=1 xvfb-run cargo run -- nosuch # why\n```\n";
    let lines = command_lines(page);
    assert_eq!(
        lines,
        [
            vec!["syncline", "nosuch"],
            vec!["cargo", "run", "--", "nosuch"]
        ]
    );
}
