//! Finds the comments of a source file. PTX marks them as Rust does.

/// What a comment documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `///` or `/** … */`: the item that follows.
    Outer,
    /// `//!` or `/*! … */`: the item that encloses it.
    Inner,
    /// Nothing.
    Plain,
}

/// The part of a comment that stands on one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Comment<'a> {
    pub(super) kind: Kind,
    /// Number of the line, from 1.
    pub(super) line: usize,
    /// The column at which the comment ends.
    pub(super) end: usize,
    /// The text without the marks of the comment.
    pub(super) text: &'a str,
}

impl Comment<'_> {
    /// Whether this is the next line of the same comment, or of another one of its kind.
    pub(super) fn continues(&self, before: &Self) -> bool {
        self.kind == before.kind && self.line == before.line + 1
    }
}

/// Lists the comments of `source`, in order. Strings and characters are code.
pub(super) fn of(source: &str) -> Vec<Comment<'_>> {
    let bytes = source.as_bytes();
    let mut found = Lines {
        source,
        line: 1,
        counted: 0,
        comments: Vec::new(),
    };
    let mut at = 0;
    while at < bytes.len() {
        let rest = &source[at..];
        at = if rest.starts_with("//") {
            let end = at + rest.find('\n').unwrap_or(rest.len());
            found.add(at, end);
            end
        } else if rest.starts_with("/*") {
            let end = at + block(rest);
            found.add(at, end);
            end
        } else if bytes[at] == b'"' {
            at + string(rest)
        } else if bytes[at] == b'r' && !continues_name(bytes, at) {
            at + raw(rest).unwrap_or(1)
        } else if bytes[at] == b'\'' {
            at + character(rest)
        } else {
            at + rest.chars().next().map_or(1, char::len_utf8)
        };
    }
    found.comments
}

/// Whether the byte at `at` belongs to a name that began before.
///
/// The prefixes `b` and `c` of strings are no such names.
fn continues_name(bytes: &[u8], at: usize) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let name = bytes[..at]
        .iter()
        .rev()
        .take_while(|byte| is_part(**byte))
        .count();
    !(name == 0 || name == 1 && matches!(bytes[at - 1], b'b' | b'c'))
}

/// Length of the block comment at the beginning of `text`. Block comments nest.
fn block(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while at < bytes.len() {
        match &bytes[at..(at + 2).min(bytes.len())] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// Length of the string at the beginning of `text`.
fn string(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    // An escape may stand before a character of several bytes.
    text.len()
}

/// Length of the raw string at the beginning of `text`, if there is one.
fn raw(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
    let body = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(1 + hashes + 1 + length)
}

/// Length of the character at the beginning of `text`, or of the quote of a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((escaped, c))) => {
            let from = escaped + c.len_utf8();
            text[from..].find('\'').map_or(1, |at| from + at + 1)
        }
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

struct Lines<'a> {
    source: &'a str,
    /// Number of the line that `counted` is on.
    line: usize,
    counted: usize,
    comments: Vec<Comment<'a>>,
}

impl Lines<'_> {
    /// Adds the comment from byte `begin` to byte `end`, line by line.
    fn add(&mut self, begin: usize, end: usize) {
        let whole = &self.source[begin..end];
        let (kind, mark) = kind(whole);
        let skipped = &self.source[self.counted..begin];
        self.line += skipped.matches('\n').count();
        self.counted = end;
        let mut from = begin;
        for (index, part) in whole.split('\n').enumerate() {
            if index > 0 {
                self.line += 1;
            }
            let start = self.source[..from].rfind('\n').map_or(0, |at| at + 1);
            let to = from + part.len();
            let text = if index == 0 { &part[mark..] } else { part };
            let text = if whole.starts_with("/*") {
                let text = text.trim_end().trim_end_matches("*/");
                text.trim_start().trim_start_matches("* ")
            } else {
                text
            };
            self.comments.push(Comment {
                kind,
                line: self.line,
                end: self.source[start..to].trim_end().chars().count(),
                text,
            });
            from = to + 1;
        }
    }
}

/// The kind of a comment, and the length of the mark that begins it.
fn kind(comment: &str) -> (Kind, usize) {
    let begins = |mark: &str| comment.starts_with(mark);
    if begins("//!") || begins("/*!") {
        (Kind::Inner, 3)
    } else if begins("///") && !begins("////")
        || begins("/**") && !begins("/***") && !begins("/**/")
    {
        (Kind::Outer, 3)
    } else {
        (Kind::Plain, 2)
    }
}
