//! The suite on devices, on the example's backend and on backends with a bug each; and its runner.
//!
//! Each is a module, whose name begins the names of its trials.

#[path = "../../examples/clockwork/backend/mod.rs"]
mod clockwork;
mod common;
mod devices;
mod example;
mod mutants;
mod runner;
mod smallest;
#[path = "../../examples/smallest.rs"]
#[allow(dead_code, reason = "it has a main of its own")]
mod smallest_backend;

use std::process::ExitCode;

use clockwork::suite::ClockworkSuite;
use common::Group;
use libtest_mimic::{Arguments, Trial};
use mutants::Mutants;
use runner::Lab;
use smallest::ThreadsSuite;
use syncline_conformance::inventory::Devices;
use syncline_conformance::runner::{Suite, child, child_subject};

/// Runs the suite that has the subject of this child process. `None` if it is no child.
fn serve() -> Option<ExitCode> {
    let subject = child_subject()?;
    let is_of = |subjects: Vec<String>| subjects.contains(&subject);
    if is_of(Lab.subjects()) || subject == runner::UNKNOWN {
        child(|_| Lab)
    } else if is_of(ClockworkSuite::default().subjects()) {
        child(|_| ClockworkSuite::default())
    } else if is_of(ThreadsSuite.subjects()) {
        child(|_| ThreadsSuite)
    } else if is_of(Mutants::default().subjects()) {
        child(|_| Mutants::default())
    } else {
        child(Devices::probe)
    }
}

/// Mixes the trials of all groups, each spread over the whole run.
///
/// Each group alone would leave cores idle: a subject runs one case at a time, and a bug is caught
/// by a time limit that passes.
fn mixed(groups: Vec<Vec<Trial>>) -> Vec<Trial> {
    let mut placed = Vec::new();
    for group in groups {
        let count = group.len();
        let trials = group.into_iter().enumerate();
        // The position in the run, in millionths.
        placed.extend(trials.map(|(at, trial)| (at * 1_000_000 / count, trial)));
    }
    placed.sort_by_key(|(position, _)| *position);
    placed.into_iter().map(|(_, trial)| trial).collect()
}

fn main() -> ExitCode {
    if let Some(done) = serve() {
        return done;
    }
    let mut arguments = Arguments::from_args();
    // Most of the time trials wait, for a driver, a time limit or another case of their subject.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads = arguments.test_threads.or(Some((8 * cores).min(32)));
    let groups: [Group; 5] = [
        runner::trials().into(),
        example::trials(),
        smallest::trials(),
        mutants::trials().into(),
        devices::trials(),
    ];
    let (trials, ends): (Vec<_>, Vec<_>) = groups
        .into_iter()
        .map(|group| (group.trials, group.end))
        .unzip();
    let mut passed = !libtest_mimic::run(&arguments, mixed(trials)).has_failed();
    if !arguments.list {
        // Teardowns are no trials. They must come after all others, and trials have no order.
        for end in ends {
            passed &= end();
        }
    }
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(101)
    }
}
