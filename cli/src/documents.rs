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

/// All documents of the repository.
fn documents() -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![root().to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && (name == ".github" || !name.starts_with('.')) && name != "target" {
                folders.push(path);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found
}

/// A command line of a document.
struct CommandLine<'p> {
    words: Vec<&'p str>,
    /// True in a block for a shell. A span in a sentence may lack arguments.
    is_whole: bool,
}

impl<'p> CommandLine<'p> {
    /// Leaves out variables, redirections and what runs another command.
    fn new(line: &'p str, is_whole: bool) -> Self {
        let is_before = |word: &&str| word.contains('=') || *word == "xvfb-run";
        let words = line.split_whitespace().skip_while(is_before);
        Self {
            words: words.take_while(|word| *word != ">").collect(),
            is_whole,
        }
    }

    /// Why `syncline` does not take the arguments behind the first `skipped` words.
    fn refusal(&self, skipped: usize) -> Option<String> {
        // Placeholders for which not every word will do.
        let given = |&word| match word {
            "SHELL" => "bash",
            "SUBCOMMAND" => "info",
            other => other,
        };
        let arguments = self.words[skipped..].iter().map(given);
        let all = ["syncline"].into_iter().chain(arguments);
        let error = Cli::try_parse_from(all).err()?;
        let is_short = error.kind() == ErrorKind::MissingRequiredArgument && !self.is_whole;
        (error.use_stderr() && !is_short).then(|| error.to_string())
    }
}

/// The command lines of a document: each line of a block for a shell, and each span of code.
fn command_lines(page: &str) -> Vec<CommandLine<'_>> {
    let mut found = Vec::new();
    let mut block = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            (None, Some("sh")) => {
                let command = line.split(" #").next().unwrap_or_default();
                found.push(CommandLine::new(command, true));
            }
            (None, Some(_)) => {}
            (None, None) => {
                let spans = line.split('`').skip(1).step_by(2);
                found.extend(spans.map(|span| CommandLine::new(span, false)));
            }
        }
    }
    found
}

/// The targets of the workspace, as `package/kind/name`, with `package` alone for each package.
fn targets() -> Vec<String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let output = command.current_dir(root()).output().expect("cargo");
    assert!(output.status.success(), "{output:?}");
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
            let words = &line.words;
            let said = format!("{}: {}", path.display(), words.join(" "));
            if let Some(start) = STARTS.iter().find(|start| words.starts_with(start)) {
                let refusal = line.refusal(start.len());
                refused.extend(refusal.map(|why| format!("{said}: {why}")));
                own += 1;
            }
            if words.first() == Some(&"cargo") && words.contains(&"-p") {
                let unknown = unknown_targets(words, &targets).into_iter();
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
    let page = "`syncline doctor --nosuch` `syncline bench tables`\n```sh\n\
                A=1 xvfb-run cargo run -- nosuch # why\nsyncline bench tables > new\n\
                syncline --software demo --frames 20\nsyncline --software run program --nosuch\n```\n";
    let is_taken = |line: &CommandLine<'_>| {
        let start = STARTS.iter().find(|start| line.words.starts_with(start));
        line.refusal(start.expect("a start").len()).is_none()
    };
    let taken: Vec<_> = command_lines(page).iter().map(is_taken).collect();
    assert_eq!(taken, [false, true, false, false, true, true]);
}
