//! The page that compares APIs names calls of this library. The sources must declare each of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::faq::sources;

/// How the names of CUDA, Vulkan, EGL and Linux begin.
const OTHERS: [&str; 7] = ["cu", "CU", "vk", "Vk", "VK_", "EGL_", "DRM_"];

/// The identifiers of a text, in order.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.starts_with(char::is_alphabetic))
}

/// What the sources declare, of any visibility: functions, types, modules, fields and variants.
fn declared(sources: &str) -> BTreeSet<&str> {
    const KEYWORDS: [&str; 7] = ["fn", "struct", "enum", "trait", "mod", "type", "const"];
    let mut all = BTreeSet::new();
    let mut is_in_use = false;
    for line in sources.lines() {
        let words: Vec<_> = identifiers(line).collect();
        let declares = |pair: &&[&str]| KEYWORDS.contains(&pair[0]);
        all.extend(words.windows(2).filter(declares).map(|pair| pair[1]));
        // What a macro declares is exported by name.
        is_in_use |= line.starts_with("pub use ");
        all.extend(words.iter().filter(|_| is_in_use));
        is_in_use &= !line.ends_with(';');
        let is_field = line.starts_with("pub ") && line.contains(": ");
        all.extend(words.get(1).filter(|_| is_field));
        // A variant is alone in its line, or has fields.
        let is_item = line.ends_with([',', '{', '(']);
        let is_variant = is_item && line.starts_with(|c: char| c.is_ascii_uppercase());
        all.extend(words.first().filter(|_| is_variant));
    }
    all
}

/// The names in a piece of code that something declares: no variables, and no other APIs.
fn names(code: &str) -> impl Iterator<Item = &str> {
    identifiers(code).filter(move |name| {
        let at = name.as_ptr().addr() - code.as_ptr().addr();
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let is_variable = before.is_empty() || before.ends_with(['(', '&', ' ']);
        let is_declared = after.starts_with(['(', ':']) || (after.is_empty() && before.is_empty());
        let is_other = OTHERS.iter().any(|other| name.starts_with(other));
        !is_other && (is_declared || !is_variable)
    })
}

/// The code in the last column of each table of a page, with its line.
fn last_column(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let rows = (1..).zip(page.lines());
    let rows = rows.filter_map(|(line, row)| Some((line, row.strip_suffix(" |")?)));
    rows.flat_map(|(line, row)| {
        let cell = row.rsplit(" | ").next().unwrap_or_default();
        let code = cell.split('`').skip(1).step_by(2);
        code.map(move |code| (line, code))
    })
}

#[test]
fn the_calls_that_are_compared_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("docs/compared.md")).unwrap();
    let sources = sources();
    let declared = declared(&sources);
    let mut missing = Vec::new();
    let mut count = 0;
    for (line, code) in last_column(&page) {
        if code.starts_with("syncline ") || code.ends_with(".h") {
            continue;
        }
        for name in names(code) {
            count += 1;
            if !declared.contains(name) {
                missing.push(format!("line {line}: `{code}`: {name}"));
            }
        }
    }
    assert!(count > 250, "only {count} names");
    assert_eq!(missing, Vec::<String>::new());
}
