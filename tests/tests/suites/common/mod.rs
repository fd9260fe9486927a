//! Runs a suite as tests: one trial per subject and case.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libtest_mimic::{Completion, Failed, Trial};
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

/// Some trials, and what has to be judged after the last of them.
pub(crate) struct Group {
    pub(crate) trials: Vec<Trial>,
    /// False if it fails.
    pub(crate) end: Box<dyn FnOnce() -> bool>,
}

impl From<Vec<Trial>> for Group {
    fn from(trials: Vec<Trial>) -> Self {
        let end = Box::new(|| true);
        Self { trials, end }
    }
}

/// The trials of `suite`, one per subject and case. The name of each begins with `module`.
pub(crate) fn group(module: &str, suite: &impl Suite, settings: &Settings) -> Group {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let runner = |subject: String| {
        let runner = Runner::new(&subject, settings).expecting(suite.expected(&subject));
        (subject, Arc::new(Mutex::new(runner)))
    };
    let runners: Vec<_> = suite.subjects().into_iter().map(runner).collect();
    let mut trials = Vec::new();
    // A subject runs one case at a time, so trials that follow each other are of different
    // subjects.
    for case in suite.cases().into_iter().map(Arc::new) {
        for (subject, runner) in &runners {
            let (case, runner, tally) = (case.clone(), runner.clone(), tally.clone());
            let trial = Trial::ignorable_test(format!("{module}::{}", case.id), move || {
                let record = lock(&runner).run(&case);
                lock(&tally).count(record.outcome);
                completion(record)
            });
            trials.push(trial.with_kind(subject.clone()));
        }
    }
    let module = module.to_owned();
    let end = Box::new(move || {
        println!("{module}: {}", lock(&tally));
        let mut passed = true;
        for (_, runner) in runners {
            let record = lock(&runner).finish();
            if record.outcome == Ending::Failed {
                let reason = record.reason.unwrap_or_default();
                println!("{}: {} FAILED: {reason}", record.subject, record.id);
                passed = false;
            }
        }
        passed
    });
    Group { trials, end }
}
