//! Tests of the runner: cases and teardowns with every bad end.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use syncline_conformance::expected::Expected;
use syncline_conformance::report::{Ending, Record};
use syncline_conformance::runner::TEARDOWN;
use syncline_conformance::workload::Equipped;
use syncline_conformance::{Case, Runner, Settings, Stop, Subject, Suite, World, same_work};

/// A name that no subject has.
pub(crate) const UNKNOWN: &str = "unknown";

/// A host device that may end badly.
#[derive(Clone)]
pub(crate) struct Mortal {
    host: Equipped,
    _end: Arc<End>,
}

struct End(String);

impl Drop for End {
    fn drop(&mut self) {
        match self.0.as_str() {
            "hangs at its end" => sleep(),
            "aborts at its end" => std::process::abort(),
            "exits at its end" => std::process::exit(0),
            "fails at its end" => std::process::exit(3),
            #[allow(clippy::panic, reason = "the behaviour under test")]
            "panics at its end" => panic!("at the end"),
            _ => {}
        }
    }
}

impl Subject for Mortal {
    same_work!(host: Equipped);
}

pub(crate) struct Lab;

impl Suite for Lab {
    type Subject = Mortal;

    fn subjects(&self) -> Vec<String> {
        let names = [
            "well behaved",
            "cannot be opened",
            "complains",
            "hangs at its end",
            "aborts at its end",
            "exits at its end",
            "fails at its end",
            "panics at its end",
        ];
        names.map(String::from).into()
    }

    fn open(&self, subject: &str) -> syncline::Result<World<Mortal>> {
        if subject == "cannot be opened" {
            return Err(syncline::Error::NothingToWaitFor);
        }
        Ok(World::one(Mortal {
            host: Equipped::new(syncline::host::Device::new().into())?,
            _end: Arc::new(End(subject.into())),
        }))
    }

    fn cases(&self) -> Vec<Case<Mortal>> {
        let case = |id, run| Case {
            id,
            rules: &["D1"],
            run,
        };
        vec![
            case("passes", |_| Ok(())),
            case("fails", |_| Stop::fail("as it should")),
            case("skips", |_| Stop::skip("for a reason")),
            case("hangs", |_| {
                sleep();
                Ok(())
            }),
            case("aborts", |_| std::process::abort()),
            #[allow(clippy::panic, reason = "the behaviour under test")]
            case("panics", |_| panic!("in a case")),
            case("exits", |_| std::process::exit(0)),
            case("babbles", |_| {
                let mut out = std::io::stdout().lock();
                // Invalid text, a text like an answer, and a line without an end.
                let junk = b"\xff\xfe\n{\"id\":\"babbles\",\"outcome\":\"failed\"}\n\nand so on";
                out.write_all(junk)
                    .and_then(|()| out.flush())
                    .map_err(|error| Stop::Failed(error.to_string()))
            }),
            case("closes its output", |_| {
                // SAFETY: no Rust object in this process owns the descriptor.
                #[allow(unsafe_code, reason = "standard output has no other way to be closed")]
                unsafe {
                    rustix::io::close(1);
                }
                sleep();
                Ok(())
            }),
        ]
    }

    fn complaints(&self) -> Vec<String> {
        // Only for the subject that complains: once at the first case, once at the end.
        use std::sync::atomic::{AtomicUsize, Ordering};
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let complains = syncline_conformance::runner::child_subject();
        if complains.as_deref() != Some("complains") {
            return Vec::new();
        }
        let asked = ASKED.fetch_add(1, Ordering::Relaxed);
        (0..=asked)
            .filter(|n| n % 2 == 0)
            .map(|n| format!("complaint {n}"))
            .collect()
    }
}

/// Longer than any limit here.
fn sleep() {
    std::thread::sleep(Duration::from_secs(600));
}

fn runner(subject: &str) -> Runner {
    Runner::new(subject, &Settings::default()).quiet()
}

/// A runner for what hangs. A case that passes has this time, too.
fn impatient(subject: &str) -> Runner {
    let settings = Settings {
        case_limit: Duration::from_secs(6),
        ..Settings::default()
    };
    Runner::new(subject, &settings).quiet()
}

fn ended(record: &Record, outcome: Ending, lost: bool, reason: &str) -> Result<(), Failed> {
    let said = record.reason.as_deref().unwrap_or_default();
    if (record.outcome, record.lost) == (outcome, lost) && said.contains(reason) {
        return Ok(());
    }
    Err(format!("{record:?} instead of {outcome:?}, {lost}, {reason:?}").into())
}

/// Runs a case, and then one that passes, because a bad case must not affect the next.
fn case(id: &str, outcome: Ending, lost: bool, reason: &str) -> Result<(), Failed> {
    let start = if id == "hangs" { impatient } else { runner };
    let mut runner = start("well behaved");
    ended(&runner.run_id(id, &["D1"]), outcome, lost, reason)?;
    ended(&runner.run_id("passes", &["D1"]), Ending::Passed, false, "")?;
    ended(&runner.finish(), Ending::Passed, false, "")
}

