//! A suite as a test: one trial per subject and case.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use syncline_conformance::report::{Ending, Record, Tally};
use syncline_conformance::{Runner, Settings, Suite};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn completion(record: Record) -> Result<Completion, Failed> {
    let reason = record.reason.unwrap_or_default();
    match record.outcome {
        Ending::Passed => Ok(Completion::Completed),
        Ending::Skipped | Ending::Known => Ok(Completion::ignored_with(reason)),
        Ending::Failed => Err(Failed::from(reason)),
    }
}

/// Runs `suite` as the command line says. The name of each trial begins with `module`. Returns false if a trial failed.
pub(crate) fn run(
    module: &str,
    suite: &impl Suite,
    settings: &Settings,
    arguments: &Arguments,
) -> bool {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut runners = Vec::new();
    let mut trials = Vec::new();
    for subject in suite.subjects() {
        let runner = Runner::new(&subject, settings).expecting(suite.expected(&subject));
        let runner = Arc::new(Mutex::new(runner));
        runners.push(runner.clone());
        for case in suite.cases() {
            let (runner, tally) = (runner.clone(), tally.clone());
            let trial = Trial::ignorable_test(format!("{module}::{}", case.id), move || {
                let record = lock(&runner).run(&case);
                lock(&tally).count(record.outcome);
                completion(record)
            });
            trials.push(trial.with_kind(subject.clone()));
        }
    }
    let mut arguments = arguments.clone();
    // A subject runs one case at a time anyway; more subjects at once would share the cores that
    // their software drivers need.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let conclusion = libtest_mimic::run(&arguments, trials);
    let mut passed = !conclusion.has_failed();
    if arguments.list {
        return passed;
    }
    println!("{}", lock(&tally));
    // Not trials: they come after all others, and trials have no order among themselves.
    for runner in runners {
        let record = lock(&runner).finish();
        if record.outcome == Ending::Failed {
            let reason = record.reason.unwrap_or_default();
            println!("{}: {} FAILED: {reason}", record.subject, record.id);
            passed = false;
        }
    }
    passed
}
