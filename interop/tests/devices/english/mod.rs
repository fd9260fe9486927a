//! Counts what breaks the rules of English in comments and documents.
//!
//! `docs/decisions/english-check.md` states the rules. The count of a file may only fall.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod comments;
mod count;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use count::Violation;

/// Set it to `write` to have the list of exceptions rewritten.
const REWRITE: &str = "SYNCLINE_ENGLISH";
/// The list of exceptions, from the root of the repository.
const LIST: &str = "interop/tests/devices/english/exceptions.txt";
const COMMAND: &str = "SYNCLINE_ENGLISH=write cargo test -p syncline --test devices english";
/// Largest number of violations of one file that a failure names.
const NAMED: usize = 40;

const HEAD: &str = "\
# How many violations of the English rules each file still has: `path: count`.
# docs/decisions/english-check.md states the rules. A count may fall, and must not rise.
# This command rewrites the list, after texts were improved and after a merge:
# SYNCLINE_ENGLISH=write cargo test -p syncline --test devices english
";

/// Adds the `.rs`, `.ptx` and `.md` files under `folder`.
///
/// Skips build output, recorded results and hidden folders.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "results" {
                files(&entry.path(), found);
            }
        } else if kind.is_file() && is_read(&entry.path()) {
            found.push(entry.path());
        }
    }
}

/// Whether the check reads the file.
fn is_read(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ["rs", "ptx", "md"].contains(&ending))
}

/// Returns the violations of each file that has some, by its path from `root`.
fn violations(root: &Path) -> BTreeMap<String, Vec<Violation>> {
    let mut paths = Vec::new();
    files(root, &mut paths);
    assert!(paths.len() > 500, "only {} files", paths.len());
    let counted = paths.iter().map(|path| {
        let text = fs::read_to_string(path).unwrap();
        let found = if path.extension().is_some_and(|ending| ending == "md") {
            count::markdown(&text)
        } else {
            count::source(&text)
        };
        let path = path.strip_prefix(root).unwrap();
        (path.to_string_lossy().into_owned(), found)
    });
    counted.filter(|(_, found)| !found.is_empty()).collect()
}

/// Reads a list of exceptions. Panics if a line is malformed or out of order.
fn exceptions(list: &str) -> BTreeMap<&str, usize> {
    let lines: Vec<_> = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let pair = line.rsplit_once(": ");
            let pair = pair.and_then(|(path, count)| Some((path, count.parse().ok()?)));
            pair.unwrap_or_else(|| panic!("{LIST} has the line {line:?}; rewrite it: {COMMAND}"))
        })
        .collect();
    assert!(
        lines.is_sorted_by(|one, next| one.0 < next.0),
        "{LIST} is not sorted by paths; rewrite it: {COMMAND}"
    );
    lines.into_iter().collect()
}

/// Compares the violations with the list of exceptions, and says what to do about each difference.
fn differences(
    violations: &BTreeMap<String, Vec<Violation>>,
    exceptions: &BTreeMap<&str, usize>,
) -> String {
    let mut text = String::new();
    for (path, found) in violations {
        let allowed = exceptions.get(path.as_str()).copied().unwrap_or(0);
        let count = found.len();
        if count > allowed {
            writeln!(
                text,
                "{path} has {count} violations, {allowed} are allowed:"
            )
            .unwrap();
            for violation in found.iter().take(NAMED) {
                writeln!(text, "  {path}:{}: {}", violation.line, violation.what).unwrap();
            }
            if count > NAMED {
                writeln!(text, "  and {} more", count - NAMED).unwrap();
            }
        }
    }
    let mut fewer = String::new();
    for (path, allowed) in exceptions {
        let count = violations.get(*path).map_or(0, Vec::len);
        if count < *allowed {
            writeln!(fewer, "  {path}: {count} instead of {allowed}").unwrap();
        }
    }
    if !fewer.is_empty() {
        writeln!(text, "files have fewer violations than {LIST} says:").unwrap();
        text.push_str(&fewer);
        writeln!(text, "this command lowers the list: {COMMAND}").unwrap();
    }
    text
}

/// Returns the text of the list of exceptions.
fn list(violations: &BTreeMap<String, Vec<Violation>>) -> String {
    let mut text = HEAD.to_owned();
    for (path, found) in violations {
        writeln!(text, "{path}: {}", found.len()).unwrap();
    }
    text
}

#[test]
fn no_file_breaks_more_rules_than_the_list_allows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut paths = Vec::new();
    files(root, &mut paths);
    for name in ["lib.rs", "clock.ptx", "contract.md"] {
        assert!(paths.iter().any(|path| path.ends_with(name)), "{name}");
    }
    let violations = violations(root);
    let path = root.join(LIST);
    if std::env::var(REWRITE).is_ok_and(|value| value == "write") {
        fs::write(&path, list(&violations)).unwrap();
        return;
    }
    let listed = fs::read_to_string(&path).unwrap();
    let differences = differences(&violations, &exceptions(&listed));
    assert!(differences.is_empty(), "\n{differences}");
}

fn what(found: &[Violation]) -> Vec<(usize, &str)> {
    let pairs = found.iter().map(|one| (one.line, one.what.as_str()));
    pairs.collect()
}

