//! The FAQ quotes the texts of errors. Each must be one that the sources print.

use std::fs;
use std::path::Path;

use super::files;

/// The library's sources without comments, one file after the other.
pub(super) fn sources() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates = ["core", "backend-cuda", "backend-vulkan", "interop"];
    let mut all = String::new();
    for path in crates
        .iter()
        .flat_map(|name| files(&root.join(name).join("src"), "rs"))
    {
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|line| !line.trim().starts_with("//"));
        all.extend(lines.flat_map(|line| [line.trim(), "\n"]));
    }
    // A literal may go on in the next line.
    all.replace(" \\\n", " ")
}

/// The parts of a quoted text that are the same in each error.
fn fixed<'q>(words: &'q [&'q str]) -> impl Iterator<Item = &'q [&'q str]> {
    let changes = |word: &&str| *word == "…" || word.chars().all(|c| c.is_ascii_uppercase());
    words.split(changes).filter(|part| !part.is_empty())
}

/// True if the sources have these words. The last may be an argument, and the first may be one or
/// stand before one that begins with the second.
fn has(sources: &str, words: &[&str]) -> bool {
    let has = |text: &str| sources.contains(text);
    let starts = words.split_last().map(|(_, starts)| starts.join(" "));
    let ends = words.split_first().map(|(_, ends)| ends.join(" "));
    has(&words.join(" "))
        || starts.is_some_and(|starts| !starts.is_empty() && has(&format!("{starts} {{")))
        || ends.is_some_and(|ends| {
            !ends.is_empty()
                && ["} ", "\""]
                    .iter()
                    .any(|before| has(&format!("{before}{ends}")))
        })
}

#[test]
fn the_faq_quotes_texts_of_errors() {
    let page = include_str!("../../../../docs/faq.md");
    let (_, table) = page.split_once("## What does this error mean?").unwrap();
    let (table, _) = table.split_once("## ").unwrap();
    let quoted: Vec<_> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(quoted, _)| quoted)
        .collect();
    assert!(quoted.len() > 10, "{quoted:?}");
    let sources = sources();
    for quoted in quoted {
        let words = quoted.split(' ').map(|word| word.trim_end_matches(':'));
        let words: Vec<_> = words.collect();
        assert!(fixed(&words).count() > 0, "{quoted}");
        for part in fixed(&words) {
            assert!(has(&sources, part), "no error says {part:?}: {quoted}");
        }
    }
}
