//! The suite under `cargo test`: one trial per subject and case.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use syncline_conformance::inventory::Devices;
use syncline_conformance::report::{Ending, Tally};
use syncline_conformance::runner::{Suite as _, child};
use syncline_conformance::{Runner, Settings};

fn main() -> ExitCode {
    if let Some(done) = child(Devices::probe) {
        return done;
    }
    let settings = Settings::from_env();
    let suite = Devices::probe(&settings);
    for reason in suite.left_out() {
        println!("skipped: {reason}");
    }
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut runners = Vec::new();
    let mut trials = Vec::new();
    for subject in suite.subjects() {
        let runner = Arc::new(Mutex::new(Runner::new(&subject, &settings)));
        runners.push((subject.clone(), runner.clone()));
        for case in suite.cases() {
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
            trials.push(trial.with_kind(subject.clone()));
        }
    }
    let mut arguments = Arguments::from_args();
    // A subject runs one case at a time anyway; more subjects at once would share the cores that
    // their software drivers need.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if arguments.list {
        return conclusion.exit_code();
    }
    println!("{}", tally.lock().unwrap_or_else(PoisonError::into_inner));
    // Not trials: they come after all others, and trials have no order among themselves.
    let mut exit = conclusion.exit_code();
    for (subject, runner) in runners {
        let record = runner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .finish();
        if record.outcome == Ending::Failed {
            let reason = record.reason.unwrap_or_default();
            println!("{subject}: {} FAILED: {reason}", record.id);
            exit = ExitCode::from(101);
        }
    }
    exit
}
