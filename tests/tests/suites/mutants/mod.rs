//! The suite against itself: subjects with one bug each, and the same subject without a bug.
//!
//! Some case of a rule that the bug breaks must fail. The subject without a bug must pass all
//! cases. A mutant that no case catches is a hole in the suite. The case must fail with a message.
//! A crash or a panic does not count. An error that only the driver in software reports does not
//! count either, because real drivers do not report it. The same case must pass without the bug at
//! the first try, with the same time limit. There are three time limits, for busy machines.
//!
//! A plain `cargo test` plants a sample of the bugs, and `.ci/slow` all of them. With
//! `SYNCLINE_REPEAT=50`, this has the subject without a bug pass everything 50 times in a row:
//! `cargo test -p syncline-conformance --test suites -- --ignored without_a_bug`.

mod backend;
mod bugs;
mod late;
mod memory;
mod user;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use syncline_conformance::report::{Ending, Record};
use syncline_conformance::{Case, Runner, Settings, Suite, World};

use backend::PlantedDevice;
use bugs::{BUGS, Bug};
use user::Mutant;

use crate::clockwork::{self, driver::Faults};

/// The rules.
const CONTRACT: &str = include_str!("../../../../docs/contract.md");

/// Set to the number of times that the subject without a bug must pass everything.
const REPEAT: &str = "SYNCLINE_REPEAT";

/// The numbers of devices of a subject. Its name is that of its bug and one of these.
const WORLDS: [&str; 2] = ["one", "two"];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn subject(bug: Bug, world: &str) -> String {
    format!("{bug:?}/{world}")
}

/// Every mutant, and the subject without a bug, on one and on two machines.
#[derive(Default)]
pub(crate) struct Mutants {
    faults: Mutex<Vec<Faults>>,
}

impl Mutants {
    fn start(&self, bug: Bug) -> syncline::Result<Mutant> {
        let inner = clockwork::Device::start()?;
        // What the driver notices does not count for a case.
        if bug == Bug::None {
            lock(&self.faults).push(inner.faults());
        }
        Ok(Mutant::new(PlantedDevice::new(inner, bug)))
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

/// Time limits of a wait in a case. With a bug many waits last that long.
///
/// The first is enough on an idle machine. On a busy one a case may miss its bug. So all cases run
/// again with the next.
const PATIENCE: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(9),
];

/// Returns a runner with a short time limit, for a mutant or for the subject without a bug.
fn impatient(bug: Bug, world: &str, patience: Duration) -> Runner {
    let settings = Settings {
        patience,
        case_limit: 20 * patience,
        ..Settings::default()
    };
    Runner::new(&subject(bug, world), &settings).quiet()
}

/// Whether the contract states the rule: `- **T1** …`.
fn stated(rule: &str) -> bool {
    let mark = format!("- **{rule}** ");
    CONTRACT.lines().any(|line| line.starts_with(&mark))
}

/// Runs cases of the rules that the bug breaks, until one fails that passes without the bug.
fn caught(bug: Bug, rules: &[&str], cases: &[Case<Mutant>]) -> Result<(), Failed> {
    for rule in rules {
        if !stated(rule) {
            return Err(format!("the contract has no rule {rule}").into());
        }
        if !cases.iter().any(|case| case.rules.contains(rule)) {
            return Err(format!("no case that any backend can run shows {rule}").into());
        }
    }
    let shows = |case: &&Case<Mutant>| case.rules.iter().any(|rule| rules.contains(rule));
    let cases: Vec<_> = cases.iter().filter(shows).collect();
    let mut why = String::new();
    for patience in PATIENCE {
        match caught_within(bug, &cases, patience) {
            Ok(()) => return Ok(()),
            Err(missed) => why = missed,
        }
    }
    Err(format!("{}: {why}", rules.join(", ")).into())
}

/// Runs cases until one fails that passes without the bug, with this time limit.
///
/// # Errors
/// Why no case catches the bug.
fn caught_within(bug: Bug, cases: &[&Case<Mutant>], patience: Duration) -> Result<(), String> {
    let mut not_so = Vec::new();
    for world in WORLDS {
        let mut runner = impatient(bug, world, patience);
        for case in cases {
            let record = runner.run(case);
            if record.outcome != Ending::Failed {
                continue;
            }
            let (id, reason) = (case.id, record.reason.unwrap_or_default());
            if record.lost {
                not_so.push(format!(
                    "{id} ({world}) does not say what is wrong: {reason}"
                ));
                continue;
            }
            let control = impatient(Bug::None, world, patience).run(case);
            if control.outcome != Ending::Passed {
                let why = control.reason.unwrap_or_default();
                not_so.push(format!("{id} ({world}) fails without the bug, too: {why}"));
                continue;
            }
            println!("{bug:?} ({world}) is caught by {id}: {reason}");
            return Ok(());
        }
    }
    if not_so.is_empty() {
        return Err(format!("all {} cases pass", cases.len()));
    }
    Err(not_so.join("; "))
}

/// Returns how often the subject without a bug must pass every case.
fn rounds() -> Result<u32, Failed> {
    match std::env::var(REPEAT) {
        Err(_) => Ok(1),
        Ok(text) => match text.parse() {
            Ok(rounds) if rounds > 0 => Ok(rounds),
            _ => Err(format!("{REPEAT} is {text:?}, and no number above 0").into()),
        },
    }
}

/// Runs the subject without a bug.
fn honest(world: &str, cases: &[Case<Mutant>]) -> Result<(), Failed> {
    let settings = Settings::default().patient();
    let mut runner = Runner::new(&subject(Bug::None, world), &settings);
    let mut failed = Vec::new();
    let mut judge = |round: u32, record: Record| {
        if record.outcome == Ending::Failed {
            let reason = record.reason.unwrap_or_default();
            failed.push(format!("{}, round {round}: {reason}", record.id));
        }
    };
    for round in 1..=rounds()? {
        for case in cases {
            judge(round, runner.run(case));
        }
        judge(round, runner.finish());
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(failed.join("\n").into())
}

/// Some bugs of each part of a subject, for a plain `cargo test`. `.ci/slow` plants all of them.
const SAMPLE: [Bug; 16] = [
    Bug::SignalsBeforeTheWork,
    Bug::KeptForEver,
    Bug::LockedQueueWakesNobody,
    Bug::TicksForNanoseconds,
    Bug::CyclicCompare32,
    Bug::LoserToldItWon,
    Bug::TimeoutIsSuccess,
    Bug::AllIsAny,
    Bug::WakeupLost,
    Bug::FutureNeverWakes,
    Bug::CirclesAccepted,
    Bug::RejectedClaimsStay,
    Bug::QueueWaitForgotten,
    Bug::PointTimeIsTheLatest,
    Bug::ErrorUnderstated,
    Bug::FailureDoesNotTravel,
];

/// The trials of the subject without a bug come first, because they take longest.
pub(crate) fn trials() -> Vec<Trial> {
    let cases = || Mutants::default().cases();
    let mutants = BUGS.iter().map(|&(bug, rules)| {
        let test = move || caught(bug, rules, &cases());
        let trial = Trial::test(format!("mutants::{bug:?}"), test).with_kind("caught");
        trial.with_ignored_flag(!SAMPLE.contains(&bug))
    });
    let honest = WORLDS.map(|world| {
        let test = move || honest(world, &cases());
        let trial = Trial::test(format!("mutants::without_a_bug_on_{world}"), test);
        trial.with_kind("honest").with_ignored_flag(true)
    });
    honest.into_iter().chain(mutants).collect()
}
