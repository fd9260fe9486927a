//! Checks that the table of other suites' cases names existing cases.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use syncline_conformance::expected::{Entry, TABLE};

const COVERAGE: &str = include_str!("../../COVERAGE.md");

/// The heading of the list of cases that are still to be written.
const STILL_TO_COME: &str = "## Still to come";

/// Returns the rows of the tables as cells, without heads and rules.
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

/// Returns the texts in backticks that have the form `family.behaviour`.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|id| id.contains('.'))
}

/// Returns the ids in the tables, which answer cases of other suites.
fn named() -> BTreeSet<&'static str> {
    rows()
        .iter()
        .filter_map(|row| row.last().copied())
        .flat_map(ids)
        .collect()
}

/// Returns the ids of the list at the end.
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
    // Some cases need a backend that may not be built in.
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

#[test]
fn every_expected_failure_names_a_case_and_says_why() {
    let existing = existing();
    let is_complete = |entry: &Entry| {
        existing.contains(entry.case) && entry.why.len() > 8 && !entry.driver.is_empty()
    };
    for entry in TABLE {
        assert!(is_complete(entry), "{entry:?}");
    }
    // The table may be empty, so the check itself is checked too.
    let complete = Entry {
        driver: "Mesa",
        from: &[],
        to: &[],
        case: "wait.zero_does_not_block",
        why: "waits for a whole round",
    };
    assert!(is_complete(&complete), "{complete:?}");
    let incomplete = [
        Entry {
            case: "wait.zero_does_not_blok",
            ..complete
        },
        Entry {
            why: "",
            ..complete
        },
        Entry {
            driver: "",
            ..complete
        },
    ];
    for entry in &incomplete {
        assert!(!is_complete(entry), "{entry:?}");
    }
}
