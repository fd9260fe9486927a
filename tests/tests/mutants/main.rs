//! The suite against itself: subjects with one bug each, which some case of a rule that the bug breaks has to
//! fail, and the same subject without any, which has to pass them all.
//!
//! A mutant that nobody catches is a hole in the suite. One that only takes its process down is not caught:
//! the case must say what is wrong.

#[path = "../../examples/clockwork/backend/mod.rs"]
#[allow(dead_code, reason = "the example's own suite is not run here")]
mod clockwork;

mod backend;
mod bugs;
mod user;

use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use syncline_conformance::report::Ending;
use syncline_conformance::runner::child;
use syncline_conformance::{Case, Runner, Settings, Suite, World};

use backend::PlantedDevice;
use bugs::{BUGS, Bug};
use clockwork::driver::Faults;
use user::Mutant;

/// A subject is called by its bug and by one of these: how many devices there are.
const WORLDS: [&str; 2] = ["one", "two"];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn subject(bug: Bug, world: &str) -> String {
    format!("{bug:?}/{world}")
}

/// Every mutant, and the honest device, on one and on two machines.
#[derive(Default)]
struct Mutants {
    faults: Mutex<Vec<Faults>>,
}

impl Mutants {
    fn start(&self, bug: Bug) -> syncline::Result<Mutant> {
        let inner = clockwork::Device::start()?;
        lock(&self.faults).push(inner.faults());
        Ok(Mutant::new(PlantedDevice { inner, bug }))
    }
}

impl Suite for Mutants {
    type Subject = Mutant;

    fn subjects(&self) -> Vec<String> {
        let bugs = BUGS.iter().map(|&(bug, _)| bug).chain([Bug::None]);
        bugs.flat_map(|bug| WORLDS.map(|world| subject(bug, world)))
            .collect()
    }

    fn open(&self, name: &str) -> syncline::Result<World<Mutant>> {
        let bugs = BUGS.iter().map(|&(bug, _)| bug);
        let bug = bugs
            .into_iter()
            .find(|&bug| WORLDS.iter().any(|world| subject(bug, world) == name))
            .unwrap_or(Bug::None);
        let left = self.start(bug)?;
        if name == subject(bug, WORLDS[0]) {
            return Ok(World::one(left));
        }
        Ok(World::two(left, self.start(bug)?))
    }

    fn complaints(&self) -> Vec<String> {
        lock(&self.faults).iter().flat_map(Faults::list).collect()
    }
}

/// How long a case waits for what must come: a mutant makes many of them wait in vain.
fn settings(patience: Duration) -> Settings {
    Settings {
        patience,
        case_limit: Duration::from_secs(20),
        ..Settings::default()
    }
}

/// Runs what shows the rules that the bug breaks, until a case fails.
fn caught(bug: Bug, rules: &[&str], cases: &[Case<Mutant>]) -> Result<Completion, Failed> {
    let shows = |case: &Case<Mutant>| case.rules.iter().any(|rule| rules.contains(rule));
    if !cases.iter().any(shows) {
        let reason = format!("no case shows {} yet", rules.join(", "));
        return Ok(Completion::ignored_with(reason));
    }
    let mut lost = Vec::new();
    let mut ran = 0;
    for world in WORLDS {
        let settings = settings(Duration::from_secs(1));
        let mut runner = Runner::new(&subject(bug, world), &settings).quiet();
        for case in cases.iter().filter(|case| shows(case)) {
            let record = runner.run(case);
            let reason = record.reason.unwrap_or_default();
            ran += 1;
            match record.outcome {
                Ending::Failed if !record.lost => {
                    println!("{bug:?} ({world}) is caught by {}: {reason}", case.id);
                    return Ok(Completion::Completed);
                }
                Ending::Failed => lost.push(format!("{} ({world}): {reason}", case.id)),
                _ => {}
            }
        }
    }
    let why = if lost.is_empty() {
        format!("all {ran} cases of {} pass", rules.join(", "))
    } else {
        format!("no case says what is wrong: {}", lost.join("; "))
    };
    Err(why.into())
}

/// The same subject without a bug.
fn honest(world: &str, cases: &[Case<Mutant>]) -> Result<(), Failed> {
    let mut runner = Runner::new(
        &subject(Bug::None, world),
        &settings(Duration::from_secs(10)),
    );
    let mut records: Vec<_> = cases.iter().map(|case| runner.run(case)).collect();
    records.push(runner.finish());
    let failed: Vec<_> = records
        .into_iter()
        .filter(|record| record.outcome == Ending::Failed)
        .map(|record| format!("{}: {}", record.id, record.reason.unwrap_or_default()))
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(failed.join("\n").into())
}

fn main() -> ExitCode {
    if let Some(done) = child(|_| Mutants::default()) {
        return done;
    }
    let cases = || Mutants::default().cases();
    let mutants = BUGS.iter().map(|&(bug, rules)| {
        let test = move || caught(bug, rules, &cases());
        Trial::ignorable_test(format!("{bug:?}"), test).with_kind("caught")
    });
    let honest = WORLDS.map(|world| {
        let test = move || honest(world, &cases());
        Trial::test(world, test).with_kind("honest")
    });
    let trials = honest.into_iter().chain(mutants).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
