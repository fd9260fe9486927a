//! The cases of sync files on a driver that supports them.
//!
//! No software driver does. So [`driver`] adds sync files to one that shares binary semaphores as
//! opaque descriptors. The cases must pass on it, and must fail if it has a bug.

#![allow(clippy::expect_used, reason = "a test may panic")]

mod driver;

use std::sync::{Mutex, PoisonError};

use driver::{Bug, Driver};
use rstest::rstest;
use syncline::Device;
use syncline::backend::Device as _;
use syncline_conformance::case::Stop;
use syncline_conformance::workload::Equipped;
use syncline_conformance::{Verdict, World, inventory};

/// Runs one test at a time, because the driver has state of the whole process.
static TURN: Mutex<()> = Mutex::new(());

/// Runs each case of the family on two devices of the driver, and returns the verdicts.
///
/// `None` if this machine has no driver that it can be made of.
fn outcomes(bug: Option<Bug>, only: &str) -> Option<Vec<(&'static str, Verdict)>> {
    let driver = Driver::load(bug)?;
    let open = || {
        let device = driver.open().expect("a device that is there opens");
        Equipped::new(Device::Vulkan(device)).expect("equipped")
    };
    let world = World::two(open(), open());
    let cases = inventory::cases().into_iter();
    let of_family =
        cases.filter(|case| case.id.starts_with("sync_file.") && case.id.contains(only));
    let outcomes = of_family
        .map(|case| (case.id, (case.run)(&world)))
        .collect();
    for side in [&world.left, &world.right] {
        side.library().check().expect("the driver is well");
    }
    Some(outcomes)
}

#[test]
fn every_case_passes_where_a_driver_has_sync_files() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(outcomes) = outcomes(None, "") else {
        return println!("skipped: no driver to build on");
    };
    assert!(outcomes.len() >= 7, "{outcomes:?}");
    for (case, verdict) in outcomes {
        assert!(verdict.is_ok(), "{case}: {verdict:?}");
    }
}

#[rstest]
#[case::signalled_at_once(Bug::SignalledAtOnce, "exported_signal_is_a_fence")]
#[case::keeps_the_signal(Bug::KeepsTheSignal, "exported_signal_is_a_fence")]
#[case::imports_nothing(Bug::ImportsNothing, "imported_for_one_wait")]
fn a_bug_of_such_a_driver_is_found(#[case] bug: Bug, #[case] finder: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(outcomes) = outcomes(Some(bug), finder) else {
        return println!("skipped: no driver to build on");
    };
    assert!(
        matches!(outcomes[..], [(_, Err(Stop::Failed(_)))]),
        "{bug:?} is not found: {outcomes:?}"
    );
}
