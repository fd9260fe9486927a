//! Finds what breaks the rules of English in comments and documents.
//!
//! `docs/decisions/english-check.md` states the rules. `.ci/run` checks the repository. A plain
//! `cargo test` only tests the check.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod comments;
mod count;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use count::Violation;

/// The page that a recording makes. Its lines may be wider.
const RECORDED: &str = "docs/conformance.md";

/// Adds the `.rs`, `.ptx` and `.md` files under `folder`.
///
/// Skips build output, hidden folders, and what a recording has made.
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
    if path.ends_with(RECORDED) {
        return false;
    }
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ["rs", "ptx", "md"].contains(&ending))
}

#[test]
#[ignore = "`.ci/run` runs it"]
fn no_file_breaks_the_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut paths = Vec::new();
    files(root, &mut paths);
    for name in ["lib.rs", "clock.ptx", "contract.md"] {
        assert!(paths.iter().any(|path| path.ends_with(name)), "{name}");
    }
    assert!(paths.len() > 500, "only {} files", paths.len());
    let mut wrong = String::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let found = if path.extension().is_some_and(|ending| ending == "md") {
            count::markdown(&text)
        } else {
            count::source(&text)
        };
        let path = path.strip_prefix(root).unwrap().display();
        for violation in found {
            writeln!(wrong, "{path}:{}: {}", violation.line, violation.what).unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
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
