//! Compares two records.

use std::collections::BTreeMap;

/// The lines that differ, as one text for each.
pub(crate) fn differences(old: &str, new: &str) -> Vec<String> {
    let (old, new) = (answers(old), answers(new));
    let names: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    names
        .into_iter()
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
    /// Reads lines of `NAME | REASON`. A name that ends in `*` stands for all that begin so. `#` begins a comment.
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

    fn covers(name: &str, difference: &str) -> bool {
        let found = difference.split_once(": ").map_or("", |(found, _)| found);
        match name.strip_suffix('*') {
            Some(beginning) => found.starts_with(beginning),
            None => found == name,
        }
    }

    /// What is left of `differences`, and a line for each known one that is none any more.
    pub(crate) fn check(&self, differences: &[String]) -> Vec<String> {
        let known = |difference: &&String| {
            let names = self.0.iter();
            names
                .clone()
                .any(|(name, _)| Self::covers(name, difference))
        };
        let new = differences.iter().filter(|difference| !known(difference));
        let gone = self.0.iter().filter(|(name, _)| {
            let mut all = differences.iter();
            !all.any(|difference| Self::covers(name, difference))
        });
        let gone =
            gone.map(|(name, _)| format!("{name}: no difference any more, but listed as one"));
        new.cloned().chain(gone).collect()
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
    use super::{Known, differences};

    #[test]
    fn answers_that_vary_are_not_compared() {
        let old = "# a\nx.a: 1\nx.b: ~2\nx.c: 3\nx.d: 0\n";
        let new = "# b\nx.a: 1\nx.b: ~5\nx.c: 4\nx.e: 0\n";
        let expected = ["x.c: 3 | 4", "x.d: 0 | (no line)", "x.e: (no line) | 0"];
        assert_eq!(differences(old, new), expected);
    }

    #[test]
    fn a_known_difference_needs_a_reason_and_has_to_be_one() {
        assert!(Known::read("x.a").is_err());
        assert!(Known::read("x.a | ").is_err());
        let known = Known::read("# names\nx.* | a reason\ny | a reason\nz | a reason\n").ok();
        let differences = ["x.c: 3 | 4", "y: 0 | 1", "y.more: 0 | 1"].map(String::from);
        let left = known.map(|known| known.check(&differences));
        let expected = [
            "y.more: 0 | 1",
            "z: no difference any more, but listed as one",
        ];
        assert_eq!(left, Some(expected.map(String::from).to_vec()));
    }
}
