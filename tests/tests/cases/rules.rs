//! Checks that the contract and the suite name the same rules.
//!
//! It cannot tell whether a case fails when its rule is broken. `mutants` checks that.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use syncline_conformance::cases::merged;
use syncline_conformance::report::Report;
use syncline_conformance::runner::TEARDOWN;

const CONTRACT: &str = include_str!("../../../docs/contract.md");

/// Returns the ids that the contract states: `- **T1** …`.
fn stated() -> BTreeSet<&'static str> {
    let ids = CONTRACT
        .lines()
        .filter_map(|line| line.strip_prefix("- **")?.split_once("** "));
    ids.map(|(id, _)| id).collect()
}

/// Returns the rules that are stated and not kept yet: `| T1 | planned |` in the last section.
fn planned() -> BTreeSet<&'static str> {
    let (_, status) = CONTRACT.split_once("## Status").expect("the last section");
    let rows = status
        .lines()
        .filter_map(|line| line.strip_suffix(" | planned |"));
    rows.filter_map(|row| row.strip_prefix("| ")).collect()
}

/// Returns the rules that are kept.
fn implemented() -> BTreeSet<&'static str> {
    let planned = planned();
    assert!(planned.is_subset(&stated()), "{planned:?}");
    stated().difference(&planned).copied().collect()
}

#[test]
fn every_implemented_rule_has_a_case_and_every_case_a_rule() {
    let cases = syncline_conformance::inventory::cases();
    let shown: BTreeSet<&str> = cases.iter().flat_map(|case| case.rules).copied().collect();
    let unknown: Vec<_> = shown.difference(&stated()).copied().collect();
    assert!(
        unknown.is_empty(),
        "cases name rules that the contract does not state: {unknown:?}"
    );
    assert!(
        cases.iter().all(|case| !case.rules.is_empty()),
        "a case shows no rule"
    );
    // The handles of X3 and X4 need a backend that exports them.
    if cfg!(all(feature = "cuda", feature = "vulkan")) {
        let missing: Vec<_> = implemented().difference(&shown).copied().collect();
        assert!(
            missing.is_empty(),
            "implemented, but no case names them: {missing:?}"
        );
    }
}

#[test]
fn case_ids_are_unique() {
    let mut ids = BTreeSet::new();
    for case in syncline_conformance::inventory::cases() {
        assert!(ids.insert(case.id), "{} stands twice", case.id);
    }
    for id in merged::former() {
        let current = merged::current(id);
        // Some cases need a backend that may not be built in.
        let is_built = cfg!(all(feature = "cuda", feature = "vulkan"));
        assert!(!is_built || ids.contains(current), "{current} is no case");
        assert!(ids.insert(id), "{id} stands twice");
    }
}

/// Every case of the recorded run is a case of today, or was merged into one.
#[test]
fn recorded_ids_are_known() {
    if !cfg!(all(feature = "cuda", feature = "vulkan")) {
        return;
    }
    let recorded = include_str!("../../../results/h200/conformance.json");
    let recorded = Report::from_json(recorded).expect("a recorded report");
    let cases = syncline_conformance::inventory::cases();
    let mut known: BTreeSet<_> = cases.iter().map(|case| case.id).collect();
    known.insert(TEARDOWN);
    for record in &recorded.cases {
        assert!(known.contains(merged::current(&record.id)), "{}", record.id);
    }
}

/// The page for authors of backends names the rules that only cases of this project show.
#[test]
fn rules_that_are_left_to_an_author_are_named() {
    const PAGE: &str = include_str!("../../../docs/write-a-backend.md");
    const BEGIN: &str = "show most rules, but not ";
    let (_, list) = PAGE.split_once(BEGIN).expect("the list");
    let (list, _) = list.split_once(", nor what").expect("its end");
    let named: BTreeSet<_> = list
        .split([',', ' ', '\n'])
        .filter(|id| stated().contains(id))
        .collect();
    let cases = syncline_conformance::cases::all::<syncline_conformance::workload::Equipped>();
    let shown: BTreeSet<&str> = cases.iter().flat_map(|case| case.rules).copied().collect();
    let left: BTreeSet<_> = implemented().difference(&shown).copied().collect();
    assert_eq!(named, left);
}
