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
    use super::differences;

    #[test]
    fn answers_that_vary_are_not_compared() {
        let old = "# a\nx.a: 1\nx.b: ~2\nx.c: 3\nx.d: 0\n";
        let new = "# b\nx.a: 1\nx.b: ~5\nx.c: 4\nx.e: 0\n";
        let expected = ["x.c: 3 | 4", "x.d: 0 | (no line)", "x.e: (no line) | 0"];
        assert_eq!(differences(old, new), expected);
    }
}