fn teardown(subject: &str, outcome: Ending, lost: bool, reason: &str) -> Result<(), Failed> {
    let start = match subject {
        "hangs at its end" => impatient,
        _ => runner,
    };
    let mut runner = start(subject);
    ended(&runner.run_id("passes", &["D1"]), Ending::Passed, false, "")?;
    let record = runner.finish();
    if record.id != TEARDOWN || record.rules != ["D4"] {
        return Err(format!("{record:?} is no teardown").into());
    }
    ended(&record, outcome, lost, reason)
}

fn nothing_left() -> Result<(), Failed> {
    let mut runner = runner("well behaved");
    runner.run_id("aborts", &["D1"]);
    ended(&runner.finish(), Ending::Skipped, false, "no process")
}

fn unopened() -> Result<(), Failed> {
    let mut runner = runner("cannot be opened");
    for _ in 0..2 {
        let record = runner.run_id("passes", &["D1"]);
        ended(&record, Ending::Failed, true, "cannot be opened")?;
    }
    Ok(())
}

fn complaints() -> Result<(), Failed> {
    let mut runner = runner("complains");
    let first = runner.run_id("passes", &["D1"]);
    ended(&first, Ending::Failed, false, "complaint 0")?;
    let second = runner.run_id("passes", &["D1"]);
    ended(&second, Ending::Passed, false, "")?;
    ended(&runner.finish(), Ending::Failed, false, "complaint 2")
}

fn known() -> Result<(), Failed> {
    let expected = ["fails", "aborts", "skips", "passes"].map(|case| Expected {
        case: case.into(),
        why: "a driver's bug".into(),
    });
    let mut runner = runner("well behaved").expecting(expected.into());
    let mut run = |id| runner.run_id(id, &["D1"]);
    let why = "a driver's bug (as it should)";
    ended(&run("fails"), Ending::Known, false, why)?;
    ended(&run("aborts"), Ending::Known, true, "a driver's bug")?;
    ended(&run("skips"), Ending::Skipped, false, "for a reason")?;
    let why = "passes, but is expected to fail: a driver's bug";
    ended(&run("passes"), Ending::Failed, false, why)?;
    ended(&run("panics"), Ending::Failed, true, "panicked")
}

fn unknown() -> Result<(), Failed> {
    let mut runner = runner(UNKNOWN);
    let record = runner.run_id("passes", &["D1"]);
    ended(&record, Ending::Failed, true, "exit status: 2")?;
    let mut runner = self::runner("well behaved");
    let record = runner.run_id("no such case", &["D1"]);
    ended(&record, Ending::Failed, true, "no such case")
}

pub(crate) fn trials() -> Vec<Trial> {
    type Test = fn() -> Result<(), Failed>;
    use Ending::{Failed as F, Passed as P, Skipped as S};
    let tests: Vec<(&str, Test)> = vec![
        ("a_case_passes", || case("passes", P, false, "")),
        ("a_case_fails", || case("fails", F, false, "as it should")),
        ("a_case_skips", || case("skips", S, false, "for a reason")),
        ("a_case_hangs", || case("hangs", F, true, "hung: killed")),
        ("a_case_aborts", || case("aborts", F, true, "signal: 6")),
        ("a_case_panics", || case("panics", F, true, "panicked")),
        ("a_case_exits", || {
            case("exits", F, true, "ended in the case: exit status: 0")
        }),
        ("a_case_babbles", || case("babbles", P, false, "")),
        ("a_case_closes_its_output", || {
            case("closes its output", F, true, "closed its output")
        }),
        ("a_teardown_passes", || {
            teardown("well behaved", P, false, "")
        }),
        ("a_teardown_hangs", || {
            teardown("hangs at its end", F, true, "hung")
        }),
        ("a_teardown_aborts", || {
            teardown("aborts at its end", F, true, "signal: 6")
        }),
        ("a_teardown_exits_without_a_word", || {
            teardown("exits at its end", F, true, "without a word")
        }),
        ("a_teardown_exits_with_failure", || {
            teardown("fails at its end", F, true, "exit status: 3")
        }),
        ("a_teardown_panics", || {
            teardown("panics at its end", F, false, "panicked")
        }),
        ("a_teardown_has_nothing_left_to_judge", nothing_left),
        ("a_subject_cannot_be_opened", unopened),
        ("complaints_fail_the_case_they_come_in", complaints),
        ("expected_failures_are_told_apart", known),
        ("unknown_names_are_no_success", unknown),
    ];
    tests
        .into_iter()
        .map(|(name, test)| Trial::test(format!("runner::{name}"), test))
        .collect()
}
