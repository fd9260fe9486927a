//! The suite under `cargo test`: one trial per subject and case.

use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use syncline::{Inventory, ProbeOptions};
use syncline_conformance::report::{Ending, Tally};
use syncline_conformance::runner::{Runner, cases, is_child, left_out, subjects};

fn main() -> std::process::ExitCode {
    if is_child() {
        return std::process::ExitCode::SUCCESS;
    }
    let inventory = Inventory::probe(&ProbeOptions::default());
    for reason in left_out(&inventory) {
        println!("skipped: {reason}");
    }
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut trials = Vec::new();
    for subject in subjects(&inventory) {
        let name = subject.name.clone();
        let runner = Arc::new(Mutex::new(Runner::new(subject, false)));
        for case in cases() {
            let (runner, tally) = (runner.clone(), tally.clone());
            let trial = Trial::ignorable_test(case.id, move || {
                let record = runner
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .run(&case);
                tally
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .count(record.outcome);
                let reason = record.reason.unwrap_or_default();
                match record.outcome {
                    Ending::Passed => Ok(Completion::Completed),
                    Ending::Skipped => Ok(Completion::ignored_with(reason)),
                    Ending::Failed => Err(Failed::from(reason)),
                }
            });
            trials.push(trial.with_kind(name.clone()));
        }
    }
    let mut arguments = Arguments::from_args();
    // A subject runs one case at a time anyway; more subjects at once would share the cores that
    // their software drivers need.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        println!("{}", tally.lock().unwrap_or_else(PoisonError::into_inner));
    }
    conclusion.exit_code()
}