#[test]
fn words_for_persons_are_found_in_comments_and_in_prose() {
    let source = "\
//! Who reads this.
/// Nobody's.
fn f<'a>() {} // HIS code, and whoever's
/* her code /* who */
 * Somebody. */
fn g() {}
";
    let found = count::source(source);
    assert_eq!(
        what(&found),
        [
            (1, "\"Who\""),
            (2, "\"Nobody\""),
            (3, "\"HIS\""),
            (3, "\"whoever\""),
            (4, "\"her\""),
            (4, "\"who\""),
            (5, "\"Somebody\""),
        ]
    );
    let found = count::markdown("# Who\n\n| a | he |\n|---|---|\n\nThe *who* of [him](who.md).\n");
    assert_eq!(
        what(&found),
        [
            (1, "\"Who\""),
            (3, "\"he\""),
            (6, "\"who\""),
            (6, "\"him\"")
        ]
    );
}

#[test]
fn words_in_code_are_not_counted() {
    let source = r####"
fn who<'he>(her: &'he str) -> char {
    let text = "// who \" // he";
    let raw = br#"" // who"#;
    let mut who = ['"', '\'', '\u{2f}', '/']; // the who_else of `who`, `a
    // he` and thee
    let him = '"';
    /// ```
    /// let who = his;
    /// ```
    /// The chemist's ``who ` he``.
    who[0]
}
"####;
    assert_eq!(what(&count::source(source)), []);
    let document = "\
```rust
// who
```

~~~
``` who
~~~

The theme of `who
waits`.
";
    assert_eq!(what(&count::markdown(document)), []);
}

#[test]
fn the_comments_of_ptx_are_read() {
    let source = "\
.version 7.8
.target sm_90 // Who compiles it.
.visible .entry who(.param .u64 his)
{
    .reg .u64 %he<2>; /* The host,
    nobody else. */
    st.volatile.global.u64 [%he], %he1; // https://example.com
}
";
    assert_eq!(
        what(&count::source(source)),
        [(2, "\"Who\""), (6, "\"nobody\"")]
    );
    let wide = format!("ret; // {} x", "x".repeat(92));
    assert_eq!(
        what(&count::source(&wide)),
        [(1, "a comment ends at column 102, after 100")]
    );
    for (name, expected) in [("clock.ptx", true), ("clock.cu", false), ("ptx", false)] {
        assert_eq!(is_read(Path::new(name)), expected, "{name}");
    }
}

#[test]
fn wide_lines_are_found() {
    let wide = |columns: usize| "x".repeat(columns);
    let line = |before: &str, columns: usize| format!("{before} {}", wide(columns));
    let source = [
        line("// x", 96),
        line("// x", 95),
        line("    //", 110),
        line("//! |", 110),
        line("let text = \"// x", 110) + "\";",
        line("let x = 1; // x", 90),
        line("/// x", 96),
        "///".to_owned(),
        "/// ```".to_owned(),
        line("/// x", 110),
        "/// ```".to_owned(),
    ];
    assert_eq!(
        what(&count::source(&source.join("\n"))),
        [
            (1, "a comment ends at column 101, after 100"),
            (6, "a comment ends at column 106, after 100"),
            (7, "a comment ends at column 102, after 100"),
        ]
    );
    let document = [
        line("x", 109),
        line("x", 108),
        wide(200),
        line("| x |", 200),
        format!("a [link]({}) of a page", wide(200)),
        "```".to_owned(),
        line("x", 200),
        "```".to_owned(),
    ];
    assert_eq!(
        what(&count::markdown(&document.join("\n"))),
        [(1, "the line has 111 columns, more than 110")]
    );
}

#[test]
fn first_sentences_that_are_too_long_are_found() {
    let half = "x".repeat(45);
    let source = [
        format!("/// A {half}."),
        format!("/// {half}"),
        "fn f() {}".to_owned(),
        "//! A sentence".to_owned(),
        format!("//! {half} {half}."),
        String::new(),
        "/// A".to_owned(),
        "///".to_owned(),
        format!("/// {half} {half}"),
        format!("// A {half}"),
        format!("// {half}"),
    ];
    assert_eq!(
        what(&count::source(&source.join("\n"))),
        [(
            4,
            "the first sentence of a doc comment has 103 characters, more than 100"
        )]
    );
}

#[test]
fn the_list_is_compared_both_ways() {
    let violation = |line| Violation {
        line,
        what: "\"who\"".to_owned(),
    };
    let found = BTreeMap::from([
        ("a.rs".to_owned(), vec![violation(3), violation(5)]),
        ("b.rs".to_owned(), vec![violation(1)]),
    ]);
    let text = list(&found);
    assert_eq!(differences(&found, &exceptions(&text)), "");
    let more = differences(&found, &exceptions("a.rs: 1\nb.rs: 1\n"));
    assert!(
        more.contains("a.rs has 2 violations, 1 are allowed"),
        "{more}"
    );
    assert!(more.contains("a.rs:5: \"who\""), "{more}");
    assert!(!more.contains("b.rs"), "{more}");
    let fewer = differences(&found, &exceptions("a.rs: 2\nb.rs: 4\nc.rs: 1\n"));
    assert!(fewer.contains("b.rs: 1 instead of 4"), "{fewer}");
    assert!(fewer.contains("c.rs: 0 instead of 1"), "{fewer}");
    assert!(fewer.contains(COMMAND), "{fewer}");
}
