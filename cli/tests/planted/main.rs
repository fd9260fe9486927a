//! Runs the suite with one bug planted in a driver or in a second process.
//!
//! The case of a rule that the bug breaks must fail.
//!
//! The case must fail with a message. A crash of its process does not count. The same case must
//! pass without the bug, with the same time limit. The mutants in the suite's own tests break the
//! rules that a backend keeps. A plain `cargo test` plants a sample, and `.ci/slow` all bugs.

mod suite;
mod table;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use suite::Outcome;
use table::{BUGS, PROGRAMS, Place, Planted, Side, TYPES};

/// Time limits of a wait in a case. With a bug many waits last that long.
///
/// A busy machine may need more than the first for what the bug does not touch, such as the start
/// of a process.
const PATIENCE: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(25),
];

/// How often a case is tried that looks for something done too early.
///
/// On a busy machine the case itself may look too late.
const TRIES: u32 = 3;

/// Some bugs of each place, for a plain `cargo test`.
const SAMPLE: [&str; 6] = [
    "launch-forgets-records",
    "fault-changes",
    "loses-last-value",
    "imports-other-memory",
    "carries-nothing-out",
    "forgets-event-wait",
];

/// Why a trial is ignored.
const NO_VULKAN: &str = "no Vulkan driver in software (Debian: mesa-vulkan-drivers)";

/// Runs the case with the bug and without.
fn caught(planted: &'static Planted) -> Result<Completion, Failed> {
    let found = suite::subject(Some(planted), planted.subject)?;
    let Some(subject) = found else {
        return Ok(Completion::ignored_with(NO_VULKAN));
    };
    let is_marked = match planted.place {
        Place::Cuda | Place::Layer => subject.contains(planted.bug),
        Place::Peer => true,
    };
    if !is_marked {
        return Err(format!("{subject:?} does not say that it has a bug").into());
    }
    let mut why = Failed::without_message();
    for patience in PATIENCE {
        match fails(planted, &subject, patience) {
            Ok(reason) => match control(planted, patience)? {
                Outcome::Passed => {
                    println!("{} is caught by {}: {reason}", planted.bug, planted.case);
                    return Ok(Completion::Completed);
                }
                other => why = format!("without the bug: {other:?}").into(),
            },
            Err(failed) => why = failed,
        }
    }
    Err(why)
}

/// Returns the message with which the case fails.
fn fails(planted: &'static Planted, subject: &str, patience: Duration) -> Result<String, Failed> {
    let mut last = None;
    for _ in 0..TRIES {
        match suite::run(Some(planted), subject, planted.case, patience)? {
            Outcome::Failed {
                reason,
                is_lost: false,
            } if reason.contains(planted.says) => return Ok(reason),
            other => last = Some(other),
        }
    }
    Err(format!("{} does not catch it: {last:?}", planted.case).into())
}

/// Runs the same case without the bug. The result is shared by all bugs with this case.
fn control(planted: &'static Planted, patience: Duration) -> Result<Outcome, Failed> {
    type Known = Arc<OnceLock<Result<Outcome, String>>>;
    static CONTROLS: Mutex<Option<HashMap<String, Known>>> = Mutex::new(None);
    let Some(subject) = suite::subject(None, planted.subject)? else {
        return Err("the subject has gone".into());
    };
    let key = format!("{} on {subject} in {patience:?}", planted.case);
    let known = {
        let mut controls = CONTROLS.lock().unwrap_or_else(PoisonError::into_inner);
        let controls = controls.get_or_insert_default();
        controls.entry(key).or_default().clone()
    };
    let run = || {
        let outcome = suite::run(None, &subject, planted.case, patience);
        outcome.map_err(|failed| failed.message().unwrap_or_default().to_owned())
    };
    Ok(known.get_or_init(run).clone()?)
}

/// Each program that must not compile has a rule.
fn programs_have_rules() -> Result<(), Failed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAMS);
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default();
        found.insert(stem.to_string_lossy().into_owned());
    }
    let listed: BTreeSet<_> = TYPES.iter().map(|one| one.program.to_owned()).collect();
    if found == listed {
        return Ok(());
    }
    Err(format!("the programs are {found:?}, and the table has {listed:?}").into())
}

/// A name of a bug that the driver does not know is refused. The error lists the known names.
fn unknown_name(place: Place) -> Result<Completion, Failed> {
    if place == Place::Layer && suite::subject(None, &[Side::Vulkan])?.is_none() {
        return Ok(Completion::ignored_with(NO_VULKAN));
    }
    let told = suite::with_unknown_bug(place)?;
    if told.contains("there is no such bug, but") {
        return Ok(Completion::Completed);
    }
    Err(format!("nothing is said of a name that is unknown: {told}").into())
}

/// A mutant, a bug or a program breaks each rule. Each case shows the rules of its bug.
fn complete() -> Result<(), Failed> {
    let cases = suite::cases()?;
    for bug in BUGS {
        let shown = cases.get(bug.case).map_or(&[][..], Vec::as_slice);
        for rule in bug.rules {
            if !shown.iter().any(|shown| shown == rule) {
                return Err(format!("{} does not show {rule}", bug.case).into());
            }
        }
    }
    let stated = include_str!("../../../docs/contract.md").lines();
    let stated = stated.filter_map(|line| Some(line.strip_prefix("- **")?.split_once("** ")?.0));
    let mutants = include_str!("../../../tests/tests/suites/mutants/bugs.rs").lines();
    // `NameOfTheBug: T1 Q2;`
    let mutants: Vec<_> = mutants
        .filter_map(|line| Some(line.strip_suffix(';')?.split_once(": ")?.1))
        .flat_map(|rules| rules.split(' '))
        .collect();
    let is_broken = |rule: &&str| {
        mutants.contains(rule)
            || BUGS.iter().any(|bug| bug.rules.contains(rule))
            || TYPES.iter().any(|program| program.rule == *rule)
    };
    let unbroken: Vec<_> = stated.filter(|rule| !is_broken(rule)).collect();
    if unbroken.is_empty() {
        Ok(())
    } else {
        Err(format!("nothing breaks {unbroken:?}").into())
    }
}

fn sample_is_planted() -> Result<(), Failed> {
    let is_planted = |bug: &&str| BUGS.iter().any(|planted| planted.bug == *bug);
    match SAMPLE.iter().find(|bug| !is_planted(bug)) {
        Some(bug) => Err(format!("the table has no bug {bug}").into()),
        None => Ok(()),
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let bugs = BUGS.iter().map(|planted| {
        let Planted {
            place, bug, case, ..
        } = planted;
        let name = format!("{place:?}::{bug}::{case}").to_lowercase();
        let trial = Trial::ignorable_test(name, move || caught(planted));
        let is_slow = !SAMPLE.contains(&planted.bug);
        let trial = trial.with_ignored_flag(is_slow);
        trial.with_kind(planted.rules.join(" "))
    });
    let names = [Place::Cuda, Place::Layer].map(|place| {
        let name = format!("{place:?}::unknown_name").to_lowercase();
        Trial::ignorable_test(name, move || unknown_name(place))
    });
    let tables = [
        Trial::test("each_rule_has_a_bug", complete),
        Trial::test("the_sample_is_in_the_table", sample_is_planted),
        Trial::test("each_program_has_a_rule", programs_have_rules),
    ];
    let trials = bugs.chain(names).chain(tables).collect();
    // A case that catches a bug mostly waits for its time limit. So more of them than cores run at
    // once.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads = arguments.test_threads.or(Some(3 * cores));
    libtest_mimic::run(&arguments, trials).exit_code()
}
