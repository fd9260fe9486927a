//! Compares two records.

use std::collections::{BTreeMap, BTreeSet};

/// The part of a name before the first point.
fn family(name: &str) -> &str {
    name.split_once('.').map_or(name, |(family, _)| family)
}

/// The families of a record.
pub(crate) fn families(record: &str) -> BTreeSet<&str> {
    answers(record).into_keys().map(family).collect()
}

/// The lines that differ in these families, as one text for each.
pub(crate) fn differences(old: &str, new: &str, families: &BTreeSet<&str>) -> Vec<String> {
    let (old, new) = (answers(old), answers(new));
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    names
        .into_iter()
        .filter(|name| families.contains(family(name)))
        .filter_map(|name| {
            let answer = |of: &BTreeMap<&str, Vec<&str>>| {
                of.get(name)
                    .map_or("(no line)".into(), |answers| answers.join(" / "))
            };
            let (was, is) = (answer(&old), answer(&new));
            let varies = was.starts_with('~') || is.starts_with('~');
            (was != is && !varies).then(|| format!("{name}: {was} | {is}"))
        })
        .collect()
}

/// Differences that are known, each with its reason.
pub(crate) struct Known(Vec<(String, String)>);

impl Known {
    /// Reads lines of `NAME | REASON`. The first `*` in a name stands for any text.
    ///
    /// `#` begins a comment.
    ///
    /// # Errors
    /// The first line without a reason.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let lines = text.lines();
        let lines = lines.filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let known: Result<Vec<_>, String> = lines
            .map(|line| match line.split_once(" | ") {
                Some((name, reason)) if !reason.trim().is_empty() => {
                    Ok((name.trim().into(), reason.trim().into()))
                }
                _ => Err(line.into()),
            })
            .collect();
        known.map(Self)
    }

    /// True if a line with this name stands for `name`. The first `*` stands for any text.
    fn covers(pattern: &str, name: &str) -> bool {
        match pattern.split_once('*') {
            Some((beginning, rest)) => name.strip_prefix(beginning).is_some_and(|left| {
                rest.is_empty() || (0..=left.len()).any(|at| left.get(at..) == Some(rest))
            }),
            None => name == pattern,
        }
    }

    /// Returns the `differences` that are not known.
    ///
    /// Also returns a line for each known difference of these families that no longer exists.
    pub(crate) fn check(&self, differences: &[String], families: &BTreeSet<&str>) -> Vec<String> {
        let name = |difference: &'_ String| -> String {
            let name = difference.split_once(": ").map(|(name, _)| name);
            name.unwrap_or(difference).into()
        };
        let names: Vec<_> = differences.iter().map(name).collect();
        let is_known = |name: &String| self.0.iter().any(|(known, _)| Self::covers(known, name));
        let new = differences.iter().zip(&names);
        let new = new.filter(|(_, name)| !is_known(name));
        let known = self.0.iter().map(|(known, _)| known);
        let gone = known
            .filter(|known| families.contains(family(known)))
            .filter(|known| !names.iter().any(|name| Self::covers(known, name)))
            .map(|known| format!("{known}: no difference any more, but listed as one"));
        new.map(|(line, _)| line.clone()).chain(gone).collect()
    }
}

/// The answers by their names. A name may have several.
fn answers(record: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut answers: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for line in record.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, answer)) = line.split_once(": ") {
            answers.entry(name).or_default().push(answer);
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{Known, differences, families};

    #[test]
    fn answers_that_vary_are_not_compared() {
        let old = "# a\nx.a: 1\nx.b: ~2\nx.c: 3\nx.d: 0\n";
        let new = "# b\nx.a: 1\nx.b: ~5\nx.c: 4\nx.e: 0\n";
        let expected = ["x.c: 3 | 4", "x.d: 0 | (no line)", "x.e: (no line) | 0"];
        assert_eq!(differences(old, new, &families(new)), expected);
    }

    #[test]
    fn families_that_were_not_asked_are_not_compared() {
        let (old, new) = ("x.a: 1\ny.a: 1\n", "x.a: 1\n");
        assert!(differences(old, new, &families(new)).is_empty());
        let known = Known::read("y.a | a reason").ok();
        let left = known.map(|known| known.check(&[], &families(new)));
        assert_eq!(left, Some(Vec::new()));
    }

    #[test]
    fn a_known_difference_needs_a_reason_and_has_to_be_one() {
        assert!(Known::read("x.a").is_err());
        assert!(Known::read("x.a | ").is_err());
        let known = Known::read("# names\nx.* | a reason\ny | a reason\nz | a reason\n").ok();
        let differences = ["x.c: 3 | 4", "y: 0 | 1", "y.more: 0 | 1"].map(String::from);
        let asked = ["x", "y", "z"].into();
        let left = known.map(|known| known.check(&differences, &asked));
        let expected = [
            "y.more: 0 | 1",
            "z: no difference any more, but listed as one",
        ];
        assert_eq!(left, Some(expected.map(String::from).to_vec()));
    }

    #[rstest]
    #[case::nothing("a.*", "a.", true)]
    #[case::only_from_the_begin("a.*", "b.a.", false)]
    #[case::in_the_middle("a.*.c", "a.b.c", true)]
    #[case::between_both_dots("a.*.c", "a.c", false)]
    #[case::only_to_the_end("a.*.c", "a.b.c.d", false)]
    fn a_star_stands_for_any_text(
        #[case] pattern: &str,
        #[case] name: &str,
        #[case] is_covered: bool,
    ) {
        assert_eq!(Known::covers(pattern, name), is_covered, "{pattern} {name}");
    }
}
