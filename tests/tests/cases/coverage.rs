//! The table of other suites' cases names cases that exist.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::collections::BTreeSet;

const COVERAGE: &str = include_str!("../../COVERAGE.md");

/// What the list of cases to be written begins with.
const STILL_TO_COME: &str = "## Still to come";

/// The rows of the tables, as their cells; heads and rules are left out.
fn rows() -> Vec<Vec<&'static str>> {
    let lines: Vec<_> = COVERAGE.lines().collect();
    let is_rule = |line: &&&str| line.starts_with("|---");
    let bodies = lines
        .iter()
        .enumerate()
        .filter(|(number, line)| {
            let is_head = lines.get(number + 1).is_some_and(|next| is_rule(&next));
            line.starts_with('|') && !is_rule(line) && !is_head
        })
        .map(|(_, line)| line);
    let cells = |line: &&'static str| {
        let inner = line.trim_end().trim_matches('|');
        inner.split('|').map(str::trim).collect()
    };
    bodies.map(cells).collect()
}

/// What stands in backticks and is of the form `family.behaviour`.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|id| id.contains('.'))
}

/// The ids that the tables give as the answer to a case of another suite.
fn named() -> BTreeSet<&'static str> {
    rows()
        .iter()
        .filter_map(|row| row.last().copied())
        .flat_map(ids)
        .collect()
}

/// The ids of the list at the end.
fn to_come() -> BTreeSet<&'static str> {
    let (_, list) = COVERAGE.split_once(STILL_TO_COME).expect("the list");
    ids(list).collect()
}

fn existing() -> BTreeSet<&'static str> {
    let cases = syncline_conformance::inventory::cases();
    cases.into_iter().map(|case| case.id).collect()
}

#[test]
fn every_row_has_an_answer() {
    let rows = rows();
    assert!(rows.len() > 100, "only {} rows were found", rows.len());
    for row in rows {
        let [theirs, what, ours] = row.as_slice() else {
            panic!("a row does not have three cells: {row:?}");
        };
        assert!(
            !theirs.is_empty() && !what.is_empty(),
            "a row says nothing: {row:?}"
        );
        let reason = ours.strip_prefix("Not: ").unwrap_or_default();
        assert!(
            ids(ours).next().is_some() || !reason.is_empty(),
            "neither a case nor a reason: {row:?}"
        );
    }
}

#[test]
fn every_named_case_exists_or_is_announced() {
    // The rest of the cases need a backend that is not built in.
    if !cfg!(all(feature = "cuda", feature = "vulkan")) {
        return;
    }
    let (existing, named, to_come) = (existing(), named(), to_come());
    let promised: BTreeSet<_> = existing.union(&to_come).copied().collect();
    let unknown: Vec<_> = named.difference(&promised).collect();
    assert!(
        unknown.is_empty(),
        "COVERAGE.md names cases that are neither in the suite nor announced: {unknown:?}"
    );
    let written: Vec<_> = to_come.intersection(&existing).collect();
    assert!(
        written.is_empty(),
        "in the suite by now, so no longer to come: {written:?}"
    );
    let idle: Vec<_> = to_come.difference(&named).collect();
    assert!(
        idle.is_empty(),
        "announced, but no table names them: {idle:?}"
    );
}
