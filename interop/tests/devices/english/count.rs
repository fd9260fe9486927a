//! Finds what breaks the countable rules of English in one file.

use super::comments::{self, Comment, Kind};

/// Widest line that holds a comment, in columns.
const COMMENT_COLUMNS: usize = 100;
/// Widest line of a Markdown document, in columns.
const MARKDOWN_COLUMNS: usize = 110;
/// Longest first sentence of a doc comment, in characters. A longer one needs a second line.
const FIRST_SENTENCE: usize = 100;

/// Words for persons.
const PERSONS: [&str; 14] = [
    "who",
    "whoever",
    "whom",
    "somebody",
    "someone",
    "anybody",
    "nobody",
    "everybody",
    "he",
    "him",
    "his",
    "she",
    "her",
    "hers",
];

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// Number of the line, from 1.
    pub(super) line: usize,
    /// The word, or the width with its limit.
    pub(super) what: String,
}

/// Lists the violations in the comments of a Rust or PTX file, in the order of its lines.
pub(super) fn source(source: &str) -> Vec<Violation> {
    let comments = comments::of(source);
    let mut found = Vec::new();
    let mut prose = Prose::default();
    for (index, comment) in comments.iter().enumerate() {
        let begins = index == 0 || !comment.continues(&comments[index - 1]);
        if begins {
            prose = Prose::default();
        }
        let Some(words) = prose.line(comment.text) else {
            continue;
        };
        persons(&words, comment.line, &mut found);
        if comment.end > COMMENT_COLUMNS && breakable(comment.text.trim()) {
            found.push(Violation {
                line: comment.line,
                what: format!(
                    "a comment ends at column {}, after {COMMENT_COLUMNS}",
                    comment.end
                ),
            });
        }
        if begins && comment.kind != Kind::Plain {
            let length = first_sentence(&comments[index..]);
            if length > FIRST_SENTENCE && breakable(comment.text.trim()) {
                found.push(Violation {
                    line: comment.line,
                    what: format!(
                        "the first sentence of a doc comment has {length} characters, \
                         more than {FIRST_SENTENCE}"
                    ),
                });
            }
        }
    }
    found
}

/// Counts the characters of the sentence that begins a doc comment.
///
/// A list or the end of the paragraph ends it, too.
fn first_sentence(comments: &[Comment<'_>]) -> usize {
    let mut sentence = String::new();
    for (index, comment) in comments.iter().enumerate() {
        let continues = index == 0 || comment.continues(&comments[index - 1]);
        let text = without_targets(comment.text.trim());
        if !continues || text.is_empty() || index > 0 && begins_block(&text) {
            break;
        }
        for word in text.split_whitespace() {
            if !sentence.is_empty() {
                sentence.push(' ');
            }
            sentence.push_str(word);
            if word
                .trim_end_matches([')', '"', '*', '_'])
                .ends_with(['.', '!', '?'])
            {
                return sentence.chars().count();
            }
        }
        if sentence.ends_with(':') {
            break;
        }
    }
    sentence.chars().count()
}

/// Lists the violations in a Markdown document, in the order of its lines.
pub(super) fn markdown(document: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut prose = Prose::default();
    for (number, line) in (1..).zip(document.lines()) {
        let Some(words) = prose.line(line) else {
            continue;
        };
        persons(&words, number, &mut found);
        let width = without_targets(line).chars().count();
        if width > MARKDOWN_COLUMNS && breakable(line.trim()) {
            found.push(Violation {
                line: number,
                what: format!("the line has {width} columns, more than {MARKDOWN_COLUMNS}"),
            });
        }
    }
    found
}

/// Whether a line is no part of a paragraph that begins before it.
fn begins_block(text: &str) -> bool {
    ["- ", "* ", "| ", "1. ", "# ", "```"]
        .iter()
        .any(|mark| text.starts_with(mark))
}

/// Whether a line can be wrapped: table rows and single words cannot.
fn breakable(text: &str) -> bool {
    !text.starts_with('|') && text.contains(char::is_whitespace)
}

/// Adds each word for a person in `words` to `found`.
fn persons(words: &str, line: usize, found: &mut Vec<Violation>) {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    for word in words.split(|c| !is_part(c)) {
        let lower = word.to_lowercase();
        if PERSONS.contains(&lower.as_str()) {
            found.push(Violation {
                line,
                what: format!("\"{word}\""),
            });
        }
    }
}

/// Removes the targets of links: `[text](target)` becomes `[text]()`.
fn without_targets(line: &str) -> String {
    let mut left = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        left.push_str(before);
        left.push_str("](");
        let end = after.find(')').unwrap_or(after.len());
        rest = &after[end..];
    }
    left.push_str(rest);
    left
}

/// Separates prose from code, line by line. Code spans may continue on the next line.
#[derive(Default)]
struct Prose {
    /// The fence that ends the code block which the last line was in.
    fence: Option<String>,
    /// Number of backticks that end the code span which is open.
    span: usize,
}

impl Prose {
    /// Returns the prose of the next line, or `None` if the line belongs to a code block.
    fn line(&mut self, line: &str) -> Option<String> {
        let text = line.trim();
        let mark: String = match text.chars().next() {
            Some(first @ ('`' | '~')) => text.chars().take_while(|c| *c == first).collect(),
            _ => String::new(),
        };
        if let Some(fence) = &self.fence {
            if mark.starts_with(fence.as_str()) && mark == text {
                self.fence = None;
            }
            return None;
        }
        if mark.len() >= 3 && !text[mark.len()..].contains('`') {
            self.fence = Some(mark);
            self.span = 0;
            return None;
        }
        if text.is_empty() {
            self.span = 0;
        }
        Some(self.without_spans(&without_targets(line)))
    }

    fn without_spans(&mut self, line: &str) -> String {
        let mut left = String::new();
        let mut chars = line.chars().peekable();
        while let Some(next) = chars.next() {
            if next != '`' {
                if self.span == 0 {
                    left.push(next);
                }
                continue;
            }
            let mut ticks = 1;
            while chars.next_if_eq(&'`').is_some() {
                ticks += 1;
            }
            if self.span == 0 {
                self.span = ticks;
            } else if self.span == ticks {
                self.span = 0;
            }
            left.push(' ');
        }
        left
    }
}
